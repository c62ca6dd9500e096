"""A copy of ringcp is its own: what is changed in it changes nothing elsewhere."""

import ast
import sys

import pytest
import torch

import ringcp
from harness.sabotage.copies import Copy, source


def attended(package):
    """Attention of one rank over four tokens."""
    x = torch.arange(8, dtype=torch.float64).view(1, 1, 4, 2)
    return package.ring_attention(x, x, x, mask=package.Mask(4), layout="contiguous")[0]


def test_a_copy_computes_the_same_in_modules_of_its_own():
    copy = Copy()
    assert torch.equal(attended(copy.package), attended(ringcp))
    assert copy.package.Mask is not ringcp.Mask and copy.modules["merge"].Merged is copy.modules["attention"].Merged
    assert not any(name.startswith("ringcp_") for name in sys.modules)


@pytest.mark.parametrize("path", ["merge.Merged.result", "attention.Ring.forward"])
def test_a_replaced_part_is_called_instead(path):
    copy = Copy()
    copy.replace(path, lambda original, *given: tuple(2 * part for part in original(*given)))
    assert torch.equal(attended(copy.package), 2 * attended(ringcp))
    assert torch.equal(attended(Copy().package), attended(ringcp))


def test_a_function_is_replaced_wherever_it_was_imported():
    copy = Copy()
    copy.replace("spans.spans", lambda original, mask: original(mask) * 0)
    assert copy.modules["plan"].spans is copy.modules["spans"].spans
    assert not attended(copy.package).any()


def test_a_changed_tree_stands_for_the_original():
    def change(below):
        changed = source(below).replace('"contiguous": contiguous', '"lying": contiguous')
        return ast.parse(changed) if below == "layout" else None

    assert Copy(change).package.make_layout("lying", 4, 1).world == 1
    with pytest.raises(ValueError, match="unknown layout"):
        Copy().package.make_layout("lying", 4, 1)
