"""A matrix that was read back, against the true one: what is wrong with it in words and as a picture."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harness.inputs import DTYPES
from harness.problem import Problem

CELLS = 48
SHOWN = {"out": "sees", "dv": "passes its dout to", "dq": "takes a gradient from", "dk": "passes a gradient to"}
OFF = {"out": "weights", "dv": "weights of the backward", "dq": "gradients of scores in dq",
       "dk": "gradients of scores in dk"}
RIGHT, NONE, EXTRA, MISSING, WEIGHT = "#", ".", "X", "o", "w"
LEGEND = "# right   X seen and not allowed   o allowed and not seen   w seen with a wrong weight   . neither"


def read(found: Sequence, problem: Problem, owner: Tensor) -> dict[str, Any] | None:
    """The first matrix that is wrong, None when all are right. owner `[B, S]`: the rank of each token.

    {"tensor", "sentence", "counts": {"extra", "missing", "weight"}, "batch", "head", "grid": [one text a row of
    queries], "ranks": rank of each column, "legend"}
    """
    for matrix in found:
        states = _States(matrix, problem)
        if states.wrong:
            batch, head, query, key = states.first()
            return {"tensor": matrix.tensor, "sentence": sentence(states, (batch, head, query, key), problem, owner),
                    "counts": states.counts, "batch": batch, "head": head,
                    "grid": grid(states, batch, head), "ranks": ranks_of(owner[batch]), "legend": LEGEND}
    return None


class _States:
    """Each pair `[B, Hq, S, S]`: seen though not allowed, allowed and not seen, or seen with a wrong weight."""

    def __init__(self, matrix, problem: Problem):
        self.tensor = matrix.tensor
        tokens = torch.arange(problem.rows.tokens)
        allowed = problem.mask.allowed(problem.rows, tokens, tokens)
        self.allowed = allowed.repeat_interleave(problem.case.shape.heads // allowed.shape[1], 1)
        actual, expected = matrix.actual, matrix.expected
        size = max(float(expected.abs().max()), 1e-30)
        unit = torch.finfo(DTYPES[problem.case.dtype]).eps
        self.nan = actual.isnan()
        seen = ~(actual.abs() <= 1e-7 * size)
        judged = torch.ones_like(seen)
        if problem.compared is not None and matrix.tensor in ("out", "dq"):
            judged = problem.compared[..., None].expand_as(seen)
        self.extra = seen & ~self.allowed & judged & ~self.nan
        absent = actual == 0 if matrix.tensor in ("out", "dv") else ~seen
        self.missing = absent & (expected.abs() > 1e-3 * size) & judged
        cancelled = size if matrix.tensor in ("dq", "dk") else 1e-2 * size
        off = ~((actual - expected).abs() <= 1e-9 * size + 16 * unit * (expected.abs() + cancelled))
        whole = ~(self.extra | self.missing).any(-1, keepdim=True)
        self.weight = (off & self.allowed & whole | self.nan) & judged
        self.actual, self.expected = actual, expected

    @property
    def counts(self) -> dict[str, int]:
        return {name: int(getattr(self, name).sum()) for name in ("extra", "missing", "weight")}

    @property
    def kind(self) -> str:
        return next((name for name, count in self.counts.items() if count), "")

    @property
    def wrong(self) -> bool:
        return bool(self.kind)

    def first(self) -> tuple[int, int, int, int]:
        """Batch row, head, the first query with a wrong pair and its nearest such key."""
        wrong = self.nan if self.kind == "weight" and bool(self.nan.any()) else getattr(self, self.kind)
        batch, head, query, _ = wrong.nonzero()[0].tolist()
        keys = wrong[batch, head, query].nonzero()[:, 0]
        return batch, head, query, int(keys[(keys - query).abs().argmin()])


def sentence(states: _States, at: tuple[int, int, int, int], problem: Problem, owner: Tensor) -> str:
    """"query 17 (rank 1, document 2) sees key 12 (rank 0, document 1): crosses a document, between shards (1 of 9)"."""
    batch, head, query, key = at
    one, other = (f"{what} {token} ({_place(problem, owner, batch, token)})"
                  for what, token in (("query", query), ("key", key)))
    count, verb = states.counts[states.kind], SHOWN[states.tensor]
    many = "" if count == 1 else f"; {count} such pairs"
    if states.kind == "extra":
        return f"{one} {verb} {other}: {_reason(problem, owner, at)}{many}{_pattern(states.extra, owner)}"
    if states.kind == "missing":
        return f"{one} never {verb} {other}, which it may{many}{_pattern(states.missing, owner)}"
    if bool(states.nan.any()):
        rows = int(states.nan.any(-1).sum())
        return f"{OFF[states.tensor]} are NaN for {rows} of queries and heads, first those of {one}"
    actual, true = float(states.actual[at]), float(states.expected[at])
    off = f"{actual / true:.4g} times the truth" if true else f"{actual:.4g}, not 0"
    return (f"every pair is there and none too many, but {OFF[states.tensor]} are off: that of {one} and {other} is "
            f"{off}{many}{_pattern(states.weight, owner)}")


def grid(states: _States, batch: int, head: int) -> list[str]:
    """At most CELLS x CELLS cells, the worst of its pairs in each."""
    level = torch.zeros_like(states.allowed[batch, head], dtype=torch.int64)
    marks = (NONE, RIGHT, WEIGHT, MISSING, EXTRA)
    for value, name in enumerate(("allowed", "weight", "missing", "extra"), 1):
        level[getattr(states, name)[batch, head]] = value
    edge = _edges(level.shape[0])
    return ["".join(marks[int(level[top:bottom, left:right].max())]
                    for left, right in zip(edge, edge[1:], strict=False))
            for top, bottom in zip(edge, edge[1:], strict=False)]


def ranks_of(owner: Tensor) -> str:
    """The rank of each column of `grid`, its first token's; letters from rank 10 up."""
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[int(owner[first]) % 36] for first in _edges(len(owner))[:-1])


def picture(recovered: dict[str, Any]) -> list[str]:
    """Lines of text for a failure: the ranks of keys above, of queries on the left."""
    ranks = recovered["ranks"]
    lines = [f"{rank} {line}" for rank, line in zip(ranks, recovered["grid"], strict=True)]
    return [f"  {ranks}   ranks; queries downward, keys to the right", *lines, f"  {recovered['legend']}"]


def _place(problem: Problem, owner: Tensor, batch: int, token: int) -> str:
    documents = problem.rows.documents
    document = "" if documents is None else f", document {int(documents[batch, token])}"
    row = f", row {batch}" if problem.rows.batch > 1 else ""
    return f"rank {int(owner[batch, token])}{document}{row}"


def _reason(problem: Problem, owner: Tensor, at: tuple[int, int, int, int]) -> str:
    """Which rule forbids a pair."""
    batch, head, query, key = at
    padded = problem.rows.padded[batch]
    edge = "between shards" if owner[batch, query] != owner[batch, key] else "inside a shard"
    if padded[key]:
        return "the key is padding"
    if padded[query]:
        return "the query is padding"
    group = head // (problem.case.shape.heads // problem.rows.groups)
    against = [rule for rule in problem.mask.rules if not rule.widens and not _allows(rule, problem, batch, group,
                                                                                      query, key)]
    words = [_against(rule, query, key) for rule in against]
    return f"{' and '.join(words) or 'the mask forbids it'}, {edge}"


def _allows(rule, problem: Problem, batch: int, group: int, query: int, key: int) -> bool:
    found = rule.allowed(problem.rows, torch.tensor([query]), torch.tensor([key]))
    return bool(found.expand(problem.rows.batch, problem.rows.groups, 1, 1)[batch, group, 0, 0])


def _against(rule, query: int, key: int) -> str:
    if rule.name == "window":
        return f"the key is {abs(query - key)} away and the window holds {rule.size}"
    return {"causal": "the key is later", "documents": "crosses a document",
            "regions": "the region is not selected"}.get(rule.name, f"against the rule {rule.name}")


def _pattern(wrong: Tensor, owner: Tensor) -> str:
    """What all wrong pairs have in common: heads, diagonal, pairs of ranks."""
    batch, head, query, key = wrong.nonzero().unbind(1)
    said = []
    if (query - key).unique().numel() == 1 and len(query) > 1:
        said.append(f"all {int(query[0] - key[0])} tokens apart")
    heads = head.unique()
    if len(heads) < wrong.shape[1]:
        said.append(f"only in head {', '.join(map(str, heads.tolist()))}")
    ranks = torch.stack([owner[batch, query], owner[batch, key]], 1).unique(dim=0)
    world = int(owner.max()) + 1
    if world > 1 and len(ranks) == 1:
        said.append(f"all of queries of rank {int(ranks[0, 0])} and keys of rank {int(ranks[0, 1])}")
    elif world > 1 and len(ranks[:, 1].unique()) == 1:
        said.append(f"all of keys of rank {int(ranks[0, 1])}")
    elif world > 1 and len(ranks[:, 0].unique()) == 1:
        said.append(f"all of queries of rank {int(ranks[0, 0])}")
    elif world > 1 and bool((ranks[:, 0] != ranks[:, 1]).all()):
        said.append("none inside a rank")
    elif world > 1 and bool((ranks[:, 0] == ranks[:, 1]).all()):
        said.append("none between ranks")
    return f", {'; '.join(said)}" if said else ""


def _edges(tokens: int) -> list[int]:
    cells = min(tokens, CELLS)
    return [cell * tokens // cells for cell in range(cells + 1)]
