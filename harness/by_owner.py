"""A failed out by the ranks of its rows and the owners of the keys that its errors come from: a trial of its own."""

import time
from typing import Any

import torch
from torch import Tensor

from cases.case import Case
from cases.work import owners
from harness.attempt import Answer, attempt
from harness.clock import Timing
from harness.error_maps import plain, rows
from harness.implementation import Implementation, Session
from harness.problem import Problem, problem_of
from harness.ranks import Ranks
from harness.trial import agree, opened

LARGEST, SECONDS = 1 << 23, 10.0


def attributable(case: Case) -> bool:
    """Whether a failed case is asked again for the values of one owner after the other."""
    shape = case.shape
    return case.world > 1 and shape.batch * shape.heads * shape.tokens ** 2 * case.world <= LARGEST


def run_owners(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing | None = None,
               spec: str | None = None) -> dict[str, Any] | None:
    """Rank 0: {"verdict": "DONE", "ratios": `by_owner`, None where a plain step of the case is right}."""
    layout, verdict = agree(case, implementation, ranks)
    session, verdict = (None, verdict) if verdict else opened(implementation, case, ranks)
    ratios = None
    if not verdict:
        ratios = by_owner(session, problem_of(case, implementation.variants), layout, ranks)
        session.close()
    return {"verdict": "DONE", "ratios": ratios} if ranks.group.rank == 0 else None


def by_owner(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks) -> list[list[float]] | None:
    """On rank 0 `[rank][owner]`: error/budget of the rows of out that a rank holds, as far as it comes of keys and
    values that an owner holds. out is linear in v, so a step with the values of one owner alone shows that part, which
    the budget of the whole is held against. None where all values together give no failure, or time runs out.
    """
    owner, end = owners(layout, problem.rows), time.monotonic() + SECONDS
    columns: list[list[float] | None] = []
    for held in (owner >= 0, *(owner == one for one in range(len(layout)))):
        part = problem.valued(held)
        answer = attempt(session, part, layout, ranks)
        columns.append(_column(answer, part, problem, owner, len(layout)))
        failed = columns[0] is not None and not max(columns[0]) <= 1
        if not ranks.all_gather(failed and columns[-1] is not None and time.monotonic() < end)[0]:
            return None
    if ranks.group.rank:
        return None
    return [plain(torch.tensor(row)) for row in zip(*columns[1:], strict=True)]


def _column(answer: Answer, part: Problem, problem: Problem, owner: Tensor, world: int) -> list[float] | None:
    """Error/budget of the rows of each rank as an answer to `part` of the problem has it; None without an answer."""
    if "out" not in answer.tensors:
        return None
    off = answer.tensors["out"].double() - part.truth.out
    found = rows("out", problem.truth.out + off, problem).amax(1)
    return [_largest(found[owner == rank]) for rank in range(world)]


def _largest(x: Tensor) -> float:
    """Of nothing 0."""
    return float(x.max()) if x.numel() else 0.0
