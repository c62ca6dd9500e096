"""The first line of a failure in words: what went wrong, where, and which known mistake explains it."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from cases.work import owners
from harness import hypotheses
from harness.attempt import Answer
from harness.compare import REQUIREMENTS, Deviation, Verdict, compare
from harness.entries import About, requirement
from harness.extent import Extent, earliest
from harness.hypotheses import Evidence, Guess, places
from harness.hypotheses.evidence import Tensors
from harness.problem import Problem

LARGEST = 1 << 23
SECONDS = 10.0
ENOUGH, ALL = 0.5, 0.9999
SAME = 0.05
INFINITE = -1e3


def diagnose(verdict: Verdict, answer: Answer, problem: Problem, layout: list[Tensor],
             about: About, others: dict[str, Problem] | None = None) -> dict[str, Any] | None:
    """`diagnosis` of the record, None when nothing failed; others: what else was asked in the same course, by name."""
    if verdict.name != "FAIL":
        return None
    if verdict.breaches:
        return about.breach(verdict) | silent(verdict, answer, problem, layout)
    worst, failed = verdict.worst, [deviation for deviation in verdict.deviations if deviation.failed]
    names = tuple(deviation.tensor for deviation in failed)
    evidence = replace(evidence_of(answer, problem, layout, names), others=others or {})
    extent = Extent([deviation.off for deviation in failed], evidence.owner, problem.rows)
    headline, broken = first_line(worst, evidence, extent)
    first = first_wrong(failed, evidence)
    expected, actual = apart(first.expected, first.actual)
    return {"headline": headline, "requirement": requirement(broken), "expected": element(first, expected),
            "actual": actual, "place": place(first), "again": about.again()}


def silent(verdict: Verdict, answer: Answer, problem: Problem, layout: list[Tensor]) -> dict[str, Any]:
    """Where nothing was sent (SPEC D9), the mistake that explains the numbers that came of it, if there is one."""
    if not answer.tensors or any(breach.requirement != "D9" for breach in verdict.breaches):
        return {}
    numbers = compare(replace(answer, breaches=[]), problem, layout)
    failed = tuple(deviation.tensor for deviation in numbers.deviations if deviation.failed)
    guess, share = best(evidence_of(answer, problem, layout, failed)) if failed else (None, 0.0)
    if guess is None:
        return {}
    said = f"{guess.words} (explains {share * 100:.0f} % of the difference); {verdict.breaches[0].headline}"
    return {"headline": said, "requirement": requirement(guess.requirement)}


def evidence_of(answer: Answer, problem: Problem, layout: list[Tensor], failed: tuple[str, ...]) -> Evidence:
    return Evidence(problem, answer.tensors, owners(layout, problem.rows), len(layout), failed)


def first_wrong(failed: Sequence[Deviation], evidence: Evidence) -> Deviation:
    """The first wrong element of all: of the lowest token on the lowest rank, in out before lse before gradients."""
    begins = [(earliest(one.off, evidence.owner), one) for one in failed if one.off is not None and bool(one.off.any())]
    if not begins:
        return failed[0]
    (batch, head, token), first = min(begins, key=lambda begin: _order(begin[0], evidence.owner))
    true, actual = (x[batch, head, token].double().reshape(-1)
                    for x in (getattr(evidence.problem.truth, first.tensor), evidence.actual[first.tensor]))
    dim = int((actual - true).abs().nan_to_num(nan=math.inf).masked_fill(actual == true, 0).argmax())
    documents = evidence.problem.rows.documents
    where = replace(first.where, batch=batch, head=head, token=token, dim=None if first.tensor == "lse" else dim,
                    rank=int(evidence.owner[batch, token]),
                    document=None if documents is None else int(documents[batch, token]))
    return replace(first, where=where, expected=float(true[dim]), actual=float(actual[dim]))


def _order(begin: tuple[int, int, int], owner: Tensor) -> tuple[int, int]:
    batch, _, token = begin
    return int(owner[batch, token]), token


def first_line(worst: Deviation, evidence: Evidence, extent: Extent) -> tuple[str, str]:
    """What is wrong in words, and the SPEC id that it breaks."""
    guess, share = best(evidence)
    if guess:
        return f"{guess.words} (explains {share * 100:.0f} % of the difference)", guess.requirement
    return unexplained(worst, evidence, extent)


def unexplained(worst: Deviation, evidence: Evidence, extent: Extent) -> tuple[str, str]:
    """The same where no guess fits, or where the case is too large for guesses: what is off and where."""
    headline = plainly(worst, evidence.failed, evidence.problem)
    if evidence.problem.case.inputs.poison and "padded" in headline:
        return headline, "B5"
    exact = worst.requirement if worst.requirement not in REQUIREMENTS.values() else REQUIREMENTS[evidence.failed[0]]
    small = guessable(evidence)
    where = places.narrowest(evidence) if small else None
    if where:
        return f"{headline}, only in {where.words}", where.requirement or exact
    if worst.allowance and (small or extent.share > places.SMALL) and (bits := places.rounded(evidence)):
        return f"{headline}: rounding of about {bits} bits", "B6"
    return headline if small else f"{headline}: {extent.words()}", exact


def guessable(evidence: Evidence) -> bool:
    """Whether the case is small enough for guesses, which go pair by pair."""
    shape = evidence.problem.case.shape
    return shape.batch * shape.heads * shape.tokens ** 2 <= LARGEST


def best(evidence: Evidence) -> tuple[Guess | None, float]:
    """The guess that explains most of every failed tensor, and how much; None below half or for large cases.

    Of guesses that explain as much the earlier one in HYPOTHESES stands. Ends when one explains all, or after SECONDS
    of computing.
    """
    found: tuple[Guess | None, float] = None, ENOUGH
    if not guessable(evidence):
        return found
    end = time.thread_time() + SECONDS
    for hypothesis in hypotheses.HYPOTHESES:
        for guess in hypothesis(evidence):
            share = fit(guess, evidence)
            if share > found[1] + 1e-6:
                found = guess, share
            if found[1] > ALL or time.thread_time() > end:
                return found
    return found


def fit(guess: Guess, evidence: Evidence) -> float:
    """How much of the worst explained tensor a guess explains; tensors that passed must stay as they are."""
    if any(explained(name, guess.first, evidence) <= ENOUGH for name in evidence.failed if name in guess.first):
        return 0.0
    share = min(explained(name, guess.predicted, evidence) for name in evidence.failed)
    for name in guess.predicted if share > ENOUGH else ():
        if name in evidence.actual and name not in evidence.failed and _apart(name, guess, evidence) > SAME:
            return 0.0
    return share


def explained(name: str, predicted: Tensors, evidence: Evidence) -> float:
    """1 - |actual - predicted| / |actual - truth|, in 2-norms; 0 for a tensor that a guess leaves alone."""
    if name not in predicted:
        return 0.0
    true = getattr(evidence.problem.truth, name)
    actual, true, predicted = (_judged(name, x, evidence) for x in (evidence.actual[name], true, predicted[name]))
    off, left = float((actual - true).norm()), float((actual - predicted).norm())
    return max(0.0, 1 - left / off) if math.isfinite(off) and off > 0 else 0.0


def _apart(name: str, guess: Guess, evidence: Evidence) -> float:
    actual, predicted = (_judged(name, x, evidence) for x in (evidence.actual[name], guess.predicted[name]))
    size = float(actual.norm())
    return float((actual - predicted).norm()) / size if size else float(predicted.norm())


def _judged(name: str, x: Tensor, evidence: Evidence) -> Tensor:
    """In fp64, minus infinity as a number, rows that are not compared as 0."""
    x, compared = x.double().nan_to_num(nan=math.nan, neginf=INFINITE, posinf=-INFINITE), evidence.problem.compared
    if compared is None or name in ("dk", "dv"):
        return x
    return x.masked_fill(~(compared if name == "lse" else compared[..., None]), 0)


def plainly(worst: Deviation, failed: Iterable[str], problem: Problem) -> str:
    """What is off, when no guess explains it."""
    names, size = ", ".join(failed), abs(worst.actual)
    scale = max(1.0, abs(worst.expected)) if math.isfinite(worst.expected) else 1.0
    if problem.case.inputs.poison and not size <= 1e6 * scale:
        return f"{names}: what padded tokens or unseen keys hold reaches the result"
    if math.isnan(worst.actual):
        return f"{names}: NaN"
    if worst.ratio is not None and math.isinf(worst.ratio) and worst.allowance == 0:
        return f"{names} off, and where SPEC fixes the value exactly"
    return f"{names} off, up to {worst.ratio:.4g} times the budget"


def apart(expected: float, actual: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart, six at least."""
    pairs = ((f"{expected:.{digits}g}", f"{actual:.{digits}g}") for digits in (6, 9, 12, 17))
    return next((pair for pair in pairs if pair[0] != pair[1]), (f"{expected:.6g}", f"{actual:.6g}"))


def element(deviation: Deviation, value: str) -> str:
    """dk[0, 1, 255, 3] = -0.3127"""
    where = deviation.where
    last = "" if where.dim is None else f", {where.dim}"
    return f"{deviation.tensor}[{where.batch}, {where.head}, {where.token}{last}] = {value}"


def place(deviation: Deviation) -> str:
    """rank 0, document 3, token 255, head 1"""
    where = deviation.where
    document = "" if where.document is None else f"document {where.document}, "
    return f"rank {where.rank}, {document}token {where.token}, head {where.head}, row {where.batch}"
