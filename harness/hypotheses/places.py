"""When no mistake explains an answer: where all of the difference lies."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence

KEPT, SMALL = 0.999, 0.6
SPOKEN = 3
ROUGH, SPREAD = 0.05, 0.1


@dataclass(frozen=True)
class Place:
    """Words, the SPEC id that speaks of it, and the tokens `[B, 1, S, 1]` or what broadcasts to it."""

    words: str
    requirement: str | None
    tokens: Tensor


def narrowest(evidence: Evidence) -> Place | None:
    """The smallest place that holds KEPT of the squared difference of every failed tensor; those that SPEC speaks of
    come first."""
    found = [(float(place.tokens.double().mean()), place) for place in places(evidence)]
    for share, place in found[:SPOKEN] + sorted(found[SPOKEN:], key=lambda pair: pair[0]):
        if 0 < share <= SMALL and all(_held(evidence, name, place.tokens) >= KEPT for name in evidence.failed):
            return place
    return None


def rounded(evidence: Evidence) -> int | None:
    """To how many bits the failed tensors look rounded; None when they are wrong, not rough.

    Rounding is small, lies everywhere and has nothing to do with the value that it changes.
    """
    bits = []
    for name in evidence.failed:
        actual, true = (x.double().nan_to_num(neginf=0.0) for x in (evidence.actual[name],
                                                                   getattr(evidence.problem.truth, name)))
        off, size = actual - true, float(true.norm())
        rate = float(off.norm()) / size if size else 1.0
        alike = abs(float((off * true).sum())) / max(float(off.norm()) * size, 1e-300)
        everywhere = float((off.abs() > 0)[true != 0].double().mean()) if bool((true != 0).any()) else 0.0
        if not (0 < rate < ROUGH and alike < 0.5 and everywhere > SPREAD):
            return None
        bits.append(round(-math.log2(rate)))
    return min(bits)


def places(evidence: Evidence) -> Iterator[Place]:
    rows, owner, local = evidence.problem.rows, evidence.owner, evidence.local
    yield from _spoken_of(evidence)
    length = torch.stack([(owner == rank).sum(1) for rank in range(evidence.world)], 1).gather(1, owner)
    yield Place("the last token of every shard", None, (local == length - 1)[:, None, :, None])
    yield Place("the first token of every shard", None, (local == 0)[:, None, :, None])
    for rank in range(evidence.world if evidence.world > 1 else 0):
        held = owner == rank
        yield Place(f"rank {rank}", None, held[:, None, :, None])
        yield Place(f"the last token of rank {rank}", None, (held & (local == length - 1))[:, None, :, None])
    for row in range(rows.batch if rows.batch > 1 else 0):
        yield Place(f"batch row {row}", None, (torch.arange(rows.batch) == row)[:, None, None, None].expand(
            -1, 1, rows.tokens, 1))
    if rows.documents is not None:
        for document in rows.documents.unique().tolist()[:32]:
            yield Place(f"document {document}", None, (rows.documents == document)[:, None, :, None])
    if rows.token_types is not None:
        yield Place("vision tokens", None, (rows.token_types > 0)[:, None, :, None])
    first = next((int(w.nonzero()[:, 2].min()) for w in _wrong(evidence)), 0)
    if first:
        yield Place(f"tokens from {first} on", None, (torch.arange(rows.tokens) >= first)[None, None, :, None])


def _spoken_of(evidence: Evidence) -> list[Place]:
    """Rows, keys and padding that SPEC fixes exactly: keys first where only their gradients are wrong."""
    rows, truth = evidence.problem.rows, evidence.problem.truth
    found = [Place("rows that see no key", "B3", (~truth.live).any(1)[:, None, :, None]),
             Place("padded tokens", "A4", rows.padded[:, None, :, None]),
             Place("keys that nobody sees", "B4", (~truth.seen).any(1)[:, None, :, None])]
    return found[::-1] if set(evidence.failed) <= {"dk", "dv"} else found


def _wrong(evidence: Evidence) -> Iterator[Tensor]:
    for name in evidence.failed:
        wrong = ~(_difference(evidence, name) <= 1e-6)
        if bool(wrong.any()):
            yield wrong


def _held(evidence: Evidence, name: str, tokens: Tensor) -> float:
    difference = _difference(evidence, name).square()
    whole = float(difference.sum())
    return float((difference * tokens).sum()) / whole if whole > 0 else 1.0


def _difference(evidence: Evidence, name: str) -> Tensor:
    """|actual - truth| `[B, H, S, D]`, not finite numbers as a very large one."""
    actual, true = (x.double()[..., None] if name == "lse" else x.double()
                    for x in (evidence.actual[name], getattr(evidence.problem.truth, name)))
    same = (actual == true) | (actual.isnan() & true.isnan())
    found = torch.where(same, 0.0, (actual - true).abs()).nan_to_num(nan=1e6, posinf=1e6).clamp(max=1e6)
    compared = evidence.problem.compared
    return found * compared[..., None] if compared is not None and name not in ("dk", "dv") else found
