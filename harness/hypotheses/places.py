"""When no mistake explains an answer: where all of the difference lies."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence

KEPT, SMALL = 0.999, 0.6
SPOKEN = 3


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


def places(evidence: Evidence) -> Iterator[Place]:
    rows, truth, owner, local = evidence.problem.rows, evidence.problem.truth, evidence.owner, evidence.local
    dead = ~truth.live
    yield Place("rows that see no key", "B3", dead.any(1)[:, None, :, None])
    yield Place("padded tokens", "A4", rows.padded[:, None, :, None])
    yield Place("keys that nobody sees", "B4", (~truth.seen).any(1)[:, None, :, None])
    length = torch.stack([(owner == rank).sum(1) for rank in range(evidence.world)], 1).gather(1, owner)
    yield Place("the last token of every shard", None, (local == length - 1)[:, None, :, None])
    yield Place("the first token of every shard", None, (local == 0)[:, None, :, None])
    for rank in range(evidence.world if evidence.world > 1 else 0):
        held = owner == rank
        yield Place(f"rank {rank}", "D1", held[:, None, :, None])
        yield Place(f"the last token of rank {rank}", "D1", (held & (local == length - 1))[:, None, :, None])
    for row in range(rows.batch if rows.batch > 1 else 0):
        yield Place(f"batch row {row}", None, (torch.arange(rows.batch) == row)[:, None, None, None].expand(
            -1, 1, rows.tokens, 1))
    if rows.documents is not None:
        for document in rows.documents.unique().tolist()[:32]:
            yield Place(f"document {document}", "A3", (rows.documents == document)[:, None, :, None])
    if rows.token_types is not None:
        yield Place("vision tokens", "A5", (rows.token_types > 0)[:, None, :, None])
    first = next((int(w.nonzero()[:, 2].min()) for w in _wrong(evidence)), 0)
    if first:
        yield Place(f"tokens from {first} on", None, (torch.arange(rows.tokens) >= first)[None, None, :, None])


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
