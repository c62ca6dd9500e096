"""Exact probes: inputs whose true answer follows from key intervals alone, for any dtype, kernel and size (SPEC C).

All keys are 0, so that every query spreads evenly over its allowed keys. Then lse is the log of their number, out is
the mean of their values, and values are coordinates: which key, which head, which batch row. The dout of a few queries
is 1 in a column of their own, which then shows their row of the mask in dv; q likewise in dk, where column 0 of dout, 1
in all of them, sets neighbouring keys apart. dq is exactly 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cases import intervals
from cases.mask import Mask
from cases.rows import Rows

DIGITS, BASE = 5, 16
COORDINATES = DIGITS + 3
ROUNDINGS = 8
BLOCK = 1024


@dataclass(frozen=True)
class Probe:
    """Inputs in the asked dtype and the exact answer in fp64. Each group shows C = min(D, Dv) of its queries.

    q, k, v, dout     as for `reference.dense.truth`
    count, lse        [B, Hq, S] allowed keys of each query and the log of it
    out, dk, dv       [B, Hq, S, Dv], [B, Hkv, S, D], [B, Hkv, S, Dv]; dq is 0
    head, query       [Hkv, C] query head and query that column c of dk and dv shows; column 0 of dv sums over them
    dk_size           shaped as dk, sum of the absolute values of its terms
    """

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor
    count: Tensor
    lse: Tensor
    out: Tensor
    dk: Tensor
    dv: Tensor
    head: Tensor
    query: Tensor
    dk_size: Tensor


@dataclass(frozen=True)
class Difference:
    """Where an answer first differs from the probe's: index into the tensor, for dk and dv the query shown there.

    ratio is error / allowance, above 1 is wrong; both count keys for lse.
    """

    tensor: str
    index: tuple[int, ...]
    expected: float
    actual: float
    ratio: float
    error: float
    allowance: float
    query: tuple[int, int] | None = None

    def __str__(self) -> str:
        shown = "" if self.query is None else f", what query head {self.query[0]}, query {self.query[1]} adds"
        return f"{self.tensor}{list(self.index)}: expected {self.expected:.6g}, got {self.actual:.6g}{shown}"


@torch.no_grad()
def probe(mask: Mask, rows: Rows, heads: int, dim: int, value_dim: int | None = None,
          dtype: torch.dtype = torch.float32, scale: float | None = None, first: int = 0) -> Probe:
    """A probe of `rows` with `heads` query heads on rows.groups key/value heads, in O(S * K * Dv) for K intervals.

    The first eight columns of v are coordinates, the others mark one key each. `first` moves marks and shown queries:
    probes of first = 0, 1, ... show all of them in turn. Raises ValueError when the value head_dim is below eight.
    """
    value_dim = value_dim or dim
    if value_dim < COORDINATES:
        raise ValueError(f"a probe needs a value head_dim of at least {COORDINATES}, got {value_dim}")
    scale = dim ** -0.5 if scale is None else scale
    lead = rows.batch, rows.groups, rows.tokens
    ratio = heads // rows.groups
    head, query = _shown(rows, ratio, min(dim, value_dim), first)
    columns = query.shape[1]
    v = _values(rows, value_dim, first)
    mean, count = _means(mask, rows, v)
    at = query[None, :, None].expand(rows.batch, -1, -1, -1)
    weight = _attends(mask, rows, query).double() / count[..., None].expand(*lead, columns).gather(2, at).clamp(min=1)
    own, shown_mean = _seen_by_dout(v, columns), _seen_by_dout(mean, columns).gather(2, at)
    dk = _padded(scale * weight * (own - shown_mean), dim)
    dk_size = _padded(abs(scale) * weight * (own + shown_mean), dim)
    dv = _padded(weight, value_dim)
    dv[..., 0] = weight.sum(-1)
    count, mean = (x.repeat_interleave(ratio, 1) for x in (count, mean))
    asked = questions(rows, heads, dim, value_dim, dtype, first)
    return Probe(*asked, count, count.double().log(), mean, dk, dv, head, query, dk_size)


@torch.no_grad()
def questions(rows: Rows, heads: int, dim: int, value_dim: int, dtype: torch.dtype,
              first: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and dout of a probe alone, which cost no look at the mask."""
    head, query = _shown(rows, heads // rows.groups, min(dim, value_dim), first)
    q, dout = (_ones(rows, heads, width, head, query, dtype) for width in (dim, value_dim))
    dout[..., 0] = dout.amax(-1)
    k = torch.zeros(rows.batch, rows.groups, rows.tokens, dim, dtype=dtype)
    return q, k, _values(rows, value_dim, first).to(dtype), dout


def rounds(rows: Rows, heads: int, dim: int, value_dim: int) -> int:
    """How many probes, first = 0, 1, ..., show every query of every head once."""
    pairs = heads // rows.groups * rows.tokens
    return -(-pairs // min(dim, value_dim, pairs)) + 1


@torch.no_grad()
def check(probe: Probe, answer: Mapping[str, Tensor | None]) -> Difference | None:
    """Where `answer` (out, lse, dq, dk, dv; absent ones are not looked at) first differs from the probe, or None."""
    return next((found for found in differences(probe, answer).values() if not found.ratio <= 1), None)


@torch.no_grad()
def differences(probe: Probe, answer: Mapping[str, Tensor | None], judged: Tensor | None = None,
                whole: Tensor | None = None) -> dict[str, Difference]:
    """The first wrong element of each tensor of `answer`, or its worst one when none is wrong.

    Counts must be right to the unit and what is 0 exactly 0; the rest may carry rounding of its own size. judged
    `[B, Hq, S]`: queries whose out, lse and dq count; whole `[B]`: batch rows whose dk and dv count; None is all.
    """
    found = {}
    for name, (expected, allowance) in _expectations(probe).items():
        if answer.get(name) is None:
            continue
        actual = answer[name].double().cpu()
        off = (actual.exp() - probe.count if name == "lse" else actual - expected).abs_()
        ratio = (off / allowance).masked_fill_(off == 0, 0).nan_to_num_(nan=torch.inf, posinf=torch.inf)
        counted = whole[:, None, None, None] if name in ("dk", "dv") and whole is not None else None
        if judged is not None and name not in ("dk", "dv"):
            counted = judged if name == "lse" else judged[..., None]
        ratio = ratio if counted is None else ratio.masked_fill(~counted, 0)
        wrong = (ratio > 1).nonzero()
        if name in ("dk", "dv"):
            shown = (wrong[:, 3] >= (name == "dv")) & (wrong[:, 3] < probe.query.shape[1])
            wrong = wrong[shown] if shown.any() else wrong
        index = tuple((wrong[0] if len(wrong) else _largest(ratio)).tolist())
        shown = name in ("dk", "dv") and (name == "dv") <= index[3] < probe.query.shape[1]
        query = (int(probe.head[index[1], index[3]]), int(probe.query[index[1], index[3]])) if shown else None
        numbers = (float(x[index]) for x in (expected, actual, ratio, off, allowance))
        found[name] = Difference(name, index, *numbers, query)
    return found


def _expectations(probe: Probe) -> dict[str, tuple[Tensor, Tensor]]:
    """Exact value and allowance of each tensor; that of lse is in keys."""
    dtype = probe.q.dtype
    sums = torch.finfo(torch.promote_types(dtype, torch.float32)).eps * probe.count.double().sqrt()
    relative = ROUNDINGS * (torch.finfo(dtype).eps / 2 + sums)
    smallest = torch.finfo(dtype).smallest_normal
    sizes = {"dk": probe.dk_size, "dv": probe.dv}
    by_key = {name: relative.max() * size + smallest * (size > 0) for name, size in sizes.items()}
    zero = torch.zeros((), dtype=torch.float64).expand(probe.q.shape)
    return {"lse": (probe.lse, torch.full_like(probe.lse, 0.5)), "out": (probe.out, relative[..., None] * probe.out),
            "dv": (probe.dv, by_key["dv"]), "dk": (probe.dk, by_key["dk"]), "dq": (zero, zero)}


def _values(rows: Rows, value_dim: int, first: int) -> Tensor:
    """[B, G, S, Dv]: digits of the position, then of the head, then the batch row, then marks of single keys."""
    position, group, batch = torch.arange(rows.tokens), torch.arange(rows.groups), torch.arange(rows.batch)
    v = torch.zeros(rows.batch, rows.groups, rows.tokens, value_dim, dtype=torch.float64)
    for digit in range(DIGITS):
        v[..., digit] = position // BASE ** digit % BASE
    v[..., DIGITS] = 1 + group[:, None] % BASE
    v[..., DIGITS + 1] = 1 + group[:, None] // BASE
    v[..., DIGITS + 2] = 1 + batch[:, None, None] % BASE
    marks = torch.arange(value_dim - COORDINATES)
    stride = max(1, rows.tokens // max(1, len(marks)))
    marked = (first + marks * stride + group[:, None]) % rows.tokens
    v[:, group[:, None], marked, COORDINATES + marks] = 1
    return v


def _seen_by_dout(v: Tensor, columns: int) -> Tensor:
    """[..., C]: v times the dout of the query that each column shows, 1 in its own column and in column 0."""
    seen = v[..., :columns] + v[..., :1]
    seen[..., 0] = v[..., 0]
    return seen


def _shown(rows: Rows, ratio: int, columns: int, first: int) -> tuple[Tensor, Tensor]:
    """Query head and query `[G, C]` of each column, spread over the row, none twice in a group."""
    pairs = ratio * rows.tokens
    columns = min(columns, pairs)
    group = torch.arange(rows.groups)[:, None]
    pair = (first + torch.arange(columns) * (pairs // columns) + group) % pairs
    return group * ratio + pair % ratio, pair // ratio


def _largest(x: Tensor) -> Tensor:
    return torch.stack(torch.unravel_index(x.argmax(), x.shape))


def _ones(rows: Rows, heads: int, dim: int, head: Tensor, query: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, Hq, S, D] with 1 in column c of the query that column c shows."""
    x = torch.zeros(rows.batch, heads, rows.tokens, dim, dtype=dtype)
    x[:, head, query, torch.arange(query.shape[1])] = 1
    return x


def _means(mask: Mask, rows: Rows, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of v over the allowed keys `[B, G, S, Dv]` and their number `[B, G, S]`."""
    total, count = torch.zeros_like(v), torch.zeros(v.shape[:3], dtype=torch.int64)
    before = torch.nn.functional.pad(v.cumsum(2), (0, 0, 1, 0))
    for i in torch.arange(rows.tokens).split(BLOCK):
        keys = mask.keys(rows, i).expand(-1, rows.groups, -1, -1, -1)
        count[:, :, i] = intervals.count(keys)
        for b in range(rows.batch):
            for g in range(rows.groups):
                start, end = keys[b, g].unbind(-1)
                total[b, g, i] = (before[b, g, end] - before[b, g, start]).sum(1)
    return total / count[..., None].clamp(min=1), count


def _attends(mask: Mask, rows: Rows, query: Tensor) -> Tensor:
    """[B, G, S, C] bool: whether query `query[g, c]` may attend each key."""
    found = []
    for g, i in enumerate(query):
        keys = mask.keys(rows, i).expand(-1, rows.groups, -1, -1, -1)[:, g]
        edges = torch.zeros(rows.batch, len(i), rows.tokens + 1, dtype=torch.int64)
        for edge, sign in zip(keys.unbind(-1), (1, -1), strict=True):
            edges.scatter_add_(2, edge, torch.full_like(edge, sign))
        found.append(edges.cumsum(2)[..., :-1].mT > 0)
    return torch.stack(found, 1)


def _padded(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))
