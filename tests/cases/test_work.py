"""Area, load, need, dead rows and keys, and the picture against counting on the dense mask."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import generate, picture, work
from cases.case import Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding


def dense(case, rows):
    i = torch.arange(rows.tokens)
    return case.mask.allowed(rows, i, i).expand(rows.batch, rows.groups, -1, -1)


@st.composite
def layouts(draw, tokens, world, batch):
    """Any assignment of positions to ranks, some without any, with fillers, shared by the rows or one a row."""
    per_row = []
    for _ in range(draw(st.sampled_from([1, batch]))):
        owner = torch.tensor(draw(st.lists(st.integers(0, world - 1), min_size=tokens, max_size=tokens)))
        per_row.append([(owner == rank).nonzero().flatten() for rank in range(world)])
    if len(per_row) == 1:
        return per_row[0]
    held = []
    for rank in range(world):
        length = max(len(row[rank]) for row in per_row)
        held.append(torch.stack([torch.nn.functional.pad(row[rank], (0, length - len(row[rank])), value=-1)
                                 for row in per_row]))
    return held


@settings(max_examples=80, deadline=None)
@given(generate.strategy(max_tokens=40), st.data())
def test_work_is_what_counting_gives(case, data):
    rows, shape = case.rows(), case.shape
    layout = data.draw(layouts(shape.tokens, case.world, shape.batch))
    found = work.work(case.mask, rows, shape, layout)
    allowed, owner = dense(case, rows), work.owners(layout, rows)
    heads = shape.heads // shape.kv_heads
    assert found.area == int(allowed.sum()) * heads == work.area(case.mask, rows, shape.heads)
    for rank in range(case.world):
        mine = allowed & (owner == rank)[:, None, :, None]
        assert found.by_rank[rank] == int(mine.sum()) * heads
        for other in range(case.world):
            assert found.by_owner[rank][other] == int((mine & (owner == other)[:, None, None]).sum()) * heads
        assert found.need[rank] == int((mine.any(1).any(1) & (owner != rank)).sum())


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=40))
def test_dead_rows_and_dead_keys(case):
    rows = case.rows()
    allowed = dense(case, rows)
    assert torch.equal(work.dead_rows(case.mask, rows), ~allowed.any(3))
    assert torch.equal(work.dead_keys(case.mask, rows), ~allowed.any(2))


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=50), st.integers(1, 60))
def test_the_picture_is_the_mean_of_its_cells(case, cells):
    rows = case.rows()
    share = picture.allowed_share(case.mask, rows, cells, row=rows.batch - 1)
    edge = picture.edges(rows.tokens, cells).tolist()
    assert share.shape == (min(cells, rows.tokens),) * 2
    mean = dense(case, rows)[-1].double().mean(0)
    total = mean.cumsum(0).cumsum(1)
    total = torch.nn.functional.pad(total, (1, 0, 1, 0))[edge][:, edge]
    size = torch.tensor(edge).diff()
    assert torch.allclose(share, total.diff(dim=0).diff(dim=1) / (size[:, None] * size))


def test_the_owner_of_a_cell_is_the_rank_with_most_of_it():
    rows = Mask().rows(1, 12, 1)
    layout = [torch.tensor([0, 1, 2, 3, 11]), torch.tensor([4, 5, 6, 7, 8, 9, 10])]
    assert picture.owner(layout, rows, cells=3).tolist() == [0, 1, 1]


def test_need_in_bytes_and_arithmetic_follow_the_spec():
    mask = Mask((Causal(), Documents.packed([6, 2]), Padding((((0, 1),),))))
    shape = Shape(tokens=8, heads=4, kv_heads=2, head_dim=8, value_dim=4)
    found = work.work(mask, mask.rows(1, 8, 2), shape, [torch.arange(4), torch.arange(4, 8)])
    assert found.area == 4 * (15 + 3)
    assert found.need == (0, 3)
    assert found.need_bytes(shape, itemsize=2) == [0, 3 * 12 * 2 * 2]
    assert found.flops(shape) == (2 * 72 * 12, 2 * 72 * (24 + 8))


def test_zigzag_is_even_where_contiguous_is_not():
    mask, shape = Mask((Causal(),)), Shape(tokens=64)
    found = {name: work.work(mask, mask.rows(1, 64, 2), shape, parts).by_rank
             for name, parts in work.standard(64, 4).items()}
    assert found["zigzag"] == (2080,) * 4 and found["contiguous"] == (544, 1568, 2592, 3616)


def test_a_layout_that_loses_a_token_is_caught():
    with pytest.raises(AssertionError, match="leaves positions out"):
        work.owners([torch.tensor([0, 1]), torch.tensor([3])], Mask().rows(1, 4, 1))


def test_long_rows_are_counted_from_intervals():
    """32k tokens would take a gigabyte and seconds as a dense mask; a third of the time allowed is usual."""
    tokens = 32768
    mask = Mask((Causal(), Documents.packed([1000] * 32 + [768])))
    start = time.perf_counter()
    rows = mask.rows(1, tokens, 2)
    found = work.work(mask, rows, Shape(tokens=tokens), list(torch.arange(tokens).chunk(4)))
    assert found.area == 4 * (32 * 1000 * 1001 // 2 + 768 * 769 // 2)
    assert time.perf_counter() - start < 5
