"""Masks against explicit loops over (i, j) written from the text of SPEC A1 to A7."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import generate, intervals
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window

VARIANTS = ("window.inclusive", "window.symmetric", "window.compacted", "documents.runs", "vision.bounded",
            "vision.none")


def run_numbers(values):
    numbers = []
    for place, value in enumerate(values):
        same = place and value == values[place - 1]
        numbers.append(numbers[-1] if same else place)
    return numbers


def vision_groups(types):
    """Number of the maximal run of vision tokens, None for text."""
    groups = []
    for place, kind in enumerate(types):
        inside = place and types[place - 1] in (1, 2)
        groups.append(None if kind not in (1, 2) else groups[-1] if inside else place)
    return groups


class Row:
    """One batch row and one group, as SPEC speaks of them."""

    def __init__(self, mask, rows, b, g):
        self.rule = {rule.name: rule for rule in mask.rules}
        tokens = range(rows.tokens)
        ids = rows.documents[b].tolist() if rows.documents is not None else [1] * rows.tokens
        mask_pads = rows.padding[b].tolist() if rows.padding is not None else [False] * rows.tokens
        self.padded = [ids[t] <= 0 or mask_pads[t] for t in tokens]
        by_runs = "documents" in self.rule and self.rule["documents"].variant == "runs"
        self.document = run_numbers(ids) if by_runs else ids
        types = rows.token_types[b].tolist() if rows.token_types is not None else [0] * rows.tokens
        self.group = vision_groups(types)
        self.region = rows.token_regions[b].tolist() if rows.token_regions is not None else None
        self.selected = rows.selected[b, g].tolist() if rows.selected is not None else None

    def distance(self, i, j):
        """Unpadded tokens of i's document from j to i, i's own left out."""
        sign, low, high = (1, j, i) if j <= i else (-1, i, j)
        return sign * sum(self.document[t] == self.document[i] and not self.padded[t] for t in range(low, high))

    def near(self, i, j):
        if "window" not in self.rule:
            return True
        size, variant = self.rule["window"].size, self.rule["window"].variant
        if variant == "symmetric":
            return abs(i - j) < size
        if variant == "inclusive":
            return i - j <= size
        return (self.distance(i, j) if variant == "compacted" else i - j) < size

    def edge(self, i, j):
        causal = j <= i or "causal" not in self.rule
        together = self.group[i] is not None and self.group[i] == self.group[j]
        variant = self.rule["vision"].variant if "vision" in self.rule else "none"
        if variant == "none":
            return causal and self.near(i, j)
        if variant == "bounded":
            return self.near(i, j) and (causal or together)
        return (causal and self.near(i, j)) or together

    def allowed(self, i, j):
        selected = self.region is None or self.region[j] in self.selected[i]
        return (self.edge(i, j) and selected and self.document[i] == self.document[j]
                and not self.padded[i] and not self.padded[j])


def by_loops(mask, rows):
    tokens = range(rows.tokens)
    made = [[Row(mask, rows, b, g) for g in range(rows.groups)] for b in range(rows.batch)]
    return torch.tensor([[[[row.allowed(i, j) for j in tokens] for i in tokens] for row in groups] for groups in made])


def whole(mask, rows):
    i = torch.arange(rows.tokens)
    return mask.allowed(rows, i, i).expand(rows.batch, rows.groups, -1, -1)


@settings(max_examples=150, deadline=None)
@given(generate.strategy(max_tokens=17), st.sets(st.sampled_from(VARIANTS)))
def test_allowed_is_the_text_of_the_spec(case, declared):
    mask, rows = case.mask.under(frozenset(declared)), case.rows()
    assert torch.equal(whole(mask, rows), by_loops(mask, rows))


@settings(max_examples=200, deadline=None)
@given(generate.strategy(max_tokens=80), st.sets(st.sampled_from(VARIANTS)))
def test_keys_are_allowed_as_intervals(case, declared):
    mask, rows = case.mask.under(frozenset(declared)), case.rows()
    keys = mask.keys(rows, torch.arange(rows.tokens))
    held = intervals.contains(keys, torch.arange(rows.tokens)).expand(rows.batch, rows.groups, -1, -1)
    assert torch.equal(held, whole(mask, rows))
    start, end = keys.unbind(-1)
    assert (end >= start).all() and (start >= 0).all() and (end <= rows.tokens).all()
    later = start[..., 1:] > end[..., :-1]
    assert (later | (end[..., 1:] == start[..., 1:])).all(), "intervals touch or are out of order"


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=60), st.data())
def test_every_rule_alone_agrees_with_its_keys_on_any_queries(case, data):
    rows = case.rows()
    i = torch.tensor(data.draw(st.lists(st.integers(0, rows.tokens - 1), min_size=1, max_size=9)))
    j = torch.arange(rows.tokens)
    for rule in case.mask.rules:
        shape = (rows.batch, rows.groups, len(i), rows.tokens)
        held = intervals.contains(rule.keys(rows, i), j)
        assert torch.equal(held.expand(shape), rule.allowed(rows, i, j).expand(shape)), rule


def _looks_ahead(rule):
    """A router whose last block of queries is cut chooses for fewer queries than the whole row's did."""
    return isinstance(rule, Regions) and isinstance(rule.chosen, Router)


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=40))
def test_a_slice_is_the_corner_of_the_whole(case):
    mask = Mask(tuple(rule for rule in case.mask.rules if not _looks_ahead(rule)))
    tokens = max(1, case.shape.tokens * 2 // 3)
    batch, groups = case.shape.batch, case.shape.kv_heads
    corner = whole(mask, mask.rows(batch, case.shape.tokens, groups))[..., :tokens, :tokens]
    assert torch.equal(whole(mask.sliced(tokens), mask.sliced(tokens).rows(batch, tokens, groups)), corner)


@settings(max_examples=60, deadline=None)
@given(generate.strategy(max_tokens=40), st.integers(1, 90))
def test_a_stretched_mask_fits_its_rows(case, tokens):
    stretched = case.mask.stretched(case.shape.tokens, tokens)
    rows = stretched.rows(case.shape.batch, tokens, case.shape.kv_heads)
    assert whole(stretched, rows).shape[-1] == tokens
    back = case.mask.stretched(case.shape.tokens, case.shape.tokens)
    assert back == case.mask


def test_declared_variants_hold_only_where_the_spec_says_so():
    image = Vision((((1, 8),),))
    declared = frozenset({"vision.bounded", "vision.none", "window.symmetric"})
    sliding = Mask((Causal(), Window(3), image)).under(declared)
    full = Mask((Causal(), image)).under(declared)
    assert str(sliding) == "causal & vision.bounded & window(3)"
    assert str(full) == "causal & vision.none"
    assert str(Mask((Window(3),)).under(declared)) == "window.symmetric(3)"
    assert Mask((Window(3, variant="inclusive"),)).under(declared).rules[0].variant == "inclusive"


def test_a_mask_tells_documents_as_their_variant_reads_the_ids():
    ids = ((1, 2), (2, 1), (1, 2))
    rows = Mask((Documents((ids,)),)).rows(1, 5, 1)
    assert Mask((Documents((ids,)),)).documents(rows).tolist() == [[1, 1, 2, 1, 1]]
    assert Mask((Documents((ids,), variant="runs"),)).documents(rows).tolist() == [[0, 0, 1, 2, 2]]
    assert Mask().documents(rows) is None
