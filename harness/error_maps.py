"""Where the errors of a trial lie: its worst tensor by tokens and heads (by ranks and owners: harness/by_owner.py)."""

from typing import Any

import torch
from torch import Tensor

from cases.picture import edges
from harness.attempt import Answer
from harness.compare import Verdict
from harness.inputs import DTYPES
from harness.problem import Problem
from reference import budget

BINS, CELLS, LARGEST_PASSED = 32, 128, 1 << 18


def error_maps(verdict: Verdict, answer: Answer) -> list[dict[str, Any]] | None:
    """`error_maps` of the record, for the worst tensor of the answer that decided: at most BINS bins of tokens, of a
    passing one CELLS cells. None where nothing was compared, and for a passing answer that is too large to look twice.
    """
    worst = verdict.worst or verdict.nearest
    if worst is None or answer.problem is None:
        return None
    actual, passed = answer.tensors[worst.tensor], verdict.name == "PASS"
    if passed and actual.numel() > LARGEST_PASSED:
        return None
    found = rows(worst.tensor, actual, answer.problem)
    bins = min(BINS, max(1, CELLS // found.shape[1])) if passed else BINS
    return [{"tensor": worst.tensor, "by": ["tokens", "heads"], **by_tokens(found, bins)}]


def rows(name: str, actual: Tensor, problem: Problem) -> Tensor:
    """`[B, H, S]`: error/budget of each row."""
    return budget.rows(name, actual, problem.truth, problem.twin, DTYPES[problem.case.dtype],
                       problem.mask.documents(problem.rows), problem.compared)


def by_tokens(found: Tensor, bins: int) -> dict[str, Any]:
    """`edges` `[n + 1]` and `ratios` `[n][H]`: the largest of each bin of tokens and head, over batch rows."""
    edge, heads = edges(found.shape[2], bins), found.shape[1]
    size = edge.diff()
    line = torch.arange(len(size)).repeat_interleave(size)[:, None].expand(-1, heads)
    worst = found.new_zeros(len(size), heads).scatter_reduce_(0, line, found.amax(0).T, "amax")
    return {"edges": edge.tolist(), "ratios": [plain(row) for row in worst]}


def plain(x: Tensor) -> list[float]:
    """Three digits are enough to draw."""
    return [float(f"{one:.3g}") for one in x.tolist()]
