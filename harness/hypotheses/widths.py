"""Guesses about what a kernel leaves out: the last dimensions of a head, whole heads, dimensions of values."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence, Guess, Tensors
from harness.hypotheses.layouts import Numbered

CUTS = (8, 16, 32, 48, 64, 96, 128, 192, 256)


def dims_left_out(evidence: Evidence) -> Iterator[Guess]:
    """Scores are those of the first dimensions alone."""
    shape, clean = evidence.problem.case.shape, evidence.problem.clean
    if not evidence.forward_failed:
        return
    tiles = {shape.head_dim // size * size for size in (8, 16, 32, 64)}
    for cut in sorted({*CUTS, *tiles} & set(range(1, shape.head_dim)), reverse=True):
        kept = torch.arange(shape.head_dim) < cut
        less = Numbered(evidence.problem, replace(clean, q=clean.q * kept, k=clean.k * kept))
        yield replace(evidence, problem=less).attended(f"dimensions of q and k beyond {cut} are left out", "B1")


def values_left_out(evidence: Evidence) -> Iterator[Guess]:
    """Dimensions of V, where it is wider than Q, are neither read nor written."""
    shape, clean = evidence.problem.case.shape, evidence.problem.clean
    if shape.v_dim > shape.head_dim:
        kept = torch.arange(shape.v_dim) < shape.head_dim
        less = Numbered(evidence.problem, replace(clean, v=clean.v * kept, dout=clean.dout * kept))
        answer = replace(evidence, problem=less).answer()
        yield Guess("value dimensions beyond the head_dim of queries are left out", "A9",
                    {name: answer[name] for name in ("out", "dq", "dk", "dv")})


def heads_left_out(evidence: Evidence) -> Iterator[Guess]:
    """Some query heads are 0, in the backward as well; which ones is read off the answer."""
    out, true = evidence.actual["out"], evidence.problem.truth.out
    lost = (out == 0).flatten(2).all(-1).all(0) & (true != 0).flatten(2).any(-1).any(0)
    if bool(lost.any()) and not bool(lost.all()):
        heads = lost.nonzero()[:, 0].tolist()
        words = f"query head {heads[0]} is" if len(heads) == 1 else f"query heads {', '.join(map(str, heads))} are"
        yield Guess(f"{words} left out", "A8", _without(evidence, ~lost[:, None, None]))


def _without(evidence: Evidence, kept: Tensor) -> Tensors:
    dout = evidence.dout * kept
    grads = evidence.grads(evidence.true_weights, evidence.true_dscores * kept, dout=dout)
    return {"out": evidence.problem.truth.out * kept, **grads}


HYPOTHESES = (dims_left_out, values_left_out, heads_left_out)
