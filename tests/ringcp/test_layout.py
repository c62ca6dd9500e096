"""Layouts hold every position once, and cut and restore tensors exactly."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from ringcp.layout import LAYOUTS
from tests.ringcp.ring_masks import layouts


@settings(deadline=None)
@given(st.data(), st.integers(1, 40), st.integers(1, 8))
def test_every_position_stands_once_and_tensors_survive_the_round_trip(data, tokens, world):
    layout = data.draw(layouts(tokens, world))
    held = torch.cat(layout.positions)
    assert held[held >= 0].sort().values.tolist() == list(range(tokens))
    for dim, shape in ((1, (2, tokens)), (2, (2, 3, tokens, 4)), (2, (1, 2, tokens))):
        whole = torch.randn(shape)
        parts = [layout.shard(whole, rank, dim) for rank in range(world)]
        assert torch.equal(layout.unshard(parts, dim), whole)


@pytest.mark.parametrize("name", sorted(LAYOUTS))
@pytest.mark.parametrize(("tokens", "world"), [(1, 4), (5, 2), (17, 4), (32, 4)])
def test_padded_layouts_hold_equally_many_and_fill_with_zeros(name, tokens, world):
    layout = ringcp.make_layout(f"{name}-padded", tokens, world)
    assert len({len(part) for part in layout.positions}) == 1
    whole = torch.ones(1, 1, tokens, 2)
    assert sum(layout.shard(whole, rank).sum().item() for rank in range(world)) == whole.numel()


@pytest.mark.parametrize(("name", "first"), [
    ("contiguous", [0, 1, 2, 3]),
    ("zigzag", [0, 1, 6, 7]),
    ("striped", [0, 2, 4, 6]),
])
def test_the_first_of_two_ranks_holds(name, first):
    assert ringcp.make_layout(name, 8, 2).positions[0].tolist() == first


def test_layouts_may_differ_by_batch_row():
    rows = torch.tensor([[0, 1], [2, 3]]), torch.tensor([[3, 2], [0, 1]])
    layout = ringcp.Layout("by-row", 4, rows)
    whole = torch.arange(8).view(2, 1, 4, 1)
    assert layout.shard(whole, 1).flatten(1).tolist() == [[3, 2], [4, 5]]
    assert torch.equal(layout.unshard([layout.shard(whole, 0), layout.shard(whole, 1)]), whole)


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="unknown layout 'spiral': known are contiguous, zigzag, striped"):
        ringcp.make_layout("spiral", 8, 2)


@pytest.mark.parametrize("positions", [
    (torch.tensor([0, 0, 1, 2]),), (torch.tensor([0, 1]), torch.tensor([3])), (torch.tensor([-5, 0, 1, 2, 3]),),
    (torch.tensor([0, 1, 2, 4]),), (torch.tensor([[0, 1, 2, 3], [0, 1, 2, 2]]),),
])
def test_a_layout_that_misses_or_repeats_a_position_is_refused(positions):
    with pytest.raises(ValueError, match=r"does not hold each position 0\.\.3 exactly once"):
        ringcp.Layout("mine", 4, positions)


def test_a_layout_of_fractions_and_one_for_no_rank_are_refused():
    with pytest.raises(ValueError, match="wants an int64 tensor"):
        ringcp.Layout("mine", 2, (torch.tensor([0.0, 1.0]),))
    with pytest.raises(ValueError, match="at least one token and one rank, not 4 and 0"):
        ringcp.make_layout("zigzag", 4, 0)
