"""Key spans say exactly what the rules say."""

import pytest
import torch
from hypothesis import given, settings

import ringcp
from ringcp.spans import spans
from tests.ringcp.ring_explicit import allowed
from tests.ringcp.ring_masks import masks


@settings(max_examples=150, deadline=None)
@given(masks())
def test_spans_hold_exactly_the_allowed_keys(mask):
    found = spans(mask)
    key = torch.arange(mask.tokens)
    inside = (key >= found[..., 0, None]) & (key < found[..., 1, None])
    assert torch.equal(inside.any(-2), allowed(mask))
    assert (inside.sum(-2) <= 1).all(), "spans of one query overlap"


@pytest.mark.parametrize(("fields", "line"), [
    ({"window": 0}, "window counts"),
    ({"window": 2.5}, "window counts"),
    ({"tokens": 0}, "tokens is a whole number from 1"),
    ({"batch": -1}, "batch is a whole number from 1"),
    ({"causal": "no"}, "causal is True or False"),
    ({"documents": torch.full((1, 4), 0.5)}, "documents wants a tensor of integers, got torch.float32"),
    ({"padding": torch.zeros(1, 4).long()}, "padding wants a tensor of bool"),
    ({"documents": [[1, 1, 1, 1]]}, "documents wants a tensor of integers, got list"),
    ({"token_types": torch.full((1, 4), 3)}, "token_types are 0 for text"),
    ({"window": 2, "window_rule": "symmetric"}, "needs causal=False"),
    ({"window_rule": "sideways"}, "window_rule is 'sideways'"),
    ({"documents": torch.ones(1, 5, dtype=torch.int64)}, r"documents has shape \[1, 5\]"),
    ({"token_regions": torch.zeros(1, 4, dtype=torch.int64)}, "come together"),
    ({"token_regions": torch.tensor([[1, 0, 0, 0]]), "selected": torch.zeros(1, 1, 4, 1, dtype=torch.int64),
      "regions": 2}, "decrease"),
    ({"token_regions": torch.zeros(1, 4).long(), "selected": torch.full((1, 1, 4, 1), 3), "regions": 2}, "lie in 0..2"),
    ({"token_regions": torch.zeros(1, 4).long(), "selected": torch.tensor([[[[1, 0]] * 4]]), "regions": 2}, "sorted"),
])
def test_a_bad_mask_is_refused_with_the_field_named(fields, line):
    with pytest.raises(ValueError, match=line):
        ringcp.Mask(**({"tokens": 4} | fields))


def test_a_mask_keeps_its_metadata_when_the_caller_refills_it():
    documents = torch.tensor([[1, 1, 2, 2]])
    mask = ringcp.Mask(tokens=4, documents=documents)
    before = mask.digest
    documents.fill_(7)
    assert mask.documents.tolist() == [[1, 1, 2, 2]]
    assert mask.digest == before == ringcp.Mask(tokens=4, documents=torch.tensor([[1, 1, 2, 2]])).digest


@pytest.mark.parametrize("change", [
    {"causal": False}, {"window": 3}, {"window": 2, "window_rule": "inclusive"},
    {"padding": torch.tensor([[True] + [False] * 3])}, {"documents": torch.tensor([[1, 1, 1, 2]])},
    {"documents": torch.tensor([[1, 1, 2, 2]]), "document_rule": "runs"},
    {"token_types": torch.tensor([[0, 1, 1, 0]])},
    {"token_types": torch.tensor([[0, 1, 1, 0]]), "vision_rule": "bounded"},
])
def test_the_digest_tells_masks_apart(change):
    assert ringcp.Mask(tokens=4, **change) != ringcp.Mask(tokens=4)
