"""Bands hold exactly the spans they were made from, and masks of one kind need few calls."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from ringcp.plan import make_plan
from ringcp.segments import UNBOUNDED, layers
from tests.ringcp.ring_masks import layouts, masks


def seen(spans: torch.Tensor, keys: int) -> tuple[torch.Tensor, int]:
    """[B * L, B * K] how often bands allow each pair, by the definition of a band; and how many calls they need."""
    rows, _, queries, _, _ = spans.shape
    pairs = torch.zeros(rows * queries, rows * keys, dtype=torch.int64)
    found = layers(spans, keys)
    for bands in (bands for layer in found for bands in layer):
        columns = bands.query, bands.key, bands.queries, bands.keys
        for first, key, n, m in zip(*(x.tolist() for x in columns), strict=True):
            t, j = torch.arange(n)[:, None] + m - n, torch.arange(m)
            inside = (bands.left == UNBOUNDED) | (j >= t - bands.left)
            inside = inside & ((bands.right == UNBOUNDED) | (j <= t + bands.right))
            pairs[first:first + n, key:key + m] += inside
    return pairs, sum(len(layer) for layer in found)


@settings(max_examples=200, deadline=None)
@given(st.data(), masks(), st.integers(1, 3))
def test_bands_allow_each_pair_of_the_spans_once_and_nothing_else(data, mask, world):
    layout = data.draw(layouts(mask.tokens, world))
    for rank in range(world):
        for hop in make_plan(mask, layout, rank).hops:
            if hop.work is None or hop.work.spans.shape[1] > 1:
                continue
            spans, keys = hop.work.spans, hop.work.keys
            key = torch.arange(keys)
            wanted = ((key >= spans[:, 0, ..., :1]) & (key < spans[:, 0, ..., 1:])).sum(2)
            assert torch.equal(seen(spans, keys)[0], torch.block_diag(*wanted))


@pytest.mark.parametrize(("mask", "layout", "calls"), [
    (ringcp.Mask(tokens=64), "zigzag", [1, 1]),
    (ringcp.Mask(tokens=64), "striped", [1, 1]),
    (ringcp.Mask(tokens=64, causal=False), "contiguous", [1, 1]),
    (ringcp.Mask(tokens=64, window=7), "contiguous", [1]),
    (ringcp.Mask(tokens=64, documents=torch.arange(64)[None] // 5 + 1), "zigzag", [1, 1]),
    (ringcp.Mask(tokens=64, documents=torch.arange(64)[None] // 20 + 1, window=8), "contiguous", [1]),
    (ringcp.Mask(tokens=64, window=9, window_rule="symmetric", causal=False), "contiguous", [2, 1]),
])
def test_common_masks_need_one_call_a_hop(mask, layout, calls):
    plan = make_plan(mask, ringcp.make_layout(layout, 64, 2), 0)
    assert [seen(hop.work.spans, hop.work.keys)[1] for hop in plan.hops if hop.work] == calls
