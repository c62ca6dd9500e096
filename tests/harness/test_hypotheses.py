"""Diagnosis by tensors alone: faults under other names are told apart, and no hypothesis breaks on any mask."""

import math
from dataclasses import replace

import pytest
import torch

from cases import generate
from cases.case import Inputs, Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.work import owners
from harness.adapters.dense import Dense
from harness.attempt import Answer
from harness.compare import compare
from harness.contract import positions_of
from harness.diagnose import best, diagnose
from harness.entries import About
from harness.hypotheses import (
    HYPOTHESES,
    Evidence,
    bounds,
    gradients,
    hops,
    masks,
    places,
    results,
    steps,
    strides,
    widths,
)
from harness.problem import problem_of
from harness.ranks import run_threads
from harness.sabotage import faults
from harness.trial import run_trial
from tests.harness.samples import mixed

NAMES = ("out", "lse", "dq", "dk", "dv")
IDS = Documents((((1, 13), (2, 22), (0, 4), (3, 9)),))
PACKED = Scenario("packed/made", "A3", Mask((Causal(), IDS)), Shape(tokens=48, head_dim=16))
WIDE = Scenario("sliding/made", "A2", Mask((Causal(), Window(11))), Shape(tokens=48, head_dim=16))
IMAGES = Scenario("vision/made", "A5", Mask((Causal(), Window(7), IDS, Vision((((0, 3), (1, 20), (2, 9), (0, 16)),)))),
                  Shape(tokens=48, head_dim=16))
CSA = Scenario("csa/made", "A6", Mask((Causal(), Regions.even(48, 6, Router(3, 2, 4)))), Shape(tokens=48, head_dim=16))
HEADY = Scenario("edges/made", "A8 A9", Mask((Causal(),)), Shape(tokens=48, heads=6, head_dim=40, value_dim=64))
STRIDED = Scenario("edges/strided", "B7", Mask((Causal(),)), Shape(tokens=48, head_dim=16),
                   inputs=Inputs(strides="transposed"))
SHARP = Scenario("edges/steep", "B1", Mask((Causal(),)), Shape(tokens=48, head_dim=16),
                 inputs=Inputs(spread=9.0, outliers=20.0))


def evidence_of(case, actual, failed=NAMES, layout=None):
    problem = problem_of(case, ())
    layout = positions_of(layout or Dense().layout(case, case.world), case.shape.batch)
    return Evidence(problem, actual, owners(layout, problem.rows), case.world, failed)


def honest(case):
    return {name: getattr(problem_of(case, ()).truth, name) for name in NAMES}


def failed_of(predicted, case):
    true = honest(case)
    return tuple(name for name in NAMES if name in predicted
                 and not torch.allclose(predicted[name], true[name], rtol=1e-9, atol=1e-9, equal_nan=True))


ASKED = [(masks, scenario, NAMES, 4) for scenario in (PACKED, WIDE, IMAGES, CSA)] + [
    (masks, IMAGES, ("dq", "dk", "dv"), 8), (hops, PACKED, NAMES[:2], 10), (results, PACKED, NAMES, 5),
    (results, WIDE, NAMES[2:], 5), (gradients, PACKED, NAMES[2:], 20), (widths, HEADY, NAMES, 4),
    (strides, STRIDED, NAMES, 3), (bounds, SHARP, NAMES, 8)]


@pytest.mark.parametrize("module, scenario, asked, least", ASKED)
def test_every_guess_is_found_when_it_is_the_truth(module, scenario, asked, least):
    """What a guess predicts is answered; the diagnosis names it, or one that predicts the same."""
    case, named = scenario.at(3, "contiguous", "fp64"), set()
    for hypothesis in module.HYPOTHESES:
        for guess in hypothesis(evidence_of(case, honest(case), asked)):
            failed = failed_of(guess.predicted, case)
            if set(failed) != set(guess.predicted):
                continue
            told, share = best(evidence_of(case, honest(case) | guess.predicted, failed))
            assert share > 0.99, (guess.words, told and told.words, share)
            pairs = ((told.predicted[name], guess.predicted[name]) for name in failed)
            assert all(torch.allclose(*(x.nan_to_num(neginf=-9.0, posinf=9.0) for x in pair), atol=1e-3, rtol=1e-2)
                       for pair in pairs), (guess.words, told.words)
            named |= {told.words} & {guess.words}
    assert len(named) >= least, sorted(named)


def test_heads_that_are_left_out_are_read_off_the_answer():
    case = HEADY.at(2, "contiguous", "fp64")
    kept = (torch.arange(6) < 5)[:, None, None]
    lost = evidence_of(case, honest(case) | {"out": honest(case)["out"] * kept})
    guess, = widths.heads_left_out(lost)
    answer = honest(case) | guess.predicted
    told, share = best(evidence_of(case, answer, failed_of(guess.predicted, case)))
    assert told.words == "query head 5 is left out" and share > 0.999
    torch.testing.assert_close(guess.predicted["dq"], honest(case)["dq"] * kept)


def test_bounds_are_read_off_the_answer():
    case = HEADY.at(2, "contiguous", "fp64")
    true = honest(case)
    for wrong, said in (({"dk": true["dk"].clamp(-0.5, 0.5)}, "dk is clipped at 0.5"),
                        ({"dq": true["dq"].masked_fill(true["dq"].abs() < 0.01, 0)}, "dq up to 0.0"),
                        ({"out": true["out"] / (1 + 1e-3 * (-true["lse"]).exp())[..., None]},
                         "the softmax's denominator is 0.001 too large")):
        told, share = best(evidence_of(case, true | wrong, tuple(wrong)))
        assert told.words.startswith(said) and share > 0.99, told.words


def test_a_backward_that_finds_what_another_step_saved_is_told():
    case = PACKED.at(2, "contiguous", "fp64")
    evidence = evidence_of(case, honest(case), NAMES[2:])
    evidence = replace(evidence, others={"batch A, step 2": problem_of(case, (), seed=99)})
    guess, = steps.another_memory(evidence)
    told, share = best(replace(evidence, actual=honest(case) | guess.predicted))
    assert told.words == "the backward uses what batch A, step 2 saved" and share > 0.999


def test_a_right_answer_is_explained_by_nothing():
    case = mixed(3)
    noise = {name: x + 1e-3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
             for name, x in honest(case).items()}
    noise["lse"] = torch.where(honest(case)["lse"].isinf(), honest(case)["lse"], noise["lse"])
    guess, share = best(evidence_of(case, noise))
    assert guess is None and share == 0.5
    assert places.narrowest(evidence_of(case, noise)) is None


def spoiled(case):
    """Wrong answers of several kinds."""
    true = honest(case)
    yield {name: x.nan_to_num(neginf=-7.0) * 1.1 + 0.3 for name, x in true.items()}
    yield {name: torch.full_like(x, math.nan) for name, x in true.items()}
    yield true | {"out": torch.zeros_like(true["out"]), "lse": torch.full_like(true["lse"], -torch.inf)}
    yield {name: x.roll(1, 2) for name, x in true.items()}
    yield {name: x.nan_to_num(neginf=0.0) for name, x in true.items() if name != "lse"}


def test_no_hypothesis_breaks_on_a_random_case():
    for number, case in enumerate(generate.cases(5, 25, max_tokens=24)):
        layout = [torch.arange(case.shape.tokens)[rank::case.world] for rank in range(case.world)]
        wrong = list(spoiled(case))[number % 5]
        for failed in (NAMES, ("out", "lse"), ("dk",)):
            evidence = evidence_of(case, wrong, tuple(name for name in failed if name in wrong), layout)
            for hypothesis in HYPOTHESES:
                for guess in hypothesis(evidence):
                    true = honest(case)
                    assert guess.predicted and guess.words and guess.requirement
                    assert all(x.shape == true[name].shape for name, x in guess.predicted.items()), guess.words
            places.narrowest(evidence)
            places.rounded(evidence)


def test_the_mask_is_read_off_lse_and_out():
    """A mask that no list of mistakes holds."""
    case = PACKED.at(3, "contiguous", "fp64")
    evidence = evidence_of(case, honest(case))
    for change, said, broken in (((30, 20, 23), "query 30 never sees key 22", "A3"),
                                 ((20, 3, 9), "query 20 sees key 8", "A3"),
                                 ((20, 22, 30), "query 20 sees key 22", "A1")):
        query, start, end = change
        seen = evidence.allowed.clone()
        seen[:, :, query, start:end] ^= True
        wrong = evidence.answer(seen)
        guess, share = best(evidence_of(case, wrong))
        assert share > 0.999 and guess.requirement == broken and guess.words.startswith(said), guess.words


def test_rounding_is_told_from_mistakes():
    case = PACKED.at(2, "contiguous", "fp64")
    rough = {name: x.bfloat16().double() for name, x in honest(case).items()}
    assert 8 <= places.rounded(evidence_of(case, rough)) <= 10
    assert places.rounded(evidence_of(case, {name: x * 1.01 for name, x in honest(case).items()})) is None
    assert places.rounded(evidence_of(case, {name: x.roll(1, 2) for name, x in honest(case).items()})) is None


def test_where_the_difference_lies_is_said():
    case = mixed(3)
    answer = honest(case)
    answer["out"] = answer["out"].clone()
    answer["out"][:, :, 42] = math.nan
    problem, layout = problem_of(case, ()), positions_of(Dense().layout(case, 3), 1)
    verdict = compare(Answer(answer), problem, layout)
    told = diagnose(verdict, Answer(answer), problem, layout, About(case, Dense(), "dense", "cpu"))
    assert told["headline"] == "out: NaN, only in rows that see no key" and told["requirement"].startswith("B3")


def renamed(name):
    """The fault without anything that says what it is."""
    kind = faults.FAULTS[name]
    made = faults.load(name)
    made.__class__ = type("Anonymous", (kind,), {"__doc__": None, "__module__": "nowhere"})
    made.name = "anonymous"
    return made


def told_by(made, spec, cases):
    for case in cases:
        outcome = run_threads(case.world, lambda ranks, case=case: run_trial(case, made, ranks, spec=spec), 30)
        record = outcome.results.get(0)
        if record and record["verdict"] == "FAIL":
            return record["diagnosis"]
    return None


CASES = [mixed(3)] + [scenario.at(3, "contiguous", "fp64") for scenario in (PACKED, WIDE, IMAGES, CSA)]
AT_ONCE = ("merge", "backward", "returns", "heads", "scale", "causal", "window", "documents", "padding", "dead",
           "vision", "regions", "routing", "numerics")
SAMPLE = [name for name in faults.names() if faults.GROUPS[name] in AT_ONCE][::11]


def test_the_first_line_names_the_right_class_and_never_knows_the_name():
    right, wrong = [], []
    for name in SAMPLE:
        hidden = told_by(renamed(name), "nowhere:anonymous", CASES)
        if hidden is not None:
            broken = hidden["requirement"].split(":")[0]
            assert name not in hidden["headline"]
            (right if broken in faults.FAULTS[name].breaks else wrong).append((name, broken, hidden["headline"]))
    assert len(right) >= 0.8 * (len(right) + len(wrong)) and len(right) >= 12, wrong
    for name, _, headline in right[::6]:
        assert told_by(faults.load(name), f"sabotage:{name}", CASES)["headline"] == headline
