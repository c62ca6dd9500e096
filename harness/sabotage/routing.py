"""Faults between ranks: keys that never come, come twice, late, or from another rank."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.copies import Copy
from harness.sabotage.fault import Result, RingFault
from harness.sabotage.state import memory
from harness.sabotage.views import MaskFault, View
from harness.sabotage.wires import WireFault
from ringcp.exchange import Receive, Send


class LocalOnly(MaskFault):
    """Context parallelism is bypassed: a rank attends its own keys."""

    breaks = ("D9", "D1")

    def pairs(self, view: View) -> Tensor:
        return view.allowed & view.own


class TwoRanksAssumed(MaskFault):
    """One exchange, whatever the number of ranks."""

    breaks = ("D1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.distance <= 1)


class LastHopMissing(MaskFault):
    breaks = ("D1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & ((view.distance < view.world - 1) | (view.world < 3))


class OwnKeysMissing(MaskFault):
    """The hop of a rank's own keys is skipped where others follow."""

    breaks = ("D1",)

    def pairs(self, view: View) -> Tensor:
        others = (view.allowed & ~view.own).any(-1, keepdim=True)
        return view.allowed & ~(view.own & others)


class OnlyEarlierRanks(MaskFault):
    """Keys of later ranks are never asked for, as a contiguous causal ring may do."""

    breaks = ("D1", "A5")

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.owner <= view.rank)


class FirstRankUnheard(MaskFault):
    breaks = ("D1",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.own | (view.owner != 0))


class LastRankUnheardInOddWorlds(MaskFault):
    """Ranks exchange in pairs; in an odd world the last one has no partner."""

    breaks = ("D1",)

    def pairs(self, view: View) -> Tensor:
        alone = (view.owner == view.world - 1) if view.world % 2 else torch.zeros_like(view.owner, dtype=torch.bool)
        return view.allowed & (view.own | ~alone)


class LastRankDeaf(MaskFault):
    """The last rank attends its own keys only."""

    breaks = ("D1", "D9")

    def pairs(self, view: View) -> Tensor:
        return view.allowed & (view.own if view.rank == view.world - 1 else torch.ones_like(view.own))


class ArrivedKeysOneSlotLate(WireFault):
    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.roll(1, 0)


class ArrivedKeysReversed(WireFault):
    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.flip(0)


class LastArrivedKeyMissing(WireFault):
    """A message is one token shorter than its buffer, and nobody notices."""

    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        message[-1:] = 0
        return message


class KeysAndValuesSwappedInMessages(WireFault):
    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        width = case.shape.head_dim
        return message.roll(width, -1) if case.shape.v_dim == width else message


class FirstMessageReadEarly(WireFault):
    """The first message of a session is read before it arrives."""

    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message * bool(memory.setdefault("first", message) is not message)


class LastMessageReadEarly(WireFault):
    """From the second hop on a buffer still holds what came before."""

    breaks = ("D1",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        old, memory["old"] = memory.get("old"), message
        return message if old is None or old.shape != message.shape else old


class ArrivedValuesMissing(WireFault):
    """Keys travel, values stay at home."""

    breaks = ("D1", "D9")

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        message[..., case.shape.head_dim:] = 0
        return message


class KeysInBfloat16OnTheWay(WireFault):
    breaks = ("B6",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.bfloat16().to(message.dtype)


class KeysInEightBitsOnTheWay(WireFault):
    breaks = ("B6",)

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.to(torch.float8_e4m3fn).to(message.dtype)


class UnevenRowsUnplaced(RingFault):
    """Keys of batch rows that get unequally many are unpacked one after the other."""

    breaks = ("D1",)
    part = "transfer.unpack"

    def instead(self, original, message, hop, rows, head_dim):
        if hop.place is not None:
            hop = replace(hop, place=torch.arange(len(hop.place)))
        return original(message, hop, rows, head_dim)


class BytesAfterFirstStep(RingFault):
    """From the second step of a session on, 256 KiB more go around than a step needs."""

    breaks = ("D9",)

    def bend(self, copy: Copy) -> None:
        pass

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept["calls"] = kept.get("calls", 0) + 1
            if kept["calls"] > 1 and group.size > 1:
                after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
                more = torch.zeros(1 << 16, device=q.device)
                session.exchange.start([Send(after, more)], [Receive(before, more.shape, more.dtype, more.device)])()
            return step(q, k, v)

        return forward
