"""Promises beside right numbers: layouts, untouched inputs, refilled metadata."""

import pytest
import torch

from harness import contract
from harness.adapters.dense import Dense
from harness.watch import Untouched
from tests.harness.samples import causal, mixed

NOTHING = torch.empty(0, dtype=torch.int64)


def breach(parts, tokens=8, world=2):
    layout = [torch.tensor(part) if part else NOTHING for part in parts]
    return contract.layout_breach(layout, causal(world, tokens=tokens), world, Dense())


@pytest.mark.parametrize("parts", [[[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 7, 1, 6, -1], [2, 3, 4, 5]],
                                   [[0, 1, 2, 3, 4, 5, 6, 7], []]])
def test_honest_layouts_pass(parts):
    assert breach(parts) is None


@pytest.mark.parametrize(("parts", "words"), [
    ([[0, 1, 2, 3], [4, 5, 6, 6]], "exactly once"),
    ([[0, 1, 2], [4, 5, 6, 7]], "exactly once"),
    ([[0, 1, 2, 3], [4, 5, 6, 8]], "outside"),
    ([[0, 1, 2, 3], [4, 5, 6, -2]], "outside"),
    ([[0, 1, 2, 3, 4, 5, 6, 7]], "shape"),
    ([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]], "shape"),
])
def test_broken_layouts_are_named(parts, words):
    assert words in breach(parts).headline


def test_one_rank_may_not_hold_everything_unless_declared():
    parts = [torch.arange(512), NOTHING]
    assert "share" in contract.layout_breach(parts, causal(2, tokens=512), 2, Dense()).headline
    declared = Dense()
    declared.uneven = True
    assert contract.layout_breach(parts, causal(2, tokens=512), 2, declared) is None


def test_untouched_sees_one_changed_bit_and_nan_alike():
    x, y = torch.tensor([1.0, float("nan")]), torch.zeros(2, 3).t()
    guard = Untouched(x=x, y=y)
    assert guard.breaches(0) == []
    y[1, 1] = -0.0
    assert [found.headline for found in guard.breaches(1)] == ["y was modified on rank 1"]


def test_a_refilled_copy_leaves_the_original_alone():
    rows = mixed().rows()
    copy = contract.copied(rows)
    contract.refill(copy)
    assert bool((copy.documents == 0).all()) and bool((rows.documents > 0).any())
    assert torch.equal(copy.padding, ~rows.padding)
