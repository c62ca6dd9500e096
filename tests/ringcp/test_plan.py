"""Plans move exactly the needed keys, agree between ranks, and cover every allowed pair once."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from ringcp.plan import make_plan
from tests.ringcp.ring_explicit import allowed
from tests.ringcp.ring_masks import layouts, masks


@settings(max_examples=80, deadline=None)
@given(st.data(), masks(), st.integers(1, 4))
def test_plans_agree_between_ranks_and_send_only_what_is_attended(data, mask, world):
    layout = data.draw(layouts(mask.tokens, world))
    plans = [make_plan(mask, layout, rank) for rank in range(world)]
    pairs = allowed(mask).any(1)
    for rank, plan in enumerate(plans):
        for hop in plan.hops:
            source, target = (rank - hop.distance) % world, (rank + hop.distance) % world
            if hop.distance == 0:
                continue
            given_there = [other.give for other in plans[source].hops if other.distance == hop.distance]
            sent = len(given_there[0]) if given_there and given_there[0] is not None else 0
            assert sent == hop.arriving == attended(pairs, layout, rank, source)
            assert (hop.work is None) == (hop.arriving == 0)
            assert (0 if hop.give is None else len(hop.give)) == attended(pairs, layout, target, rank)


@settings(max_examples=80, deadline=None)
@given(st.data(), masks(), st.integers(1, 4))
def test_the_work_of_all_ranks_is_the_area_of_the_mask(data, mask, world):
    layout = data.draw(layouts(mask.tokens, world))
    area = sum(int((hop.work.spans[..., 1] - hop.work.spans[..., 0]).sum())
               for rank in range(world) for hop in make_plan(mask, layout, rank).hops if hop.work)
    assert area == int(allowed(mask).sum())


@settings(max_examples=60, deadline=None)
@given(masks(), st.integers(1, 9))
def test_tiles_hold_the_work_and_full_tiles_need_no_mask(mask, block):
    layout = ringcp.make_layout("contiguous", mask.tokens, 1)
    pairs = allowed(mask)
    seen = torch.zeros_like(pairs)
    for hop in make_plan(mask, layout, 0).hops:
        for tile in hop.work.tiles(block):
            inside = hop.work.allowed(tile)
            assert inside.any()
            assert inside.all() == tile.full
            seen[:, :, tile.queries, tile.keys] = inside
    assert torch.equal(seen, pairs)


def attended(pairs: torch.Tensor, layout: ringcp.Layout, receiver: int, owner: int) -> int:
    """Distinct keys of `owner` that some query of `receiver` attends, from the dense matrix."""
    queries, keys = (part[part >= 0] for part in (layout.positions[receiver], layout.positions[owner]))
    return int(pairs[:, queries][:, :, keys].any(1).sum())


def test_plans_are_shared_by_content():
    layout = ringcp.make_layout("zigzag", 8, 2)
    one, two = (ringcp.Mask(tokens=8, documents=torch.tensor([[1] * 3 + [2] * 5])) for _ in range(2))
    assert make_plan(one, layout, 0) is make_plan(two, ringcp.make_layout("zigzag", 8, 2), 0)
    assert make_plan(one, layout, 0) is not make_plan(ringcp.Mask(tokens=8), layout, 0)
