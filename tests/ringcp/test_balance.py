"""Balanced layouts hold every position once, in equal numbers, and beat zigzag and contiguous by their own cost."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from cases import catalogue
from cases.topology import ORDERS, Topology
from harness.adapters.ring import ring_layout, ring_mask
from ringcp.balance import balanced_layout, burden
from tests.ringcp.ring_explicit import allowed
from tests.ringcp.ring_masks import layouts, masks

PACKS = ("real/code", "real/prose", "real/images", "real/code-4k", "real/prose-4k", "real/images-4k",
         "real/code-8k", "real/prose-8k", "real/images-8k", "real/code-32k", "real/prose-32k", "real/images-32k")


@settings(max_examples=80, deadline=None)
@given(masks(max_tokens=40), st.integers(1, 5))
def test_every_position_stands_once_and_no_rank_holds_more_than_its_share(mask, world):
    layout = balanced_layout(mask, world)
    assert max(part.shape[-1] for part in layout.positions) <= -(-mask.tokens // world)
    for row in range(mask.batch):
        held = torch.cat([part.expand(mask.batch, -1)[row] for part in layout.positions])
        assert held.sort().values.tolist() == list(range(mask.tokens))
    assert all(bool((part.diff(dim=-1) > 0).all()) for part in layout.positions)


@settings(max_examples=60, deadline=None)
@given(masks(max_tokens=40), st.integers(1, 5))
def test_it_costs_no_more_than_zigzag_and_contiguous(mask, world):
    cost = burden(mask, balanced_layout(mask, world).positions).cost
    for name in ("zigzag", "contiguous"):
        assert cost <= burden(mask, ringcp.make_layout(name, mask.tokens, world).positions).cost


@settings(max_examples=30, deadline=None)
@given(masks(max_tokens=40), st.integers(1, 5))
def test_the_same_mask_gives_the_same_layout_when_it_is_made_again(mask, world):
    first = balanced_layout(mask, world)
    assert balanced_layout.__wrapped__(mask, world) == first


@settings(max_examples=80, deadline=None)
@given(st.data(), masks(), st.integers(1, 4))
def test_the_burden_is_what_the_dense_mask_says(data, mask, world):
    layout = data.draw(layouts(mask.tokens, world))
    found, pairs = burden(mask, layout.positions), allowed(mask)
    seen = pairs.any(1)
    held = [part[part >= 0] for part in layout.positions]
    assert found.area == tuple(int(pairs[:, :, own].sum()) for own in held)
    sources = [[int(seen[:, own][:, :, other].any(1).sum()) for other in held] for own in held]
    assert found.keys == tuple(sum(source) - source[rank] for rank, source in enumerate(sources))
    assert found.peers == tuple(sum(keys > 0 for other, keys in enumerate(source) if other != rank)
                                for rank, source in enumerate(sources))


@pytest.mark.parametrize("world", [2, 4, 8])
@pytest.mark.parametrize("name", PACKS)
def test_real_packs_are_even(name, world):
    mask = real_mask(name)
    layout = balanced_layout(mask, world)
    assert burden(mask, layout.positions).imbalance <= 1.05
    assert {part.shape[-1] for part in layout.positions} == {mask.tokens // world}


def test_rows_of_their_own_documents_get_positions_of_their_own_and_share_the_area():
    ids = torch.cat([torch.full((length,), number) for number, length in enumerate((700, 100, 100, 100), 1)])
    mask = ringcp.Mask(tokens=1000, batch=2, documents=torch.stack([ids, ids.flip(0)]))
    layout = balanced_layout(mask, 4)
    assert [part.shape for part in layout.positions] == [(2, 250)] * 4
    assert burden(mask, layout.positions).imbalance <= 1.05


def test_documents_that_fit_stay_whole():
    mask = ringcp.Mask(tokens=2048, documents=torch.arange(16).repeat_interleave(128)[None] + 1)
    found = burden(mask, balanced_layout(mask, 4).positions)
    assert (found.imbalance, sum(found.keys), found.cuts) == (1.0, 0, 0)


def test_a_long_window_stays_contiguous():
    layout = balanced_layout(ringcp.Mask(tokens=8192, window=64), 4)
    assert layout.positions[1].tolist() == list(range(2048, 4096))


def test_it_is_made_for_a_mask_and_for_ranks():
    with pytest.raises(ValueError, match="made for a mask"):
        ringcp.make_layout("balanced", 8, 2)
    with pytest.raises(ValueError, match="at least one rank, not 0"):
        balanced_layout(ringcp.Mask(tokens=8), 0)


def test_attention_knows_it_by_name():
    mask = ringcp.Mask(tokens=8, documents=torch.tensor([[1] * 5 + [2] * 3]))
    q, k, v = torch.randn(3, 1, 2, 8, 4, dtype=torch.float64).unbind()
    alone = ringcp.exchange.Alone()
    named, given_one = (ringcp.ring_attention(q, k, v, mask=mask, layout=layout, group=alone)[0]
                        for layout in ("balanced", balanced_layout(mask, 1)))
    assert torch.equal(named, given_one)


@pytest.mark.parametrize("order", ORDERS)
def test_chunks_are_handed_out_and_ordered_row_by_row(order):
    case = catalogue.select("packed/two-rows", (3,), ("balanced",), ("fp64",))[0]
    plain, made = (ring_layout(replace(case, topology=Topology(order=how)), 3) for how in ("ranked", order))
    assert sorted(rows(made)) == sorted(rows(plain))


def rows(layout: ringcp.Layout) -> list[list[list[int]]]:
    """What each rank holds of each row, sorted, without filler slots."""
    return [[[at for at in sorted(row) if at >= 0] for row in part.tolist()] for part in layout.positions]


def real_mask(name: str) -> ringcp.Mask:
    case = next(one for one in catalogue.scenarios() if one.name == name).at(2, "balanced", "fp64")
    return ring_mask(case, case.rows())
