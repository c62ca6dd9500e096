"""A step holds no more than docs/design.md allows, on every rank, and nothing that grows with the world.

On a CPU with a kernel that computes nothing, so that what is held is the ring's; on a GPU with every kernel, one rank
at a time, whose transfers are made up.
"""

import pytest
import torch

import ringcp
from ringcp import kernels
from ringcp.attention import Ring
from ringcp.exchange import Alone
from ringcp.kernels.demand import Demand
from ringcp.plan import make_plan
from tests.ringcp.ring_memory import Deaf, Hollow, allowed_bytes, size, step_bytes, workspace

MASKS = {
    "causal": lambda tokens: {},
    "full": lambda tokens: {"causal": False},
    "documents": lambda tokens: {"documents": torch.arange(tokens)[None] * 7 // tokens + 1},
    "window": lambda tokens: {"window": tokens // 12},
    "images": lambda tokens: {"window": tokens // 12,
                              "token_types": ((torch.arange(tokens) * 20 // tokens) % 3 == 1).long()[None]},
}
SLACK = 16 * 2**20
"""The allocator rounds blocks above 1 MiB up by as much, of which a step has up to a dozen."""
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
KERNELS = [pytest.param("hollow", 384, "cpu"),
           *(pytest.param(name, 24576 if name == "eager" else 49152, "cuda", marks=gpu)
             for name in ("fa4", "fa2", "cudnn", "flex", "ffpa", "eager"))]


@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("kernel, tokens, device", KERNELS)
def test_a_step_stays_within_the_rule(kernel, tokens, device, name, layout):
    if kernel == "flex" and (name, layout) != ("images", "contiguous"):
        pytest.skip("compiles every hop anew, for minutes: once is enough")
    for world in (1, 2, 3) if device == "cuda" else (1, 2, 3, 5, 8):
        for rank in sorted({0, world // 2, world - 1}):
            ring, tensors = made(kernel, name, layout, world, rank, tokens, device)
            for _ in range(2 if device == "cuda" else 1):
                found, limit = step_bytes(ring, *tensors), allowed_bytes(ring, *tensors)
            told(kernel, name, layout, world, rank, found, limit)
            assert found <= limit + (SLACK if device == "cuda" else 0), f"rank {rank} of {world}: {found} > {limit}"


@pytest.mark.parametrize("kernel, tokens, device", KERNELS)
def test_a_ring_of_one_holds_nothing_beside_its_kernel(kernel, tokens, device):
    ring, (q, k, v, dout) = made(kernel, "causal", "zigzag", 1, 0, tokens, device)
    for _ in range(2 if device == "cuda" else 1):
        found, own = step_bytes(ring, q, k, v, dout), workspace(ring, q, k, v, dout)
    told(kernel, "causal", "alone", 1, 0, found, own)
    assert found <= own + (SLACK if device == "cuda" else 0)


@pytest.mark.parametrize("name, layout", [("full", "contiguous"), ("causal", "zigzag")])
def test_a_ring_that_keeps_what_arrives_breaks_the_rule(name, layout):
    ring, tensors = made("hollow", name, layout, 8, 7 if name == "full" else 0, 384, "cpu", hoards=True)
    assert step_bytes(ring, *tensors) > allowed_bytes(ring, *tensors)


def test_what_a_step_holds_does_not_grow_with_the_world():
    hops = []
    for world in (4, 8, 16):
        ring, tensors = made("hollow", "full", "contiguous", world, 1, 1536, "cpu")
        hops.append(step_bytes(ring, *tensors) / size(tensors[1]))
    assert max(hops) - min(hops) < 0.2


def made(kernel: str, name: str, layout: str, world: int, rank: int, tokens: int, device: str, hoards: bool = False):
    """One rank's ring and its q, k, v and dout. Equally many heads of queries and keys leave the rule least room."""
    mask = ringcp.Mask(tokens=tokens, **MASKS[name](tokens))
    width = 512 if kernel == "ffpa" else 128 if device == "cuda" else 16
    one = Hollow() if kernel == "hollow" else kernels.named(kernel)
    if device == "cuda":
        reason = one.refuses(Demand(device, torch.bfloat16, width, width, 1, mask.rules, tokens))
        if reason:
            pytest.skip(f"kernel {kernel} {reason}")
    plan = make_plan(mask, ringcp.make_layout(layout, tokens, world), rank, device)
    exchange = Deaf(rank, world, hoards) if world > 1 else Alone()
    tensors = [torch.randn(1, plan.tokens, 2, width, device=device).bfloat16().transpose(1, 2) for _ in range(4)]
    return Ring(plan, exchange, one, width**-0.5), tensors


def told(kernel: str, name: str, layout: str, world: int, rank: int, found: int, limit: int) -> None:
    """For `pytest -s`."""
    print(f"MEMORY {kernel:6} {name:9} {layout:10} rank {rank} of {world}: {found / 2**20:8.1f} MiB, "
          f"{found / limit:.2f} of what is allowed")
