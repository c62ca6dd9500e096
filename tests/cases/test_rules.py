"""Rules on their own: small masks that can be read, and descriptions that do not fit."""

import pytest
import torch

from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window


def drawn(mask, tokens, batch=1, groups=1, row=0, group=0):
    """One row and group as lines of # and . that can be read."""
    i = torch.arange(tokens)
    allowed = mask.allowed(mask.rows(batch, tokens, groups), i, i).expand(batch, groups, tokens, tokens)
    return ["".join(".#"[cell] for cell in line) for line in allowed[row, group].tolist()]


def test_window_counts_the_query_itself():
    assert drawn(Mask((Causal(), Window(2))), 4) == ["#...", "##..", ".##.", "..##"]
    assert drawn(Mask((Causal(), Window(1))), 3) == ["#..", ".#.", "..#"]
    assert drawn(Mask((Causal(), Window(1, variant="inclusive"))), 3) == ["#..", "##.", ".##"]
    assert drawn(Mask((Window(1, variant="symmetric"),)), 2) == ["#.", ".#"]
    assert drawn(Mask((Window(1),)), 3) == ["###", ".##", "..#"]


def test_a_compacted_window_skips_pads_and_other_documents():
    documents, pads = Documents((((1, 2), (2, 1), (1, 3)),)), Padding((((1, 2),),))
    assert drawn(Mask((Causal(), documents, pads, Window(2, variant="compacted"))), 6) == [
        "#.....", "......", "..#...", "#..#..", "...##.", "....##"]


def test_documents_are_equal_by_value_or_by_runs():
    ids = (((1, 1), (2, 1), (1, 1), (0, 1)),)
    assert drawn(Mask((Documents(ids),)), 4) == ["#.#.", ".#..", "#.#.", "...."]
    assert drawn(Mask((Documents(ids, variant="runs"),)), 4) == ["#...", ".#..", "..#.", "...."]


def test_packed_fills_the_rest_of_a_row_with_padding():
    assert Documents.packed([2, 0, 1], [4], tokens=4).ids == (((1, 2), (2, 0), (3, 1), (0, 1)), ((1, 4),))


def test_touching_images_are_one_group_and_a_document_cuts_it():
    vision = Vision((((0, 1), (1, 1), (2, 2)),))
    assert drawn(Mask((Causal(), vision)), 4) == ["#...", "####", "####", "####"]
    assert drawn(Mask((Causal(), vision, Documents.packed([2, 2]))), 4) == ["#...", "##..", "..##", "..##"]


def test_vision_variants_differ_where_a_group_exceeds_the_window():
    types = (((1, 3), (0, 1)),)
    overlay = Mask((Causal(), Window(1), Vision(types)))
    bounded = Mask((Causal(), Window(1), Vision(types, variant="bounded")))
    none = Mask((Causal(), Window(1), Vision(types, variant="none")))
    assert drawn(overlay, 4) == ["###.", "###.", "###.", "...#"]
    assert drawn(bounded, 4) == ["###.", ".##.", "..#.", "...#"]
    assert drawn(none, 4) == ["#...", ".#..", "..#.", "...#"]


def test_regions_select_by_group_and_repeat_once():
    regions = Regions(((1, 0, 2, 1),), ((((2, (0,)), (2, (2, 2))), ((4, (3, 1)),)),))
    rows = regions.metadata(Mask().rows(1, 4, 2))
    assert rows["token_regions"].tolist() == [[0, 2, 2, 3]]
    assert rows["selected"].tolist() == [[[[0, 4], [0, 4], [2, 2], [2, 2]], [[1, 3]] * 4]]
    assert drawn(Mask((regions,)), 4, groups=2) == ["#...", "#...", ".##.", ".##."]
    assert drawn(Mask((regions,)), 4, groups=2, group=1) == ["...#"] * 4


def test_a_router_is_reproducible_and_keeps_its_promises():
    router = Router(seed=3, top_k=2, share=4, own=False)
    sizes = (16,) * 8
    chosen = router.select(sizes, row=0, group=1)
    assert chosen == router.select(sizes, row=0, group=1) != router.select(sizes, row=0, group=0)
    for first, (queries, picks) in zip(range(0, 128, 4), chosen):
        assert queries == 4 and len(picks) == min(2, first // 16) and all(pick < first // 16 for pick in picks)
    own = Router(seed=3, top_k=2, share=4).select(sizes, 0, 1)
    assert all(first // 16 in picks for first, (_, picks) in zip(range(0, 128, 4), own))


def test_canonical_regions_are_told_from_ragged_ones():
    assert Regions.even(100, 16, Router(1, 1)).canonical
    assert not Regions(((16, 8, 16),), Router(1, 1)).canonical
    assert not Regions(((8, 16),), Router(1, 1)).canonical


@pytest.mark.parametrize(("rule", "message"), [
    (Documents(), "documents: 0 rows are described, the batch has 1"),
    (Documents((((1, 5),),)), "documents of row 0: lengths add up to 5, not to 8 tokens"),
    (Documents((((1, 9), (2, -1)),)), "documents of row 0: a length is negative"),
    (Padding((((3, 9),),)), "padding of row 0: span 3..9 is outside 0..8"),
    (Vision((((1, 7),),)), "token types of row 0: lengths add up to 7"),
    (Regions(((4, 5),), Router(1, 1)), "regions of row 0: lengths add up to 9"),
    (Regions(((4, 4),), ((((8, (2,)),),),)), "names a region outside 0..1"),
    (Regions(((4, 4),), ((((7, (1,)),),),)), "selected regions of row 0: lengths add up to 7"),
    (Regions(((8,),), ((((8, (0,)),),) * 3,)), "3 groups are described, the batch has 2"),
])
def test_a_description_that_does_not_fit_is_refused_in_one_line(rule, message):
    with pytest.raises(ValueError, match="^[^\n]*$") as raised:
        Mask((rule,)).rows(1, 8, 2)
    assert message in str(raised.value)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Window(0), "size must be at least 1, got 0"),
    (lambda: Window(3, variant="wide"), "rule window has no variant 'wide': its variants are inclusive"),
    (lambda: Causal(variant="strict"), "rule causal has no variant 'strict': it has no variants"),
    (lambda: Vision((((3, 8),),)), "token types are 0, 1 and 2, got 3"),
    (lambda: Mask((Causal(), Causal())), "a mask takes each rule once"),
])
def test_a_rule_that_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_rules_made_from_lists_are_hashable():
    made = Mask((Documents([[[1, 4]]]), Padding([[[0, 1]]]), Vision([[[1, 4]]]), Regions([[4]], [[[[4, [0]]]]])))
    assert len({made, Mask(made.rules)}) == 1
