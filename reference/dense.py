"""The truth: dense attention in fp64 with hand-written gradients, in blocks of query rows (SPEC B, C).

Tensors of a block carry their query heads grouped by key/value head: [B, G, R * I, D] with R query heads a group. Keys
and their gradients stand feature first, [B, G, D, J]: products with a long last axis take half the time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from reference.pairs import Pairs, rows_at_once


@dataclass(frozen=True)
class Truth:
    """The exact answer, all fp64, and what a budget needs to know about it.

    out [B, Hq, S, Dv]   lse [B, Hq, S], -inf in dead rows   dq [B, Hq, S, D]   dk [B, Hkv, S, D]   dv [B, Hkv, S, Dv]
    live [B, Hq, S]      queries that may attend some key
    seen [B, Hkv, S]     keys that some query may attend
    terms_*              shaped like their tensor: root of the sum of squares of the terms of each element (SPEC C),
                         None when they were not asked for; in fp32 with what rows add that round alike
    """

    out: Tensor
    lse: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    live: Tensor
    seen: Tensor
    terms_out: Tensor | None = None
    terms_lse: Tensor | None = None
    terms_dq: Tensor | None = None
    terms_dk: Tensor | None = None
    terms_dv: Tensor | None = None


@torch.no_grad()
def truth(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: Mask, rows: Rows, scale: float | None = None,
          terms: bool = True) -> Truth:
    """Attention and its gradients in fp64, whatever the dtype of the inputs.

    q `[B, Hq, S, D]`, k `[B, Hkv, S, D]`, v `[B, Hkv, S, Dv]`, dout `[B, Hq, S, Dv]`; scale None is 1/sqrt(D).
    What dead queries and unseen keys hold, NaN included, changes nothing (SPEC B5). Memory is O(block * S).
    Raises ValueError when other tokens hold NaN or Inf.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    pairs = Pairs(mask, rows, rows_at_once(q))
    live, seen = pairs.live.to(q.device), pairs.seen.to(q.device)
    answer = _Answer(q, k, v, terms)
    keys = [exactly(x, seen).mT.contiguous() for x in (k, v)]
    keys += [x.square() for x in keys] if terms else []
    grouped = [x.unflatten(1, (k.shape[1], -1)) for x in (q, dout)]
    for i, j, allowed in pairs:
        queries, douts = (exactly(x[:, :, :, i], live[:, :, None, i]).flatten(2, 3) for x in grouped)
        _block(answer, i, j, queries, douts, [x[..., j] for x in keys], allowed.to(q.device), scale)
    heads = q.shape[1] // k.shape[1]
    return answer.finish(live.repeat_interleave(heads, 1), seen)


def exactly(x: Tensor, visible: Tensor) -> Tensor:
    """x `[..., D]` in fp64, zero where `visible` `[...]` is false: masked weights must never meet NaN."""
    return x.double().masked_fill(~visible[..., None], 0)


def attend(q: Tensor, k: Tensor, allowed: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Softmax over allowed keys: q `[B, G, R * I, D]`, k `[B, G, D, J]`, allowed `[B, G or 1, I, J]` ->
    weights `[B, G, R * I, J]` (0 in dead rows) and lse `[B, G, R * I, 1]` (-inf in dead rows)."""
    scores = (q @ k).mul_(scale)
    scores.unflatten(2, (-1, allowed.shape[2])).masked_fill_(~allowed[:, :, None], -torch.inf)
    peak = scores.amax(-1, keepdim=True)
    peak.masked_fill_(peak == -torch.inf, 0)
    weights = scores.sub_(peak).exp_()
    total = weights.sum(-1, keepdim=True)
    return weights.div_(total.clamp(min=1)), total.log().add_(peak)


class _Answer:
    """Accumulators of the answer: query tensors are written block by block, key tensors are added to."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, terms: bool):
        batch, groups, tokens, dim = k.shape
        by_query = batch, groups, q.shape[1] // groups, tokens
        shapes = {"out": (*by_query, v.shape[-1]), "lse": (*by_query, 1), "dq": (*by_query, dim),
                  "dk": (batch, groups, dim, tokens), "dv": (batch, groups, v.shape[-1], tokens)}
        if terms:
            shapes |= {f"terms_{name}": shape for name, shape in shapes.items()}
        self.terms, self.fp32 = terms, terms and q.dtype == torch.float32
        if self.fp32:
            shapes |= {f"alike_{name}": shapes[name] for name in ("dk", "dv")}
        self.tensors = {name: q.new_zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
        self.tensors["lse"].fill_(-torch.inf)

    def write(self, name: str, i: slice, block: Tensor) -> None:
        target = self.tensors[name]
        target[:, :, :, i] = block.unflatten(2, (target.shape[2], -1))

    def add(self, name: str, j: slice, block: Tensor) -> None:
        self.tensors[name][..., j] += block

    def finish(self, live: Tensor, seen: Tensor) -> Truth:
        """Takes the roots of the terms; those of keys still lack each element's own square."""
        tensors = self.tensors
        if not all(tensors[name].isfinite().all() for name in ("out", "dq", "dk", "dv")):
            raise ValueError("q, k, v or dout of visible tokens are not finite, or too large for fp64")
        for name in ("dk", "dv") if self.terms else ():
            tensors[f"terms_{name}"].addcmul_(tensors[name], tensors[name])
        for name in ("dk", "dv") if self.fp32 else ():
            tensors[f"terms_{name}"].add_(tensors.pop(f"alike_{name}").square_())
        for name in tensors:
            if name.startswith("terms_"):
                tensors[name].sqrt_()
        whole = {name: x.flatten(1, 2) if x.ndim == 5 else x.mT.contiguous() for name, x in tensors.items()}
        whole |= {name: whole[name].squeeze(-1) for name in ("lse", "terms_lse") if name in whole}
        return Truth(live=live, seen=seen, **whole)


def _block(answer: _Answer, i: slice, j: slice, q: Tensor, dout: Tensor, keys: list[Tensor], allowed: Tensor,
           scale: float) -> None:
    """Everything that one block of query rows makes or adds."""
    k, v = keys[:2]
    weights, lse = attend(q, k, allowed, scale)
    out = (v @ weights.mT).mT
    delta = (out * dout).sum(-1, keepdim=True)
    dweights = dout @ v
    dweights2 = dweights.square().add_(delta.square()) if answer.terms else None
    dscores = dweights.sub_(delta).mul_(weights).mul_(scale)
    dq = (k @ dscores.mT).mT
    answer.write("out", i, out)
    answer.write("lse", i, lse)
    answer.write("dq", i, dq)
    answer.add("dk", j, q.mT @ dscores)
    answer.add("dv", j, dout.mT @ weights)
    if not answer.terms:
        return
    row = _row(q, keys[2], weights, lse, scale) if answer.fp32 else 1.0
    if answer.fp32:
        answer.add("alike_dk", j, (q * row.sqrt()).mT @ dscores)
        answer.add("alike_dv", j, (dout * row.sqrt()).mT @ weights)
    squares = [x.square() for x in (q, dout, out, dq)]
    means2 = (k @ weights.mT).mT.square()
    _block_terms(answer, i, j, squares, keys[2:], weights, means2, row, dweights2, scale)


def _row(q: Tensor, k2: Tensor, weights: Tensor, lse: Tensor, scale: float) -> Tensor:
    """How much more a row's terms can be off in fp32: a score's D partial sums are rounded like its terms, and
    exp(score - lse) takes over the lse's own rounding."""
    scores2 = (k2 @ weights.mT).mT.mul_(q.square()).sum(-1, keepdim=True).mul_(scale ** 2)
    return 1 + (1 + q.shape[-1]) * scores2 + lse.masked_fill(lse == -torch.inf, 0).square_()


def _block_terms(answer: _Answer, i: slice, j: slice, query_squares: list[Tensor], key_squares: list[Tensor],
                 weights: Tensor, means2: Tensor, row: Tensor | float, dweights2: Tensor, scale: float) -> None:
    """Sums of squared terms; means2 is the square of (sum of p k), dweights2 is dP^2 + delta^2."""
    q2, dout2, out2, dq2 = query_squares
    k2, v2 = key_squares
    sums = 1 + q2.shape[-1] if answer.fp32 else 1
    weights2 = weights.square_()
    dscores2 = dweights2.add_(dout2 @ v2).mul_(weights2).mul_(scale ** 2)
    lse2 = (k2 @ weights2.mT).mT.add(means2).mul_(q2).sum(-1, keepdim=True)
    answer.write("terms_lse", i, lse2.mul_(scale ** 2 * sums))
    answer.write("terms_out", i, (v2 @ weights2.mT).mT.add(out2).mul_(row))
    answer.write("terms_dq", i, (k2 @ dscores2.mT).mT.add(dq2).mul_(row))
    answer.add("terms_dk", j, (q2 * row).mT @ dscores2)
    answer.add("terms_dv", j, (dout2 * row).mT @ weights2)
