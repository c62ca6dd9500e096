"""Exact probes: inputs whose true answer follows from key intervals alone, for any dtype, kernel and size (SPEC C).

All keys are 0, so that every query spreads evenly over its allowed keys. Then lse is the log of their number, out is
the mean of their values, and values are coordinates: which key, which head, which batch row. The dout of a few queries
is 1 in a column of their own, which then shows their row of the mask in dv; q likewise in dk, where column 0 of dout, 1
in all of them, sets neighbouring keys apart. dq is exactly 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from cases import intervals
from cases.mask import Mask
from cases.rows import Rows

DIGITS, BASE = 5, 16
COORDINATES = DIGITS + 3
ROUNDINGS = 8
BLOCK = 1024
TENSORS = ("lse", "out", "dv", "dk", "dq")


@dataclass(frozen=True)
class Probe:
    """The exact answer to `questions` in fp64. Each group shows C = min(D, Dv) of its queries.

    heads, dim, dtype, first  of the questions
    count, lse        [B, Hq, S] allowed keys of each query and the log of it
    mean              [B, Hkv, S, Dv] what out is in every query head of a group
    dk, dv            [B, Hkv, S, D], [B, Hkv, S, Dv]; dq is 0
    head, query       [Hkv, C] query head and query that column c of dk and dv shows; column 0 of dv sums over them
    dk_size           shaped as dk, sum of the absolute values of its terms
    """

    heads: int
    dim: int
    dtype: torch.dtype
    first: int
    count: Tensor
    lse: Tensor
    mean: Tensor
    dk: Tensor
    dv: Tensor
    head: Tensor
    query: Tensor
    dk_size: Tensor

    @property
    def ratio(self) -> int:
        """Query heads a key/value head."""
        return self.heads // self.mean.shape[1]

    @property
    def out(self) -> Tensor:
        """[B, Hq, S, Dv]"""
        return self.mean.repeat_interleave(self.ratio, 1)


@dataclass(frozen=True)
class Difference:
    """Where an answer first differs from the probe's: index into the whole tensor, for dk and dv the query shown there.

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

    @property
    def wrong(self) -> bool:
        return not self.ratio <= 1

    def __str__(self) -> str:
        shown = "" if self.query is None else f", what query head {self.query[0]}, query {self.query[1]} adds"
        return f"{self.tensor}{list(self.index)}: expected {self.expected:.6g}, got {self.actual:.6g}{shown}"


@torch.no_grad()
def probe(mask: Mask, rows: Rows, heads: int, dim: int, value_dim: int | None = None,
          dtype: torch.dtype = torch.float32, scale: float | None = None, first: int = 0,
          device: torch.device | str = "cpu") -> Probe:
    """The answer to a probe of `rows` with `heads` query heads on rows.groups key/value heads, in O(S * K * Dv) for K
    intervals.

    The first eight columns of v are coordinates, the others mark one key each. `first` moves marks and shown queries:
    probes of first = 0, 1, ... show all of them in turn. It is computed on `device` and lies on the CPU. Raises
    ValueError when the value head_dim is below eight.
    """
    value_dim = value_dim or dim
    if value_dim < COORDINATES:
        raise ValueError(f"a probe needs a value head_dim of at least {COORDINATES}, got {value_dim}")
    scale = dim ** -0.5 if scale is None else scale
    lead = rows.batch, rows.groups, rows.tokens
    ratio = heads // rows.groups
    head, query = _shown(rows, ratio, min(dim, value_dim), first)
    columns = query.shape[1]
    v, query = _values(rows, value_dim, first).to(device), query.to(device)
    mean, count = _means(mask, rows, v)
    at = query[None, :, None].expand(rows.batch, -1, -1, -1)
    weight = _attends(mask, rows, query).double() / count[..., None].expand(*lead, columns).gather(2, at).clamp(min=1)
    own, shown_mean = _seen_by_dout(v, columns), _seen_by_dout(mean, columns).gather(2, at)
    dk = _padded(scale * weight * (own - shown_mean), dim)
    dk_size = _padded(abs(scale) * weight * (own + shown_mean), dim)
    dv = _padded(weight, value_dim)
    dv[..., 0] = weight.sum(-1)
    count = count.repeat_interleave(ratio, 1)
    found = (x.cpu() for x in (count, count.double().log(), mean, dk, dv, head, query, dk_size))
    return Probe(heads, dim, dtype, first, *found)


@torch.no_grad()
def questions(rows: Rows, heads: int, dim: int, value_dim: int, dtype: torch.dtype, first: int = 0,
              device: torch.device | str = "cpu") -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k, v and dout of a probe alone, which cost no look at the mask; on `device`."""
    head, query = _shown(rows, heads // rows.groups, min(dim, value_dim), first)
    q, dout = (_ones(rows, heads, width, head, query, dtype, device) for width in (dim, value_dim))
    dout[..., 0] = dout.amax(-1)
    k = torch.zeros(rows.batch, rows.groups, rows.tokens, dim, dtype=dtype, device=device)
    return q, k, _values(rows, value_dim, first).to(device, dtype), dout


def rounds(rows: Rows, heads: int, dim: int, value_dim: int) -> int:
    """How many probes, first = 0, 1, ..., show every query of every head once."""
    pairs = heads // rows.groups * rows.tokens
    return -(-pairs // min(dim, value_dim, pairs)) + 1


@torch.no_grad()
def check(probe: Probe, answer: Mapping[str, Tensor | None]) -> Difference | None:
    """Where `answer` (out, lse, dq, dk, dv; absent ones are not looked at) first differs from the probe, or None."""
    return next((found for found in differences(probe, answer).values() if found.wrong), None)


@torch.no_grad()
def differences(probe: Probe, answer: Mapping[str, Tensor | None], judged: Tensor | None = None,
                whole: Tensor | None = None, positions: Tensor | None = None,
                device: torch.device | str = "cpu") -> dict[str, Difference]:
    """The first wrong element of each tensor of `answer`, or its worst one when none is wrong.

    Counts must be right to the unit and what is 0 exactly 0; the rest may carry rounding of its own size. judged
    `[B, Hq, S]`: queries whose out, lse and dq count; whole `[B]`: batch rows whose dk and dv count; None is all.
    positions `[B, L]`: the tokens that the answer holds, -1 for none; None is every token. Computed on `device`, a head
    at a time.
    """
    found, expectations = {}, _Expectations(probe)
    for name in TENSORS:
        if answer.get(name) is None:
            continue
        parts = []
        for b, h in product(*map(range, answer[name].shape[:2])):
            tokens = torch.arange(probe.lse.shape[2]) if positions is None else positions[b]
            counted = tokens >= 0
            if name in ("dk", "dv"):
                counted &= whole is None or bool(whole[b])
            elif judged is not None:
                counted &= judged[b, h, tokens.clamp(min=0)]
            if bool(counted.any()):
                slot = counted.nonzero()[:, 0].to(device)
                actual = answer[name][b, h].to(device)[slot].double()
                parts.append(_difference(expectations, name, (b, h), tokens[counted], actual))
        found[name] = first_of(parts) if parts else Difference(name, (0,) * answer[name].dim(), 0.0, 0.0, 0.0, 0.0, 0.0)
    return found


def first_of(parts: list[Difference]) -> Difference:
    """Of differences in parts of one tensor that of the whole: the first wrong one, of queries that are shown before
    others, or the worst when none is wrong."""
    wrong = [part for part in parts if part.wrong]
    if wrong:
        return min(wrong, key=lambda part: (part.query is None, part.index))
    return max(parts, key=lambda part: part.ratio)


class _Expectations:
    """Exact values and allowances, head by head; those of lse count keys."""

    def __init__(self, probe: Probe):
        dtype = probe.dtype
        sums = torch.finfo(torch.promote_types(dtype, torch.float32)).eps * probe.count.double().sqrt()
        self.probe, self.relative = probe, ROUNDINGS * (torch.finfo(dtype).eps / 2 + sums)
        self.most, self.smallest = float(self.relative.max()), torch.finfo(dtype).smallest_normal

    def of(self, name: str, place: tuple[int, int], tokens: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
        """Value and allowance `[T, ...]` of a batch row and head at tokens `[T]`."""
        probe, (b, h) = self.probe, place

        def at(x: Tensor) -> Tensor:
            return x.to(device)[tokens.to(device)]

        if name == "lse":
            value = at(probe.lse[b, h])
            return value, torch.full_like(value, 0.5)
        if name == "out":
            value = at(probe.mean[b, h // probe.ratio])
            return value, at(self.relative[b, h])[:, None] * value
        if name == "dq":
            zero = torch.zeros((), dtype=torch.float64, device=device).expand(len(tokens), probe.dim)
            return zero, zero
        value = at(getattr(probe, name)[b, h])
        size = at(probe.dk_size[b, h]) if name == "dk" else value
        return value, self.most * size + self.smallest * (size > 0)


def _difference(expectations: _Expectations, name: str, place: tuple[int, int], tokens: Tensor,
                actual: Tensor) -> Difference:
    """The same for one head: tokens `[T]`, actual `[T, ...]` in fp64."""
    probe = expectations.probe
    expected, allowance = expectations.of(name, place, tokens, actual.device)
    count = probe.count[(*place, tokens)].to(actual.device) if name == "lse" else None
    off = (actual - expected if count is None else actual.exp() - count).abs_()
    ratio = (off / allowance).masked_fill_(off == 0, 0).nan_to_num_(nan=torch.inf, posinf=torch.inf)
    at, shown = _largest(ratio), probe.query.shape[1]
    if ratio[tuple(at)] > 1:
        wrong = (ratio > 1).nonzero()
        if name in ("dk", "dv"):
            seen = (wrong[:, 1] >= (name == "dv")) & (wrong[:, 1] < shown)
            wrong = wrong[seen] if seen.any() else wrong
        at = wrong[0]
    slot, *dim = at.tolist()
    query = None
    if name in ("dk", "dv") and (name == "dv") <= dim[0] < shown:
        query = int(probe.head[place[1], dim[0]]), int(probe.query[place[1], dim[0]])
    numbers = (float(x[tuple(at)]) for x in (expected, actual, ratio, off, allowance))
    return Difference(name, (*place, int(tokens[slot]), *dim), *numbers, query)


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


def _ones(rows: Rows, heads: int, dim: int, head: Tensor, query: Tensor, dtype: torch.dtype,
          device: torch.device | str) -> Tensor:
    """[B, Hq, S, D] with 1 in column c of the query that column c shows."""
    x = torch.zeros(rows.batch, heads, rows.tokens, dim, dtype=dtype, device=device)
    x[:, head.to(device), query.to(device), torch.arange(query.shape[1], device=device)] = 1
    return x


def _means(mask: Mask, rows: Rows, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of v over the allowed keys `[B, G, S, Dv]` and their number `[B, G, S]`."""
    total, count = torch.zeros_like(v), torch.zeros(v.shape[:3], dtype=torch.int64, device=v.device)
    before = torch.nn.functional.pad(v.cumsum(2), (0, 0, 1, 0))
    for i in torch.arange(rows.tokens).split(BLOCK):
        keys = mask.keys(rows, i).expand(-1, rows.groups, -1, -1, -1)
        count[:, :, i] = intervals.count(keys).to(v.device)
        keys = keys.to(v.device)
        for b in range(rows.batch):
            for g in range(rows.groups):
                start, end = keys[b, g].unbind(-1)
                total[b, g, i] = (before[b, g, end] - before[b, g, start]).sum(1)
    return total / count[..., None].clamp(min=1), count


def _attends(mask: Mask, rows: Rows, query: Tensor) -> Tensor:
    """[B, G, S, C] bool: whether query `query[g, c]` may attend each key."""
    found = []
    for g, i in enumerate(query):
        keys = mask.keys(rows, i.cpu()).expand(-1, rows.groups, -1, -1, -1)[:, g].to(query.device)
        edges = torch.zeros(rows.batch, len(i), rows.tokens + 1, dtype=torch.int64, device=query.device)
        for edge, sign in zip(keys.unbind(-1), (1, -1), strict=True):
            edges.scatter_add_(2, edge, torch.full_like(edge, sign))
        found.append(edges.cumsum(2)[..., :-1].mT > 0)
    return torch.stack(found, 1)


def _padded(x: Tensor, width: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))
