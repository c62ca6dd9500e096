"""The flex kernel without its compilation: its mask and tiles, and its gradients from other hops' out and lse."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcp.kernels import flex
from ringcp.kernels.eager import Eager
from ringcp.plan import make_plan
from tests.ringcp.ring_masks import layouts, masks
from tests.ringcp.ring_ranks import draw, ring
from tests.ringcp.test_banded import forward


def dense(q, k, v, scale, start, end, *_):
    """What flex computes, in differentiable plain operations."""
    key, each = torch.arange(k.shape[2]), q.shape[1] // start.shape[1]
    allowed = ((key >= start[..., None]) & (key < end[..., None])).any(-2).repeat_interleave(each, 1)
    live = allowed.any(-1, keepdim=True)
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT * scale).masked_fill(~allowed, -torch.inf).masked_fill(~live, 0.0)
    lse = scores.logsumexp(-1).masked_fill(~live[..., 0], -torch.inf)
    return (scores.softmax(-1) @ v).masked_fill(~live, 0.0), lse


@settings(max_examples=10, deadline=None)
@given(st.data(), masks(), st.integers(1, 3))
def test_every_hop_agrees_with_the_eager_kernel(data, mask, world):
    layout = data.draw(layouts(mask.tokens, world))
    for rank in range(world):
        for hop in make_plan(mask, layout, rank).hops:
            if hop.work is not None:
                q, k, v = (torch.randn(mask.batch, heads * mask.groups, tokens, 16) for heads, tokens in
                           ((2, hop.work.queries), (1, hop.work.keys), (1, hop.work.keys)))
                out, lse = flex.attend(q, k, v, 0.3, *flex.index(hop.work))
                wanted = forward(Eager(), q, k, v, hop.work, 0.3)
                torch.testing.assert_close(out.transpose(1, 2).flatten(0, 1), wanted[0])
                torch.testing.assert_close(lse.transpose(0, 1).flatten(1), wanted[1])


@pytest.mark.parametrize("world", [1, 2, 3])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_gradients_follow_from_the_out_and_lse_of_all_hops(world, data):
    mask = data.draw(masks())
    layout, numbers = data.draw(layouts(mask.tokens, world)), draw(mask, dtype=torch.float32)
    wanted = ring(*numbers, mask, layout, kernel="eager")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "_attend", dense)
        patch.setattr(flex.Flex, "refuses", lambda self, demand: None)
        found = ring(*numbers, mask, layout, kernel="flex")
    for name in ("out", "lse", "dq", "dk", "dv"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=1e-3, atol=1e-4)
