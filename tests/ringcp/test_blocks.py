"""Tiles of a mask, against every pair of it."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from ringcp.blocks import blocks, listed
from ringcp.spans import spans
from tests.ringcp.ring_explicit import allowed
from tests.ringcp.ring_masks import masks


@settings(max_examples=100, deadline=None)
@given(masks(), st.integers(1, 9), st.integers(1, 9))
def test_a_tile_is_full_when_all_of_its_pairs_are_allowed_and_partial_when_some_are(mask, rows, columns):
    found, pairs = blocks(spans(mask).clamp(0, mask.tokens), mask.tokens, rows, columns), allowed(mask)
    some = cut(pairs, rows, columns, False).flatten(-2).any(-1)
    every = cut(pairs, rows, columns, True).flatten(-2).all(-1)
    assert torch.equal(found.full, every)
    assert torch.equal(found.partial, some & ~every)


def cut(pairs, rows, columns, fill):
    """[B, G, tiles down, tiles across, rows, columns]."""
    down, across = -pairs.shape[2] % rows, -pairs.shape[3] % columns
    whole = pad(pairs, (0, across, 0, down), value=fill)
    return whole.unflatten(3, (-1, columns)).unflatten(2, (-1, rows)).transpose(3, 4)


def test_what_is_set_comes_first_in_rising_order():
    count, order = listed(torch.tensor([[False, True, False, True], [True, False, False, False]]))
    assert count.tolist() == [2, 1] and order[0, :2].tolist() == [1, 3] and order[1, 0] == 0
    assert count.dtype == order.dtype == torch.int32
