"""Guesses about numbers rather than pairs: scale, heads, lse, dead rows, factors."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.hypotheses.evidence import BACKWARD, FORWARD, Evidence, Guess, Tensors
from harness.hypotheses.layouts import Numbered, exchanged


def scale(evidence: Evidence) -> Iterator[Guess]:
    shape, given = evidence.problem.case.shape, evidence.problem.case.scale
    default = shape.head_dim ** -0.5
    others = {"the scale is missing": 1.0, "the scale is applied twice": evidence.scale ** 2,
              "the scale is that of a padded head_dim": (1 << (shape.head_dim - 1).bit_length()) ** -0.5,
              "the scale is 1/head_dim": 1 / shape.head_dim, "the scale is that of the value head_dim":
              shape.v_dim ** -0.5, "the scale's sign is lost": abs(evidence.scale)}
    if given is not None:
        others = {"the given scale is ignored": default, "the given scale multiplies the default one": given * default,
                  "a scale of 0 is taken for none": default if given == 0 else given} | others
    for words, other in others.items():
        if other != evidence.scale and evidence.forward_failed:
            yield evidence.attended(words, "A9", scale=other)
        elif other != evidence.scale and evidence.scale:
            rate = other / evidence.scale
            truth = evidence.problem.truth
            yield Guess(f"in the backward, {words}", "A9", {name: getattr(truth, name) * rate for name in ("dq", "dk")})
            for name in ("dq", "dk"):
                yield Guess(f"in {name}, {words}", "A9", {name: getattr(truth, name) * rate})


def heads_misread(evidence: Evidence) -> Iterator[Guess]:
    """Query heads that read other key/value heads than their own."""
    shape = evidence.problem.case.shape
    own = torch.arange(shape.heads) // evidence.heads
    others = {"query head h reads key/value head h % Hkv": torch.arange(shape.heads) % shape.kv_heads,
              "every query head reads key/value head 0": torch.zeros_like(own),
              "key/value heads are read in reverse": shape.kv_heads - 1 - own,
              "query heads read the next key/value head": (own + 1) % shape.kv_heads,
              "query head h reads key/value head h, as far as there are any": torch.arange(shape.heads).clamp(
                  max=shape.kv_heads - 1)}
    for first in (2, 4, 8):
        some = own.masked_fill(torch.arange(shape.heads) >= first, 0)
        others[f"query heads from {first} on read key/value head 0"] = some
    for words, group in others.items():
        if not torch.equal(group, own):
            yield from _with_heads(evidence, words, group)


def _with_heads(evidence: Evidence, words: str, group: Tensor) -> Iterator[Guess]:
    clean, own = evidence.problem.clean, torch.arange(len(group)) // evidence.heads
    k, v = (x.double()[:, group] for x in (clean.k, clean.v))
    allowed = evidence.allowed[:, group * evidence.heads]
    for said, keys, values in ((words, k, v), (f"{words}, for values only", evidence.k, v),
                               (f"{words}, for keys only", k, evidence.v)):
        scores = (evidence.q @ keys.mT * evidence.scale).masked_fill(~allowed, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse.masked_fill(lse.isinf(), 0)[..., None]).exp()
        out = weights @ values

        def rest(weights=weights, out=out, keys=keys, values=values) -> Tensors:
            delta = (out * evidence.dout).sum(-1, keepdim=True)
            dscores = weights * (evidence.dout @ values.mT - delta) * evidence.scale
            of_keys, of_values = (group if other is x else own for other, x in ((keys, k), (values, v)))
            return {"dq": dscores @ keys, "dk": _summed(dscores.mT @ evidence.q, of_keys, clean.k.shape[1]),
                    "dv": _summed(weights.mT @ evidence.dout, of_values, clean.k.shape[1])}

        yield Guess(said, "A8", {"out": out, "lse": lse} if keys is k or evidence.backward_failed else {"out": out},
                    rest if evidence.backward_failed else None)


def arriving_heads(evidence: Evidence) -> Iterator[Guess]:
    """Heads are mixed up only in what comes from other ranks."""
    shape = evidence.problem.case.shape
    if evidence.world == 1 or shape.kv_heads == 1 or not evidence.forward_failed:
        return
    own, remote = torch.arange(shape.heads) // evidence.heads, evidence.apart != 0
    clean = evidence.problem.clean
    for words, group in (("in reverse", shape.kv_heads - 1 - own), ("all the first", torch.zeros_like(own)),
                         ("one too far", (own + 1) % shape.kv_heads)):
        k, v = (x.double()[:, group] for x in (clean.k, clean.v))
        scores = torch.where(remote, evidence.q @ k.mT, evidence.scores) * evidence.scale
        scores = scores.masked_fill(~evidence.allowed, -torch.inf)
        lse = scores.logsumexp(-1)
        weights = (scores - lse.masked_fill(lse.isinf(), 0)[..., None]).exp()
        out = (weights * ~remote) @ evidence.v + (weights * remote) @ v
        dweights = torch.where(remote, evidence.dout @ v.mT, evidence.dout @ evidence.v.mT)
        dscores = weights * (dweights - (out * evidence.dout).sum(-1, keepdim=True))
        dq = evidence.scale * ((dscores * ~remote) @ evidence.k + (dscores * remote) @ k)
        found = {"out": out, "lse": lse, **evidence.grads(weights, dscores), "dq": dq}
        names = FORWARD + BACKWARD if evidence.backward_failed else FORWARD
        yield Guess(f"key/value heads that arrive are {words}", "A8", {name: found[name] for name in names})


def _summed(x: Tensor, group: Tensor, groups: int) -> Tensor:
    return x.new_zeros(x.shape[0], groups, *x.shape[2:]).index_add_(1, group, x)


def group_not_summed(evidence: Evidence) -> Iterator[Guess]:
    """dk and dv hold one query head of their group, or go to the wrong group."""
    if evidence.heads > 1:
        each = [x.unflatten(1, (-1, evidence.heads)) for x in
                (evidence.scale * evidence.true_dscores.mT @ evidence.q, evidence.true_weights.mT @ evidence.dout)]
        for words, head in (("first", 0), ("last", -1)):
            yield Guess(f"gradients of keys hold only the {words} query head of their group", "A8",
                        dict(zip(("dk", "dv"), (x[:, :, head] for x in each), strict=True)))
    truth, shape = evidence.problem.truth, evidence.problem.case.shape
    if shape.kv_heads > 1:
        order = torch.arange(shape.heads).view(-1, shape.kv_heads).T.flatten()
        whole = [evidence.scale * evidence.true_dscores.mT @ evidence.q, evidence.true_weights.mT @ evidence.dout]
        sums = (evidence.grouped(x[:, order]) for x in whole)
        yield Guess("gradients of keys are summed over interleaved heads", "A8",
                    dict(zip(("dk", "dv"), sums, strict=True)))
        yield Guess("gradients of keys arrive at the next head", "A8",
                    {"dk": truth.dk.roll(1, 1), "dv": truth.dv.roll(1, 1)})


def lse_misread(evidence: Evidence) -> Iterator[Guess]:
    lse, scores = evidence.problem.truth.lse, evidence.scores * evidence.scale
    peak = scores.masked_fill(~evidence.allowed, -torch.inf).amax(-1)
    unscaled = evidence.weights(evidence.allowed, 1.0)[1]
    others = {"lse is a logarithm of base 2": lse / math.log(2), "lse is converted twice from base 2":
              lse * math.log(2), "lse is a logarithm of base 10": lse / math.log(10),
              "lse lacks the largest score": lse - peak.masked_fill(peak.isinf(), 0),
              "lse is the largest score": peak, "lse is a sum, not its log": lse.exp(), "lse is of unscaled scores":
              unscaled, "lse is multiplied by the scale": lse * evidence.scale, "lse is negated": -lse}
    others["lse is read with heads and tokens exchanged"] = exchanged(evidence, lse)
    shift = (evidence.actual["lse"].double() - lse)[lse.isfinite()] if "lse" in evidence.actual else lse.new_zeros(0)
    if shift.numel() and bool(shift.isfinite().all()):
        others[f"lse is {float(shift.median()):.4g} too large"] = lse + shift.median()
    for words, other in others.items():
        other = other.masked_fill(lse.isinf(), -torch.inf)
        yield Guess(words, "B2", {"lse": other})
        if evidence.backward_failed:
            yield from evidence.after(f"{words}, in the backward too", "B2", evidence.problem.truth.out, other)


def dead_rows(evidence: Evidence) -> Iterator[Guess]:
    truth = evidence.problem.truth
    if bool(truth.live.all()):
        return
    dead, mean = ~truth.live, evidence.v.mean(2, keepdim=True).expand_as(truth.out)
    filled = {name: truth.lse.masked_fill(dead, value) for name, value in
              (("0", 0.0), ("a large negative number", -1e30), ("the log of the row's length",
                                                               math.log(dead.shape[-1])))}
    for words, lse in filled.items():
        yield Guess(f"lse of rows that see no key is {words}, not minus infinity", "B3", {"lse": lse})
    out = torch.where(dead[..., None], mean, truth.out)
    yield Guess("rows that see no key average all values", "B3", {"out": out})
    yield Guess("rows that see no key average all values", "B3", {"out": out, "lse": filled["0"]})


def factor(evidence: Evidence) -> Iterator[Guess]:
    """The failed tensors are the truth times one number, or each by its own, everywhere or on one rank."""
    if "lse" in evidence.failed:
        return
    true = {name: getattr(evidence.problem.truth, name) for name in evidence.failed}
    for rank in (None, *(range(evidence.world) if evidence.world > 1 else ())):
        held = (evidence.owner >= 0 if rank is None else evidence.owner == rank)[:, None, :, None]
        place = "" if rank is None else f" on rank {rank}"
        ratios = {name: _ratio(evidence.actual[name].double(), x, held) for name, x in true.items()}
        values = list(ratios.values())
        if not all(math.isfinite(one) for one in values) or all(abs(one - 1) < 1e-3 for one in values):
            continue
        one = max(values) - min(values) <= 1e-3 * max(1.0, *map(abs, values))
        words = (f"{', '.join(true)}: {_times(values[0])}" if one else
                 "; ".join(f"{name}: {_times(ratio)}" for name, ratio in ratios.items())) + place
        yield Guess(words, "B1" if "out" in true else "B4",
                    {name: torch.where(held, x * ratios[name], x) for name, x in true.items()})


def _ratio(actual: Tensor, true: Tensor, held: Tensor) -> float:
    size = float((true ** 2 * held).sum())
    return float((true * actual * held).sum()) / size if size else 1.0


def _times(ratio: float) -> str:
    return "0" if abs(ratio) < 1e-12 else f"{ratio:.4g} times the truth"


def values_taken_for_keys(evidence: Evidence) -> Iterator[Guess]:
    shape, truth = evidence.problem.case.shape, evidence.problem.truth
    if shape.head_dim == shape.v_dim:
        yield Guess("dk and dv are exchanged", "B4", {"dk": truth.dv, "dv": truth.dk})
        clean = evidence.problem.clean
        swapped = replace(evidence, problem=Numbered(evidence.problem, replace(clean, k=clean.v, v=clean.k)))
        yield Guess("keys and values are exchanged", "B1", swapped.answer())
        same = replace(evidence, problem=Numbered(evidence.problem, replace(clean, v=clean.k)))
        yield Guess("keys are taken for values", "B1", same.answer())
        same = replace(evidence, problem=Numbered(evidence.problem, replace(clean, k=clean.v)))
        yield Guess("values are taken for keys", "B1", same.answer())


FITTED_ROWS = 64


def scale_fitted(evidence: Evidence) -> Iterator[Guess]:
    """The scale that fits lse best, by a search that halves its steps."""
    if "lse" not in evidence.failed or not evidence.scale:
        return
    lse = evidence.actual["lse"].double()
    finite = lse.isfinite() & evidence.problem.truth.lse.isfinite()
    if not bool(finite.any()):
        return
    rows = finite.nonzero()
    b, head, i = rows[::-(-len(rows) // FITTED_ROWS)].unbind(-1)
    allowed = evidence.allowed.expand(*evidence.scores.shape)[b, head, i]
    scores, wanted = evidence.scores[b, head, i].masked_fill(~allowed, 0.0), lse[b, head, i]

    def off(factor: float) -> float:
        found = (scores * (evidence.scale * factor)).masked_fill(~allowed, -torch.inf).logsumexp(-1)
        return float((found - wanted).square().mean())

    best = min((2.0 ** (power / 2) for power in range(-8, 9)), key=off)
    step = 1.5
    for _ in range(24):
        best = min((best / step, best, best * step), key=off)
        step = step ** 0.6
    if abs(best - 1) > 1e-6:
        yield evidence.attended(f"the scale is {evidence.scale * best:.6g}, not {evidence.scale:.6g}", "A9",
                                scale=evidence.scale * best)


HYPOTHESES = (lse_misread, dead_rows, factor, scale, scale_fitted, heads_misread, arriving_heads,
              group_not_summed, values_taken_for_keys)
