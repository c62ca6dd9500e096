"""Guesses about strides: what a kernel finds that reads a rank's memory as if it lay otherwise."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness import inputs
from harness.hypotheses.evidence import BACKWARD, Evidence, Guess
from harness.hypotheses.layouts import Numbered
from harness.inputs import Numbers

Read = Callable[[Tensor], Tensor]


def misread(evidence: Evidence) -> Iterator[Guess]:
    """One of the inputs, or all of them, are read as if they were dense; v is read with k's strides."""
    given = evidence.problem.case.inputs
    if given.strides == "dense" and given.dout == "random":
        return
    layout, parts = _parts(evidence)
    if all(x.is_contiguous() for part in parts for x in part.tensors()):
        return
    for names, words in (("qkv", "q, k and v are"), ("q", "q is"), ("k", "k is"), ("v", "v is")):
        found = {name: inputs.put([dense(getattr(part, name)) for part in parts], layout, evidence.owner.shape[1])
                 for name in names}
        yield from _answered(evidence, f"{words} read as dense, whatever the strides are", found)
    if evidence.k.shape == evidence.v.shape:
        found = {"v": inputs.put([reached(part.v, part.k.stride()) for part in parts], layout, evidence.owner.shape[1])}
        yield from _answered(evidence, "v is read with the strides of k", found)
    if not evidence.forward_failed:
        found = {"dout": inputs.put([dense(part.dout) for part in parts], layout, evidence.owner.shape[1])}
        yield from _answered(evidence, "dout is read as dense, whatever its strides are", found)


def _parts(evidence: Evidence) -> tuple[list[Tensor], list[Numbers]]:
    """Positions `[B, L]` and inputs of each rank, in the order of their positions."""
    held = [[row.nonzero()[:, 0] for row in evidence.owner == rank] for rank in range(evidence.world)]
    longest = max(len(row) for rows in held for row in rows)
    layout = [torch.stack([torch.cat([row, row.new_full((longest - len(row),), -1)]) for row in rows]) for rows in held]
    return layout, [inputs.shard(evidence.problem.given, positions, evidence.problem.case) for positions in layout]


def _answered(evidence: Evidence, words: str, found: dict[str, Tensor]) -> Iterator[Guess]:
    """What nobody wrote counts as what should stand there: it would make everything NaN, which says nothing."""
    clean = evidence.problem.clean
    found = {name: torch.where(x.isnan(), getattr(clean, name), x.to(clean.q.dtype)) for name, x in found.items()}
    if any(not torch.equal(x, getattr(clean, name)) for name, x in found.items()):
        answer = replace(evidence, problem=Numbered(evidence.problem, replace(clean, **found))).answer()
        yield Guess(words, "B7", {name: answer[name] for name in BACKWARD} if "dout" in found else answer)


def dense(x: Tensor) -> Tensor:
    """The numbers as they lie in memory from the first of x on, in its shape; again from there where memory ends."""
    memory = x.new_empty(0).set_(x.untyped_storage())[x.storage_offset():]
    return memory.repeat(-(-x.numel() // max(1, memory.numel())))[:x.numel()].view(x.shape)


def reached(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """What stands in x's memory at these strides; its last number where they lead beyond it."""
    memory = x.new_empty(0).set_(x.untyped_storage())[x.storage_offset():]
    places = sum(torch.arange(size).view(-1, *[1] * (x.dim() - dim - 1)) * stride
                 for dim, (size, stride) in enumerate(zip(x.shape, strides, strict=True)))
    return memory[places.clamp(max=memory.numel() - 1)]


HYPOTHESES = (misread,)
