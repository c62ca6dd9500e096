"""One step of every rank as lines of time: what it posted when, and how long it waited for it.

The step is one of its own behind the timed ones, so that nobody pays for looking. A transfer begins where it is posted
and ends where the wait for it returns; it may have arrived before, which no backend tells.
"""

from typing import Any

from harness.implementation import Group, Session, Step
from harness.inputs import Numbers
from harness.passes import gradients
from harness.ranks import Ranks
from harness.recorder import Posted, Recorder

MOST, FEW, TOGETHER = 128, 48, 1e-5
KINDS = {"recv": "receive"}


def timeline(
    session: Session, step: Step, numbers: Numbers, grads: str, ranks: Ranks, bench: bool = False
) -> dict[str, Any] | None:
    """`timeline` of the record, from one step that all ranks begin together; every rank takes part, all return the
    same. None for a single rank, for threads, whose calls nobody sees, above MOST transfers of a rank, and on a GPU,
    where the host's clock tells neither when a transfer begins nor how long it is waited for. But for a `bench`, which
    is there to be looked at, None also above FEW transfers of all ranks: each takes 0.11 KB, and hundreds of cases that
    are right would be told mostly by their timelines."""
    if ranks.group.size == 1 or ranks.calls() is None or ranks.device.type != "cpu":
        return None
    wanted = [x.requires_grad_() for name, x in zip("qkv", numbers.tensors(), strict=False) if name in grads]
    recorder = Recorder()
    with ranks.during("timeline", recorder=recorder):
        ranks.barrier()
        with session.scope():
            recorder.begin("forward")
            out, _ = step(numbers.q, numbers.k, numbers.v)
            recorder.begin("backward")
            gradients([(out, wanted, numbers.dout)])
            recorder.begin("")
    most = MOST if bench else FEW // ranks.group.size
    every = ranks.all_gather(lines(recorder, ranks.group) if len(recorder.posted) <= most else None)
    if None in every:
        return None
    return {"step_s": max(one["phases"][-1][-1] for one in every), "ranks": every}


def lines(recorder: Recorder, group: Group) -> dict[str, Any]:
    """`timeline.ranks` of the record, of this rank; the last phase must have ended."""
    ends = [mark for _, mark in recorder.phases[1:]]
    phases = [[name, recorder.seconds(start), recorder.seconds(end)]
              for (name, start), end in zip(recorder.phases, ends, strict=False)]
    known = dict(zip(map(id, recorder.posted), hops(recorder.posted, group), strict=True))
    transfers = [{"start": recorder.seconds(one.start), "end": recorder.seconds(one.end or ends[-1]),
                  "kind": KINDS.get(one.call.kind, one.call.kind), "peer": _place(one.call.peer, group),
                  "bytes": one.call.bytes, "hop": known[id(one)], "phase": one.phase} for one in recorder.posted]
    waits = [(recorder.seconds(wait.start), recorder.seconds(wait.end), known[id(wait.posted)])
             for wait in recorder.waits]
    return {"phases": phases, "transfers": transfers, "waits": joined(waits)}


def hops(posted: list[Posted], group: Group) -> list[int | None]:
    """How far round the group what is moved has come, None where that does not follow from its peer.

    A phase that meets each peer once, over one group and tag, moves things directly: (receiver - sender) mod world. One
    that meets a peer again, with a wait between, passes on what it was given, as a ring of neighbours does: the number
    of the round.
    """
    rounds: dict[tuple, list[tuple[int, int]]] = {}
    for one in posted:
        rounds.setdefault(_lane(one), []).append((one.call.peer, one.waited))
    return [None if one.call.collective else _hop(one, set(rounds[_lane(one)]), group) for one in posted]


def _lane(one: Posted) -> tuple:
    return one.phase, one.call.kind, one.call.group, one.call.tag


def _hop(one: Posted, met: set[tuple[int, int]], group: Group) -> int | None:
    peer = _place(one.call.peer, group)
    if len({other for other, _ in met}) < len(met):
        return sorted({waited for _, waited in met}).index(one.waited) + 1
    if peer is None:
        return None
    return (peer - group.rank if one.call.kind == "send" else group.rank - peer) % group.size


def _place(peer: int, group: Group) -> int | None:
    """The rank inside the group of a global rank; None for none and for one of elsewhere."""
    return group.ranks.index(peer) if peer in group.ranks else None


def joined(waits: list[tuple[float, float, int | None]]) -> list[list]:
    """Waits for one hop, one right behind the other, as one: a hop has several transfers, each with a wait."""
    found: list[list] = []
    for start, end, hop in waits:
        if found and found[-1][2] == hop and start - found[-1][1] <= TOGETHER:
            found[-1][1] = end
        else:
            found.append([start, end, hop])
    return found
