"""Guesses about state: what belongs to another batch of the same course is taken for this one's."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from harness.hypotheses.evidence import BACKWARD, FORWARD, Evidence, Guess

METADATA = {"documents": ("documents",), "padding": ("padding",), "token types": ("token_types",),
            "regions": ("token_regions",), "selection": ("selected",)}


def another_batch(evidence: Evidence) -> Iterator[Guess]:
    """All of another batch's metadata, or one of its tensors: a cache that looks at too little."""
    rows, mask = evidence.problem.rows, evidence.problem.mask
    for name, other in evidence.others.items():
        yield from evidence.over(f"answered with the metadata of {name}", "D3",
                                 evidence.pairs(other.mask, other.rows))
        for words, fields in METADATA.items():
            changed = {field: getattr(other.rows, field) for field in fields}
            if None not in changed.values():
                yield from evidence.over(f"answered with the {words} of {name}", "D3",
                                         evidence.pairs(mask, replace(rows, **changed)))


def another_answer(evidence: Evidence) -> Iterator[Guess]:
    """What was answered to another batch is given again."""
    for name, other in evidence.others.items():
        for tensors in ((*FORWARD, *BACKWARD), FORWARD, BACKWARD):
            yield Guess(f"the {_kind(tensors)} of {name} given again", "D3",
                        {tensor: getattr(other.truth, tensor) for tensor in tensors})


def another_memory(evidence: Evidence) -> Iterator[Guess]:
    """The backward finds what another step saved: its inputs, out and lse, under this one's mask and dout."""
    if evidence.forward_failed:
        return
    for name, other in evidence.others.items():
        if other.clean.q.shape != evidence.q.shape or other.clean.v.shape[3] != evidence.v.shape[3]:
            continue
        there = replace(evidence, problem=other)
        exponents = there.scores * there.scale - other.truth.lse[..., None]
        weights = exponents.masked_fill(~evidence.allowed, -torch.inf).exp()
        dscores = there.dscores(weights, other.truth.out, evidence.dout)
        yield Guess(f"the backward uses what {name} saved", "D3", there.grads(weights, dscores, dout=evidence.dout))


def _kind(tensors: tuple[str, ...]) -> str:
    return {FORWARD: "output", BACKWARD: "gradients"}.get(tensors, "answer")


HYPOTHESES = (another_batch, another_answer, another_memory)
