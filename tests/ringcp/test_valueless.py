"""No step reads a value of a tensor: on a GPU the host would wait for it, and no graph could be captured.

Steps run on tensors without values, whose reading raises; everything about masks is made before, as it is for every
layer but the first.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import ringcp
from ringcp import kernels
from ringcp.attention import Ring
from ringcp.plan import make_plan
from tests.ringcp.ring_memory import Deaf

TOKENS = 96
DOCUMENTS = torch.tensor([1] * 40 + [2] * 7 + [3] * 49)[None]
IMAGES = ((torch.arange(TOKENS) % 30) > 20).long()[None]
MASKS = {"causal": {}, "documents": {"documents": DOCUMENTS}, "window": {"window": 9, "documents": DOCUMENTS},
         "images": {"window": 9, "token_types": IMAGES}, "padding": {"padding": (torch.arange(TOKENS) > 80)[None]}}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("kernel, name", [*((kernel, name) for kernel in ("eager", "fa2") for name in MASKS),
                                          ("cudnn", "causal")])
def test_a_later_step_reads_no_value(kernel, name, world):
    for rank in range(world):
        ring = prepared(kernel, name, world, rank)
        with FakeTensorMode(allow_non_fake_inputs=True):
            q, k, v, dout = (torch.empty(1, 2, ring.plan.tokens, 16, dtype=torch.bfloat16) for _ in range(4))
            out, lse = ring.forward(q, k, v)
            grads = ring.backward(dout, q, k, v, out, lse, True)
        assert [x.shape for x in (out, *grads)] == [q.shape] * 4


def test_reading_a_value_would_show():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.empty(1).item()


def prepared(kernel: str, name: str, world: int, rank: int) -> Ring:
    """A ring whose plan has been through a step, as the second layer finds it. Pieces of unequal length make calls of
    unequal segments out of a causal mask too."""
    pieces = torch.arange(TOKENS).split([7, 20, 3, 30, 11, 2, 23])
    layout = ringcp.Layout("pieces", TOKENS, tuple(torch.cat(pieces[rank::world]) for rank in range(world)))
    plan = make_plan(ringcp.Mask(tokens=TOKENS, **MASKS[name]), layout, rank)
    for hop in (hop for hop in plan.hops if hop.work is not None):
        assert hop.work.tiles(kernels.named("eager").block) and hop.work.calls and hop.work.simple in (True, False)
        assert hop.work.causal in (True, False) and hop.work._placed is not None
    assert plan.parts and plan.key_parts
    return Ring(plan, Deaf(rank, world) if world > 1 else ringcp.exchange.Alone(), kernels.named(kernel), 0.25)
