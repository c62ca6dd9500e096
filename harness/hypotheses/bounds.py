"""Guesses about numbers that are held within bounds: clipped, flushed to zero, or kept from dividing by too little."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from harness.hypotheses.evidence import BACKWARD, Evidence, Guess, Tensors
from harness.hypotheses.layouts import Numbered

LIMITS = (1, 2, 4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 25, 30, 32, 40, 50, 60, 64, 80, 88, 100, 127, 448, 65504)


def clipped(evidence: Evidence) -> Iterator[Guess]:
    """Each failed tensor stops at the largest number that the answer holds, or begins at the smallest."""
    names = [name for name in evidence.failed if name != "lse"]
    true = {name: getattr(evidence.problem.truth, name) for name in names}
    actual = {name: evidence.actual[name].double() for name in names}
    if len(names) < len(evidence.failed) or not all(bool(x.isfinite().all()) for x in actual.values()):
        return
    most = {name: float(x.abs().max()) for name, x in actual.items()}
    yield Guess("; ".join(f"{name} is clipped at {limit:.4g}" for name, limit in most.items()), _broken(names),
                {name: x.clamp(-most[name], most[name]) for name, x in true.items()})
    least = {name: float(x.abs().masked_fill(actual[name] != 0, 0).max()) for name, x in true.items()}
    yield Guess("; ".join(f"{name} up to {limit:.3g} is flushed to 0" for name, limit in least.items()), _broken(names),
                {name: x.masked_fill(x.abs() <= least[name], 0) for name, x in true.items()})


def scores_clipped(evidence: Evidence) -> Iterator[Guess]:
    if not evidence.forward_failed:
        return
    scores = evidence.scores * evidence.scale
    largest = float(scores.masked_fill(~evidence.allowed, -torch.inf).max())
    for limit in (limit for limit in LIMITS if limit < largest):
        yield evidence.attended(f"scores are clipped at {limit}", "B1", bias=scores.clamp(max=limit) - scores)


def inputs_clipped(evidence: Evidence) -> Iterator[Guess]:
    """One of q, k and v is held within bounds."""
    clean = evidence.problem.clean
    for name in "vkq" if evidence.forward_failed else "":
        x = getattr(clean, name)
        for limit in (limit for limit in LIMITS if limit < float(x.abs().max())):
            held = Numbered(evidence.problem, replace(clean, **{name: x.clamp(-limit, limit)}))
            yield replace(evidence, problem=held).attended(f"{name} is clipped at {limit}", "B1")


def denominator(evidence: Evidence) -> Iterator[Guess]:
    """The sum of exponentials is too large by the same number everywhere, as one that starts with an epsilon."""
    if "out" not in evidence.failed or "lse" in evidence.failed:
        return
    truth, actual = evidence.problem.truth, evidence.actual["out"].double()
    share = (actual * truth.out).sum(-1) / (truth.out ** 2).sum(-1)
    read = truth.live & (share > 0)
    small, lack = (-truth.lse[read]).exp(), 1 / share[read] - 1
    more = float((small * lack).sum() / (small ** 2).sum())
    if not 0 < more < torch.inf:
        return
    weight = (1 / (1 + more * (-truth.lse).exp())).masked_fill(~truth.live, 0)[..., None]
    clean = evidence.problem.clean

    def rest() -> Tensors:
        answer = replace(evidence, problem=Numbered(evidence.problem, replace(
            clean, dout=clean.dout * weight.to(clean.dout.dtype)))).answer()
        return {name: answer[name] for name in BACKWARD}

    yield Guess(f"the softmax's denominator is {more:.3g} too large", "B1",
                {"out": truth.out * weight}, rest if evidence.backward_failed else None)


def _broken(names: list[str]) -> str:
    return "B1" if "out" in names else "B4"


HYPOTHESES = (clipped, scores_clipped, inputs_clipped, denominator)
