"""Guesses about where tokens stand: an implementation that holds other tokens than its layout says."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from harness.hypotheses.evidence import BACKWARD, FORWARD, Evidence, Guess


class Numbered:
    """A problem with other numbers on the same mask."""

    def __init__(self, problem, clean):
        self.case, self.mask, self.rows, self.clean = problem.case, problem.mask, problem.rows, clean


def other_layout(evidence: Evidence) -> Iterator[Guess]:
    """Tokens are taken to stand where another layout would have them."""
    if not evidence.forward_failed:
        return
    tokens = evidence.owner.shape[1]
    held = [(evidence.owner[0] == rank).nonzero()[:, 0] for rank in range(evidence.world)]
    if bool((evidence.owner != evidence.owner[:1]).any()):
        return
    for name, parts in layouts(tokens, evidence.world).items():
        if [len(part) for part in parts] == [len(part) for part in held]:
            place = torch.empty(tokens, dtype=torch.int64)
            place[torch.cat(held)] = torch.cat(parts)
            if not torch.equal(place, torch.arange(tokens)):
                yield _placed(evidence, f"tokens are taken to stand in {name}", place)


def layouts(tokens: int, world: int) -> dict[str, list[Tensor]]:
    """Who might hold what."""
    every, ranks = torch.arange(tokens), range(world)
    contiguous, halves = every.tensor_split(world), every.tensor_split(2 * world)
    zigzag = [torch.cat([halves[rank], halves[2 * world - 1 - rank]]) for rank in ranks]
    found = {"a contiguous layout": contiguous, "a striped layout": [every[rank::world] for rank in ranks],
             "a zigzag layout": zigzag,
             "a zigzag layout with its second half backward": [
                 torch.cat([halves[rank], halves[2 * world - 1 - rank].flip(0)]) for rank in ranks]}
    for name, parts in dict(found).items():
        found[f"{name}, its ranks reversed"] = list(parts)[::-1]
        found[f"{name}, its ranks rotated"] = [parts[(rank + 1) % world] for rank in ranks]
        found[f"{name}, rotated the other way"] = [parts[(rank - 1) % world] for rank in ranks]
        found[f"{name}, each rank's tokens reversed"] = [part.flip(0) for part in parts]
    found["a row read backward"] = list(every.flip(0).tensor_split(world))
    return {name: list(parts) for name, parts in found.items()}


def _placed(evidence: Evidence, words: str, place: Tensor) -> Guess:
    """The token at position p is treated as if it stood at place[p]."""
    back = place.argsort()
    clean = evidence.problem.clean
    numbers = replace(clean, **{name: getattr(clean, name)[:, :, back] for name in ("q", "k", "v", "dout")})
    found = replace(evidence, problem=Numbered(evidence.problem, numbers)).answer()
    names = FORWARD + BACKWARD if evidence.backward_failed else FORWARD
    return Guess(words, "D1", {name: found[name][:, :, place] for name in names})


def strides_ignored(evidence: Evidence) -> Iterator[Guess]:
    """Tensors whose tokens stand before their heads in memory are read as if they did not."""
    if evidence.problem.case.inputs.strides != "transposed":
        return
    clean = evidence.problem.clean
    whole = {name: exchanged(evidence, getattr(clean, name)) for name in ("q", "k", "v", "dout")}
    for words, names in (("inputs are", "qkv"), ("q is", "q"), ("k is", "k"), ("v is", "v"), ("inputs and dout are",
                         ("q", "k", "v", "dout")), ("dout is", ("dout",))):
        numbers = replace(clean, **{name: whole[name] for name in names})
        found = replace(evidence, problem=Numbered(evidence.problem, numbers)).answer()
        names = FORWARD + BACKWARD if evidence.backward_failed else FORWARD
        names = names if evidence.forward_failed else BACKWARD
        yield Guess(f"{words} read without regard to strides", "B7", {name: found[name] for name in names})


def exchanged(evidence: Evidence, x: Tensor) -> Tensor:
    """What each rank holds, read as if tokens stood before heads in memory."""
    found = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for rank in range(evidence.world):
            held = (evidence.owner[row] == rank).nonzero()[:, 0]
            part = x[row][:, held]
            found[row][:, held] = part.transpose(0, 1).contiguous().view(part.shape)
    return found


HYPOTHESES = (other_layout, strides_ignored)
