"""Random cases: reproducible, varied, and rebuilt from the line that prints them."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings

from cases import generate
from cases.case import KNOWN_INPUTS, Case


def test_the_same_seed_gives_the_same_cases():
    first, second = list(generate.cases(3, 20)), list(generate.cases(3, 20))
    assert [case.digest for case in first] == [case.digest for case in second]
    assert len({case.digest for case in first} | {case.digest for case in generate.cases(4, 20)}) == 40
    assert first[5].name == "random/3-5"


def test_random_cases_reach_every_rule_and_every_edge():
    cases = list(generate.cases(1, 300))
    rules = Counter(rule.name for case in cases for rule in case.mask.rules)
    assert set(rules) == {"causal", "window", "documents", "padding", "vision", "regions"} and min(rules.values()) > 50
    assert max(len(case.mask.rules) for case in cases) == 6 and min(len(case.mask.rules) for case in cases) == 0
    assert {case.world for case in cases} == {1, 2, 3, 4}
    assert max(case.shape.tokens for case in cases) == 192 and min(case.shape.tokens for case in cases) == 1
    assert all(case.rows().tokens == case.shape.tokens for case in cases)


def test_random_cases_draw_every_kind_of_numbers_and_of_ids():
    cases = list(generate.cases(1, 400))
    assert {case.inputs.strides for case in cases} == set(KNOWN_INPUTS["strides"]) - {"tail"}
    assert {case.inputs.dout for case in cases} == set(KNOWN_INPUTS["dout"])
    assert {abs(case.scale) > 1 for case in cases if case.scale} == {True, False}
    ids = [value for case in cases for rule in case.mask.rules if rule.name == "documents"
           for row in rule.ids for value, _ in row]
    assert {1 << 53, (1 << 53) + 1} < set(ids) and max(value for value in ids if value < 1 << 40) > 64
    assert max(rule.size for case in cases for rule in case.mask.rules if rule.name == "window") > 1 << 16


def test_fixed_settings_are_kept():
    cases = list(generate.cases(2, 30, max_tokens=50, worlds=(3,), layouts=("zigzag",), dtypes=("bf16",)))
    assert {(case.world, case.layout, case.dtype) for case in cases} == {(3, "zigzag", "bf16")}
    assert max(case.shape.tokens for case in cases) <= 50


@settings(max_examples=100, deadline=None)
@given(generate.strategy())
def test_a_case_survives_printing(case):
    line = generate.replay(case)
    again = generate.from_replay(line)
    assert isinstance(again, Case) and again == case and hash(again) == hash(case)
    assert again.digest == case.digest and generate.replay(again) == line


@pytest.mark.parametrize("line", ["{", "{}", "[]", "[" * 100_000, '{"mask":3}',
                                  '{"name":"a","mask":[{"rule":"nothing"}]}'])
def test_a_line_that_is_no_case_is_refused(line):
    with pytest.raises(ValueError, match="not a printed case"):
        generate.from_replay(line)


def test_hypothesis_is_imported_only_when_asked_for():
    code = "import sys, cases.catalogue, cases.generate; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
