"""Mutants of ringcp are small, many, each its own, and die where they should."""

import ast

import pytest

from harness.implementation import load
from harness.kills import Ask, Bench
from harness.sabotage import equivalents, mutants
from tests.harness.samples import mixed


def of(text, module="merge"):
    """What can be changed in the body of a function."""
    tree = ast.parse(f"def f(a, b):\n    {text}\n")
    found = []
    for node, change in list(mutants.sites(tree, module)):
        undo = change()
        found.append(ast.unparse(tree.body[0].body[0]))
        undo()
        assert isinstance(node, ast.AST)
    assert ast.unparse(tree.body[0].body[0]) == text
    return found


@pytest.mark.parametrize("text, changed", [
    ("return a < b", ["return a <= b"]),
    ("return a.sum(-1)", ["return a.sum(-2)", "return a.sum(-0)"]),
    ("return a + b", ["return a - b"]),
    ("return a is None and b", ["return a is None or b", "return a is not None and b"]),
    ("return f(a, b)", ["return f(b, a)"]),
    ("return a.amax(b)", ["return a.amin(b)"]),
    ("return ~a", ["return ~~a"]),
    ("a.append(b)", ["pass"]),
    ("a[b] = b", ["pass"]),
    ("assert a < b", []), ("raise ValueError(a + b)", []), ("return 'text'", []), ("a = b", [])])
def test_what_is_changed(text, changed):
    assert of(text) == changed


def test_there_are_many_and_names_find_them():
    every = mutants.every()
    assert len(every) > 1000 and len({one.spec for one in every}) == len(every)
    assert {one.module for one in every} == set(mutants.MODULES)
    assert all(one.before != one.after and one.text for one in every)
    assert mutants.sample(5, 7) == mutants.sample(5, 7) != mutants.sample(5, 8)
    with pytest.raises(ValueError, match="unknown mutant 'merge/9999'"):
        load("mutant:merge/9999")


def test_a_mutant_dies_and_leaves_the_ring_alone():
    bench, ask = Bench(limit=5), Ask(mixed())
    merge = [one for one in mutants.every() if one.module == "merge"]
    slower = next(one for one in merge if one.after == "place.indices(tokens) != (0, tokens, 1)")
    dropped = next(one for one in merge if one.text.startswith("lse[:, place] = total"))
    assert bench.verdict(ask, dropped.spec) == "FAIL"
    assert bench.verdict(ask, slower.spec) == bench.verdict(ask, "ring") == "PASS"


def test_arguments_that_commute_are_not_swapped():
    assert not [one for one in mutants.every() if one.before.startswith(("torch.maximum(", "torch.logaddexp("))
                and one.before.split("(")[0] == one.after.split("(")[0] and "," in one.after
                and sorted(one.before) == sorted(one.after)]


def test_what_is_judged_equivalent_is_a_mutant_of_the_source_as_it_stands():
    known = {one.key for one in mutants.every()}
    assert equivalents.reasons() and not [key for key in equivalents.reasons() if key not in known]
    judged = next(one for one in mutants.every() if one.key in equivalents.reasons())
    assert equivalents.reason(judged.spec) and equivalents.reason("mutant:merge/9999") is None
