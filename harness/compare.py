"""How far an answer is from the truth, in budgets, and where (SPEC C)."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from cases.case import Case
from harness.attempt import Answer
from harness.contract import Breach
from harness.inputs import DTYPES
from harness.problem import Problem
from reference import budget

REQUIREMENTS = {"out": "B1", "lse": "B2", "dq": "B4", "dk": "B4", "dv": "B4"}


@dataclass(frozen=True)
class Where:
    """Global coordinates of an element; `rank` holds it, `document` is its token's id (None without documents)."""

    batch: int
    head: int
    token: int
    dim: int | None
    rank: int
    document: int | None


@dataclass(frozen=True)
class Deviation:
    """One tensor's distance from the truth, at its worst. `ratio` is error/budget, 1.0 is the line, None was not
    compared; off `[B, H, S]`: all rows that are wrong, which no record keeps."""

    tensor: str
    requirement: str
    ratio: float | None
    error: float | None = None
    allowance: float | None = None
    level: str = "required"
    where: Where | None = None
    expected: float | None = None
    actual: float | None = None
    off: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def failed(self) -> bool:
        return self.ratio is not None and not self.ratio <= 1.0

    def record(self) -> dict[str, Any]:
        """As docs/design.md writes it."""
        own = {name: value for name, value in vars(self).items() if name != "off"}
        return own | {"where": self.where and dict(vars(self.where))}


@dataclass
class Verdict:
    """PASS, FAIL, SKIP or ERROR, and why."""

    name: str
    reason: str | None = None
    deviations: list[Deviation] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)

    @property
    def nearest(self) -> Deviation | None:
        """The deviation with the largest ratio, failed or not."""
        compared = [deviation for deviation in self.deviations if deviation.ratio is not None]
        return max(compared, key=lambda deviation: _size(deviation.ratio), default=None)

    @property
    def worst(self) -> Deviation | None:
        """The failed deviation that is named first: a missing or broken row explains more than a larger number."""
        failed = [deviation for deviation in self.deviations if deviation.failed]
        return max(failed, key=lambda deviation: _size(deviation.ratio)) if failed else None


def compare(answer: Answer, problem: Problem, layout: list[Tensor], numbers: Verdict | None = None) -> Verdict:
    """The verdict on one answer, broken promises and all; layout: positions `[B, L]` a rank. `numbers` is what
    `compare_numbers` says where that is known already."""
    graver = [breach for breach in answer.breaches if not breach.light]
    if graver:
        return breached(graver)
    verdict = numbers or compare_numbers(answer, problem, layout)
    return breached(answer.breaches) if answer.breaches and verdict.name == "PASS" else verdict


def compare_numbers(answer: Answer, problem: Problem, layout: list[Tensor]) -> Verdict:
    """The verdict on the tensors of an answer alone."""
    level = "strict" if problem.case.inputs.strict else "required"
    found = budget.judge(answer.tensors, problem.truth, problem.twin, DTYPES[problem.case.dtype],
                         problem.mask.documents(problem.rows), problem.compared)
    deviations = [_deviation(name, found.get(name), problem, layout, level)
                  for name in _asked(problem.case)]
    verdict = Verdict("PASS", None, deviations)
    if verdict.worst:
        failed = [deviation.tensor for deviation in deviations if deviation.failed]
        strict = ", strict level" if level == "strict" else ""
        verdict.name = "FAIL"
        worst = verdict.worst
        verdict.reason = f"{worst.requirement}: {', '.join(failed)} off, error/budget {worst.ratio:.4g}{strict}"
    return verdict


def breached(breaches: list[Breach]) -> Verdict:
    """The verdict on broken promises, named after the first."""
    first = breaches[0]
    return Verdict("FAIL", f"{first.requirement}: {first.headline}", breaches=breaches)


def worse(first: Verdict, second: Verdict) -> Verdict:
    """The verdict of a trial that was verified twice: the worse one, tensor by tensor when both passed."""
    if first.name != "PASS" or second.name != "PASS":
        return second if first.name == "PASS" else first
    pairs = zip(first.deviations, second.deviations, strict=True)
    return Verdict("PASS", None, [max(pair, key=_told) for pair in pairs])


def _told(deviation: Deviation) -> float:
    """What is told of several: that one of them offers no lse is more than how near the others are (SPEC B2); a forward
    without gradients has none to offer."""
    return math.inf if deviation.tensor == "lse" and deviation.ratio is None else _size(deviation.ratio)


def _size(ratio: float | None) -> float:
    return -1.0 if ratio is None else math.inf if math.isnan(ratio) else ratio


def _asked(case: Case) -> list[str]:
    return ["out", "lse"] + [f"d{name}" for name in "qkv" if name in case.inputs.grads]


def _deviation(name: str, found: budget.Deviation | None, problem: Problem, layout: list[Tensor],
               level: str) -> Deviation:
    if found is None:
        return Deviation(name, REQUIREMENTS[name], None, level=level)
    documents = problem.rows.documents
    document = None if documents is None else int(documents[found.batch, found.token])
    where = Where(found.batch, found.head, found.token, found.dim, owner(layout, found.batch, found.token), document)
    dead = found.exact and not (name == "lse" and math.isfinite(found.expected))
    broken = "B3" if dead and name not in ("dk", "dv") else REQUIREMENTS[name]
    return Deviation(name, broken, found.ratio, found.error, found.allowance, level, where, found.expected,
                     found.actual, found.off)


def owner(layout: list[Tensor], batch: int, token: int) -> int:
    """The rank that holds a token."""
    return next(rank for rank, part in enumerate(layout) if bool((part[batch] == token).any()))
