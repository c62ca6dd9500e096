"""Interval sets against Python sets."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from cases import intervals

SETS = st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=4), min_size=1, max_size=3)


def tensor(sets):
    """Disjoint sorted intervals of the union of any given ones."""
    member = torch.zeros(len(sets), 21, dtype=torch.bool)
    for number, spans in enumerate(sets):
        for start, end in spans:
            member[number, start:end] = True
    return intervals.from_bool(member), member


@given(SETS)
def test_from_bool_and_contains_are_inverse(sets):
    found, member = tensor(sets)
    assert torch.equal(intervals.contains(found, torch.arange(21)), member)
    assert torch.equal(intervals.count(found), member.sum(-1))


@given(SETS, SETS)
def test_union_and_intersection(some, others):
    size = min(len(some), len(others))
    (a, in_a), (b, in_b) = tensor(some[:size]), tensor(others[:size])
    assert torch.equal(intervals.union(a, b), intervals.from_bool(in_a | in_b))
    assert torch.equal(intervals.intersect(a, b), intervals.from_bool(in_a & in_b))


def test_an_interval_that_ends_before_it_begins_is_empty():
    assert intervals.single(torch.tensor([3, 5]), torch.tensor(4)).tolist() == [[[3, 4]], [[0, 0]]]
