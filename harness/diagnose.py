"""The first line of a failure in words: what went wrong, where, and which known mistake explains it."""

from typing import Any

from torch import Tensor

from harness.attempt import Answer
from harness.compare import Deviation, Verdict
from harness.entries import About, requirement
from harness.problem import Problem


def diagnose(verdict: Verdict, answer: Answer, problem: Problem, layout: list[Tensor], about: About) -> dict[str, Any] | None:
    """`diagnosis` of the record, None when nothing failed."""
    if verdict.name != "FAIL":
        return None
    if verdict.breaches:
        return about.breach(verdict)
    worst = verdict.worst
    return {"headline": f"{worst.tensor} is off", "requirement": requirement(worst.requirement),
            "expected": element(worst, worst.expected), "actual": f"{worst.actual:.6g}", "place": place(worst),
            "again": about.again()}


def element(deviation: Deviation, value: float) -> str:
    where = deviation.where
    last = "" if where.dim is None else f", {where.dim}"
    return f"{deviation.tensor}[{where.batch}, {where.head}, {where.token}{last}] = {value:.6g}"


def place(deviation: Deviation) -> str:
    where = deviation.where
    document = "" if where.document is None else f"document {where.document}, "
    return f"rank {where.rank}, {document}token {where.token}, head {where.head}" + (f", row {where.batch}" if where.batch else "")
