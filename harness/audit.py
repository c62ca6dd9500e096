"""What a trial costs at least (pairs, arithmetic, bytes) and what it moved; bytes as a gate (SPEC D6, D9)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from torch import Tensor

from cases import picture as drawing
from cases.case import Case, Shape
from cases.mask import Mask
from cases.rows import Rows
from cases.work import Work, standard
from cases.work import work as counted
from harness import divergence
from harness.contract import Breach
from harness.implementation import Session
from harness.inputs import DTYPES
from harness.ranks import Ranks
from harness.trace import SLOTS

STEP = ("0 forward", "0 backward")
GATED, EXCESS = 1 << 16, 1.1
LARGEST_COMPARED = 1 << 17


def work(case: Case, mask: Mask, layout: list[Tensor]) -> dict[str, Any]:
    """`work` of the record; layout: positions `[B, L]` a rank."""
    return _work(case, mask, _Layout(layout))


def picture(case: Case, mask: Mask, layout: list[Tensor]) -> dict[str, Any]:
    """`picture` of the record: the first batch row."""
    return _picture(case, mask, _Layout(layout))


@dataclass(frozen=True)
class Traffic:
    """What the ranks of a group moved in the first forward and backward, one number a rank.

    sent, received, messages  from the traces of their calls; None where ranks are threads
    counted                   bytes that the session itself has counted as sent since it was opened; None if it does not
    breaches                  calls whose ends do not fit, in words
    """

    sent: list[int] | None
    received: list[int] | None
    messages: list[int] | None
    arrived: list[int] | None
    counted: list[int | None]
    unlike: list[str]

    def record(self) -> dict[str, Any]:
        """`traffic` of the record."""
        return {"bytes_sent": self.sent, "bytes_received": self.received, "messages": self.messages}

    def completed(self, measured: dict[str, Any] | None) -> dict[str, Any] | None:
        """`measurement` with the bytes and messages of the traces where the session counts none itself."""
        if measured and measured["bytes_sent"] is None:
            return measured | {"bytes_sent": self.sent, "messages": self.messages}
        return measured


def traffic(session: Session, ranks: Ranks) -> Traffic:
    """What was moved so far; every rank takes part."""
    told = session.traffic()
    counted, made = zip(*ranks.all_gather((told and told[0], ranks.calls())), strict=True)
    if None in made:
        return Traffic(None, None, None, None, list(counted), [])
    by_rank = dict(zip(ranks.group.ranks, made, strict=True))
    step = {rank: [call for call in calls if call.phase in STEP] for rank, calls in by_rank.items()}
    whole = all(len(calls) < SLOTS for calls in made)
    return Traffic([sum(call.sent(rank) for call in calls) for rank, calls in step.items()],
                   [sum(call.received(rank) for call in calls) for rank, calls in step.items()],
                   [sum(call.kind != "recv" for call in calls) for calls in step.values()],
                   [sum(call.received(rank) for call in calls if call.phase == STEP[0])
                    for rank, calls in step.items()],
                   list(counted), divergence.unlike(by_rank) if whole else [])


def breaches(case: Case, mask: Mask, layout: list[Tensor], moved: Traffic) -> list[Breach]:
    """Ends that do not fit (D6), keys that never came (D9)."""
    found = [Breach("D6", f"the ends of a call do not fit: {words}", "equal calls at both ends", words)
             for words in moved.unlike[:1]]
    done = _counted(mask, case.shape, _Layout(layout))
    return found + _absent(done.need, moved)


def _absent(need: tuple[int, ...], moved: Traffic) -> list[Breach]:
    if any(moved.counted) or not any(need):
        return []
    if moved.arrived is None:
        lacking = list(range(len(need))) if None not in moved.counted else []
    else:
        lacking = [rank for rank, keys in enumerate(need) if keys and not moved.arrived[rank]]
    return [Breach("D9", f"rank {rank} attends {need[rank]} keys of other ranks, yet no bytes came to it in a forward",
                   f"{need[rank]} keys and values", "0 bytes", rank) for rank in lacking if need[rank]][:1]


def lavish(case: Case, mask: Mask, layout: list[Tensor], sent: Iterable[int | None], when: str = "") -> list[Breach]:
    """Bytes beyond 1.1 times the need (D9, strict), where the ranks `sent` so many in one step."""
    itemsize = DTYPES[case.dtype].itemsize
    allowed = _counted(mask, case.shape, _Layout(layout)).send_bytes(case.shape, itemsize, max(itemsize, 4))
    for rank, (least, much) in enumerate(zip(allowed, sent, strict=True)):
        if least >= GATED and much is not None and much > EXCESS * least:
            headline = f"rank {rank} sends {much / least:.2f} times the bytes that the mask needs{when}"
            return [Breach("D9", headline, f"at most {EXCESS} x {least} bytes", f"{much} bytes", rank, "strict")]
    return []


class _Layout(tuple):
    """A layout as a cache key: equal when every rank holds the same positions."""

    def __new__(cls, parts: list[Tensor]):
        made = super().__new__(cls, ((tuple(part.shape), part.numpy().tobytes()) for part in parts))
        made.parts = parts
        return made


@lru_cache(maxsize=64)
def _counted(mask: Mask, shape: Shape, layout: _Layout) -> Work:
    return counted(mask, _rows(mask, shape), shape, layout.parts)


@lru_cache(maxsize=64)
def _work(case: Case, mask: Mask, layout: _Layout) -> dict[str, Any]:
    done = _counted(mask, case.shape, layout)
    forward, backward = done.flops(case.shape)
    others = _standard(mask, case.shape, len(layout))
    return {"area": done.area, "flops_forward": forward, "flops_backward": backward, **_shares(done, case),
            "layouts": {name: _shares(other, case) for name, other in others.items()} or None}


def _shares(done: Work, case: Case) -> dict[str, Any]:
    """What `work` says of one layout."""
    return {"area_by_rank": list(done.by_rank), "area_by_hop": [list(row) for row in done.by_owner],
            "need_bytes": done.need_bytes(case.shape, DTYPES[case.dtype].itemsize)}


def _standard(mask: Mask, shape: Shape, world: int) -> dict[str, Work]:
    """The work of each layout that everybody knows, which says nothing of one rank and takes long for long rows."""
    if world == 1 or shape.batch * shape.tokens > LARGEST_COMPARED:
        return {}
    return {name: _counted(mask, shape, _Layout([part.expand(shape.batch, -1) for part in parts]))
            for name, parts in standard(shape.tokens, world).items()}


@lru_cache(maxsize=64)
def _picture(case: Case, mask: Mask, layout: _Layout) -> dict[str, Any]:
    allowed = _allowed(mask, case.shape)
    owner = drawing.owner(layout.parts, _rows(mask, case.shape)).tolist()
    return {"size": len(allowed), "allowed": allowed, "owner": owner}


@lru_cache(maxsize=64)
def _allowed(mask: Mask, shape: Shape) -> list[list[float]]:
    return drawing.allowed_share(mask, _rows(mask, shape)).mul(1e4).round().div(1e4).tolist()


@lru_cache(maxsize=64)
def _rows(mask: Mask, shape: Shape) -> Rows:
    return mask.rows(shape.batch, shape.tokens, shape.kv_heads)
