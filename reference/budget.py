"""How far a correct answer may be from the truth (SPEC C), and where a wrong one is furthest from it.

fp64             max |x - truth| <= 1e-10 * max(1, max |finite truth|), a tensor at a time
lower precision  norm(x - truth) <= 3 * (norm(twin - truth) + u * norm(R)), for each tensor, head and block of at most
                 64 consecutive tokens of one document; R is `Truth.terms_*`, u the unit roundoff of the inputs' dtype
lse              the same; R^2 = sum_d (scale q_d)^2 (sum_j p_j^2 k_jd^2 + (sum_j p_j k_jd)^2) is what rounding of
                 products and inputs can do; with u(lse's own dtype)^2 (1 + lse^2) for storage: it is peak + log(sum)
exactly          -inf in lse, zeros of dead rows (B3) and of keys that nobody sees (B4)

In fp32 the plain R is too small where one row decides: a correct merge by lse scores 17 in documents of a few tokens,
and 51 at |score| near 100. exp(score - lse) makes rounding of its argument an error of the whole row, so in fp32 each
row's squared terms are multiplied by w^2 = 1 + lse^2 + (1 + D) * sum_j p_j sum_d (scale q_d k_jd)^2, for the D partial
sums of a score. Rows with equal scores round alike: dK and dV take the square of their terms' sum times w as well (at
scale 0 a correct ring scored 2.6 without it).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from reference.dense import Truth
from reference.twin import Twin

TENSORS = ("out", "lse", "dq", "dk", "dv")
BLOCK = 64
FACTOR = 3.0
FP64_TOLERANCE = 1e-10


@dataclass(frozen=True)
class Deviation:
    """One tensor's distance from the truth at its worst block. ratio and error are inf where something is not finite.

    ratio      error / allowance; above 1 fails
    error      2-norm over the block, in fp64 the largest element's; allowance likewise, 0 when `exact`
    tokens     first and last + 1 of the block's positions
    token, dim the worst element inside it (dim None for lse), expected and actual its values
    exact      the rule broken is an exact one: -inf of lse, or a zero
    off        `[B, H, S]` bool: every row that breaks the rule, None when none does. In a block over budget these are
               the rows with more than their even share of what it is allowed
    """

    tensor: str
    ratio: float
    error: float
    allowance: float
    batch: int
    head: int
    tokens: tuple[int, int]
    token: int
    dim: int | None
    expected: float
    actual: float
    exact: bool = False
    off: Tensor | None = field(default=None, compare=False, repr=False)


def blocks(batch: int, tokens: int, documents: Tensor | None = None, size: int = BLOCK) -> Tensor:
    """Block of each token: documents `[B, S]` ids or None -> int64 `[B, S]`, counted from 0 in each batch row.

    The tokens of a document are counted in order, wherever they stand: interleaved documents have full blocks too.
    """
    documents = torch.zeros(batch, tokens, dtype=torch.int64) if documents is None else documents.cpu()
    document, position = documents.sort(dim=1, stable=True)
    place = torch.arange(tokens).expand_as(position)
    opens = torch.ones_like(document, dtype=torch.bool)
    opens[:, 1:] = document[:, 1:] != document[:, :-1]
    first = torch.where(opens, place, 0).cummax(1).values
    number = ((place - first) % size == 0).cumsum(1) - 1
    return torch.empty_like(number).scatter_(1, position, number)


@torch.no_grad()
def judge(actual: Mapping[str, Tensor | None], truth: Truth, twin: Twin | None, dtype: torch.dtype,
          documents: Tensor | None = None, compare: Tensor | None = None) -> dict[str, Deviation]:
    """The deviation of each tensor of `actual` (out, lse, dq, dk, dv; None or absent is not compared).

    dtype is the inputs'; below fp64 it needs the twin and a truth with terms. documents `[B, S]` keep blocks inside
    one document. compare `[B, Hq, S]` bool: queries whose out, lse and dq are judged (dead.undefined: `truth.live`).
    Raises ValueError for a tensor of the wrong shape.
    """
    if dtype != torch.float64 and (twin is None or truth.terms_out is None):
        raise ValueError(f"{dtype} needs the twin and a truth with terms")
    batch, _, tokens = truth.lse.shape
    block = blocks(batch, tokens, documents).to(truth.lse.device)
    found = {}
    for name in TENSORS:
        if actual.get(name) is not None:
            table = _Table(name, actual[name].to(truth.lse.device), truth, compare)
            fair = _worst_element(table) if dtype == torch.float64 else _worst_block(table, truth, twin, dtype, block)
            found[name] = _broken_exactly(table, truth) or fair
    return found


@torch.no_grad()
def rows(name: str, actual: Tensor, truth: Truth, twin: Twin | None, dtype: torch.dtype,
         documents: Tensor | None = None, compare: Tensor | None = None) -> Tensor:
    """`[B, H, S]` error/budget of each row of one tensor; the largest is the ratio that `judge` gives.

    Below fp64 a row has the ratio of its block, times its own error over that of the block's worst row. What is not
    finite or breaks an exact rule has inf, and no part in the ratio of its block.
    """
    table = _Table(name, actual.to(truth.lse.device), truth, compare)
    most = table.error.amax(-1)
    lost = most.isinf()
    if lost.any():
        table.error.masked_fill_(lost[..., None], 0)
    if dtype == torch.float64:
        found = most / _allowance(table)
    else:
        block = blocks(*table.error.shape[::2], documents).to(truth.lse.device)
        found = _shared_out(table, _ratios(table, truth, twin, dtype, block)[0], block)
    broken = _broken_exactly(table, truth)
    return found.masked_fill_(lost if broken is None else lost | broken.off, torch.inf)


def _shared_out(table: "_Table", ratio: Tensor, block: Tensor) -> Tensor:
    """The ratio of each block, `[B, H, N]`, for its rows by their errors."""
    own = table.error.square().sum(-1).sqrt()
    index = block[:, None].expand_as(own)
    most = torch.zeros_like(ratio).scatter_reduce_(2, index, own, "amax").gather(2, index)
    return torch.where(own > 0, ratio.gather(2, index) * (own / most), 0)


class _Table:
    """One tensor, its truth and their distance in fp64, all `[B, H, S, D]`; D is 1 for lse."""

    def __init__(self, name: str, actual: Tensor, truth: Truth, compare: Tensor | None):
        expected = getattr(truth, name)
        if actual.shape != expected.shape:
            raise ValueError(f"{name} has shape {list(actual.shape)}, expected {list(expected.shape)}")
        self.name, self.dtype = name, actual.dtype
        self.expected, self.actual = self.wide(expected), self.wide(actual)
        self.judged = torch.ones_like(self.expected[..., :1], dtype=torch.bool)
        if compare is not None and name not in ("dk", "dv"):
            self.judged = compare.to(expected.device)[..., None]
        self.finite = self.expected.isfinite()
        self.error = self.distance(self.actual)

    def wide(self, x: Tensor) -> Tensor:
        return (x[..., None] if self.name == "lse" else x).double()

    def distance(self, x: Tensor) -> Tensor:
        """|x - truth| where it is judged and the truth finite, else 0; inf where x is not finite."""
        distance = (x - self.expected).abs_().nan_to_num_(nan=torch.inf, posinf=torch.inf)
        return distance.masked_fill_(~(self.finite & self.judged), 0)

    def deviation(self, where: Tensor, tokens: tuple[int, int], ratio: float, error: float, allowance: float,
                  exact: bool = False) -> Deviation:
        batch, head, token, dim = where.tolist()
        expected, actual = self.expected[batch, head, token, dim].item(), self.actual[batch, head, token, dim].item()
        return Deviation(self.name, ratio, error, allowance, batch, head, tokens, token,
                         None if self.name == "lse" else dim, expected, actual, exact)


def _worst_element(table: _Table) -> Deviation:
    """The rule for fp64."""
    allowance = _allowance(table)
    where = _largest(table.error)
    token, error = int(where[2]), table.error[tuple(where)].item()
    off = (table.error > allowance).any(-1) if error > allowance else None
    return replace(table.deviation(where, (token, token + 1), error / allowance, error, allowance), off=off)


def _allowance(table: _Table) -> float:
    return FP64_TOLERANCE * table.expected.abs().masked_fill_(~table.finite, 0).max().clamp(min=1).item()


def _ratios(table: _Table, truth: Truth, twin: Twin, dtype: torch.dtype, block: Tensor) -> tuple[Tensor, ...]:
    """Of each block, `[B, H, N]`: error/allowance, error and allowance."""
    rounding = _unit(dtype) * table.wide(getattr(truth, f"terms_{table.name}"))
    if table.name == "lse":
        stored = torch.where(table.finite, 1 + table.expected.square(), 0).sqrt() * _unit(table.dtype)
        rounding = torch.hypot(rounding, stored)
    twin_error = _norms(table.distance(table.wide(getattr(twin, table.name))), block)
    if not twin_error.isfinite().all():
        raise ValueError(f"{dtype} cannot hold {table.name}: the twin is not finite where the truth is")
    error, allowance = _norms(table.error, block), FACTOR * (twin_error + _norms(rounding * table.judged, block))
    return torch.where(error == 0, 0, error / allowance), error, allowance


def _worst_block(table: _Table, truth: Truth, twin: Twin, dtype: torch.dtype, block: Tensor) -> Deviation:
    """The rule below fp64."""
    ratio, error, allowance = _ratios(table, truth, twin, dtype, block)
    batch, head, worst = _largest(ratio).tolist()
    tokens = (block[batch] == worst).nonzero()[:, 0]
    token, dim = _largest(table.error[batch, head, tokens]).tolist()
    where = torch.tensor([batch, head, int(tokens[token]), dim])
    picked = (x[batch, head, worst].item() for x in (ratio, error, allowance))
    found = table.deviation(where, (int(tokens[0]), int(tokens[-1]) + 1), *picked)
    return replace(found, off=_over(table, ratio, allowance, block)) if found.ratio > 1 else found


def _over(table: _Table, ratio: Tensor, allowance: Tensor, block: Tensor) -> Tensor:
    """Rows of blocks over budget that have more than their even share of it: at least one in each."""
    heads = table.error.shape[1]
    index, length = block[:, None].expand(-1, heads, -1), torch.zeros_like(ratio)
    length.scatter_add_(2, index, length.new_ones(1, 1, 1).expand(index.shape))
    share = (allowance / length.sqrt()).gather(2, index)
    return (ratio > 1).gather(2, index) & (table.error.square().sum(-1).sqrt() > share)


def _broken_exactly(table: _Table, truth: Truth) -> Deviation | None:
    """The first element that is not what it had to be exactly: minus infinity just in dead rows, or 0."""
    if table.name == "lse":
        wrong = (table.actual == -torch.inf) != ~truth.live[..., None]
    else:
        visible = truth.seen if table.name in ("dk", "dv") else truth.live
        if visible.all():
            return None
        wrong = ~visible[..., None] & (table.actual != 0)
    wrong &= table.judged
    if not wrong.any():
        return None
    where = wrong.nonzero()[0]
    token = int(where[2])
    error = (table.actual - table.expected)[tuple(where)].abs().nan_to_num(nan=torch.inf, posinf=torch.inf).item()
    return replace(table.deviation(where, (token, token + 1), torch.inf, error, 0.0, exact=True), off=wrong.any(-1))


def _norms(x: Tensor, block: Tensor) -> Tensor:
    """2-norm over each block: x `[B, H, S, D]`, block `[B, S]` -> `[B, H, N]`, 0 where a row has no such block."""
    squares = x.square().sum(-1)
    total = squares.new_zeros(*squares.shape[:2], int(block.max()) + 1)
    return total.scatter_add_(2, block[:, None].expand_as(squares), squares).sqrt_()


def _largest(x: Tensor) -> Tensor:
    """Index of the largest element."""
    return torch.stack(torch.unravel_index(x.argmax(), x.shape))


def _unit(dtype: torch.dtype) -> float:
    """Unit roundoff."""
    return torch.finfo(dtype).eps / 2
