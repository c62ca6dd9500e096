"""Faults on the way home of dK and dV: lost, doubled, copied over each other, sent to the wrong owner."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cases.case import Case
from harness.implementation import Group, Step
from harness.sabotage.copies import Copy
from harness.sabotage.fault import Fault, FaultySession, Result, RingFault, last
from harness.sabotage.gradients import scaled
from harness.sabotage.wires import GRADS, KEYS, WireFault


class KeyGradientsCopied(RingFault):
    """dK and dV that come home replace what is there."""

    breaks = ("B4",)
    part = "transfer.Returns._settle"

    def instead(self, original, returns):
        if returns._pending is None:
            return
        hop, wait = returns._pending
        for grads in wait():
            width = returns.dk.shape[2]
            returns.dk.result()[hop.give] = grads[..., :width].to(returns.dk.dtype)
            returns.dv.result()[hop.give] = grads[..., width:].to(returns.dv.dtype)
        returns._pending = None


class RemoteGradientsLost(RingFault):
    """dK and dV that come home are dropped."""

    breaks = ("B4",)
    part = "transfer.Returns._settle"

    def instead(self, original, returns):
        if returns._pending is not None:
            returns._pending[1]()
        returns._pending = None


class LastGradientsLost(RingFault):
    """Nobody waits for the last hop's dK and dV."""

    breaks = ("B4",)
    part = "transfer.Returns.finish"

    def instead(self, original, returns):
        return returns.dk.result(), returns.dv.result()


class LastGradientsTwice(RingFault):
    breaks = ("B4",)
    part = "transfer.Returns.finish"

    def instead(self, original, returns):
        pending = returns._pending
        if pending is not None:
            hop, arrived = pending[0], pending[1]()
            for _ in range(2):
                returns._pending = hop, lambda: arrived
                returns._settle()
        return original(returns)


class OwnGradientsLost(RingFault):
    """dK and dV of a rank's own queries are lost."""

    breaks = ("B4",)

    def bend(self, copy: Copy) -> None:
        copy.replace("attention.Ring._key_totals", self._elsewhere)

    @staticmethod
    def _elsewhere(original, ring, hop, keys, values, returns):
        if hop.distance:
            return original(ring, hop, keys, values, returns)
        return tuple(type(total)(total.shape, total.part, total.dtype, total.device)
                     for total in (returns.dk, returns.dv))


class KeysOfFirstHopReused(RingFault):
    """The backward works on this rank's own keys and values in every hop."""

    breaks = ("B4",)

    def bend(self, copy: Copy) -> None:
        copy.replace("attention.Ring.backward", self._marked)
        copy.replace("transfer.Supply.__iter__", self._own_again)

    @staticmethod
    def _marked(original, ring, *given):
        return original(replace(ring, plan=replace(ring.plan, hops=tuple(map(Marked, ring.plan.hops)))), *given)

    @staticmethod
    def _own_again(original, supply):
        for hop, keys, values in original(supply):
            if isinstance(hop, Marked) and hop.distance and keys is not None:
                keys, values = (fitted(own, x) for own, x in ((supply.k, keys), (supply.v, values)))
            yield hop, keys, values


class Marked:
    """A hop of the backward."""

    def __init__(self, hop: Any):
        self._hop = hop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hop, name)


class GradientsOneSlotLate(WireFault):
    """dK and dV that come home are added one slot further."""

    breaks = ("B4",)
    channel = GRADS

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.roll(1, 0)


class GradientsOfLastSlotLost(WireFault):
    """The last token of what comes home is missing."""

    breaks = ("B4",)
    channel = GRADS

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        message[-1:] = 0
        return message


class GradientsInBfloat16(WireFault):
    """dK and dV travel home in bf16."""

    breaks = ("B4", "B6")
    channel = GRADS

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        return message.bfloat16().to(message.dtype)


class GradientsSentOnward(Fault):
    """dK and dV go the way the keys go: the gradient of a remote key reaches the rank behind its reader."""

    breaks = ("B4",)

    def open(self, case: Case, group: Group) -> FaultySession:
        session = super().open(case, group)
        if not case.mask.rules and case.shape.tokens % group.size == 0 and group.size > 1:
            session.inner.exchange = Onward(session.inner.exchange)
        return session


class Onward:
    """Mirrors the channel of gradients, which both ends of a full mask do alike."""

    def __init__(self, exchange: Any):
        self.inner = exchange
        self.rank, self.size, self.traffic = exchange.rank, exchange.size, exchange.traffic

    def start(self, sends: list[Any], receives: list[Any], channel: int = KEYS):
        if channel == GRADS:
            sends, receives = ([replace(item, peer=(2 * self.rank - item.peer) % self.size) for item in items]
                               for items in (sends, receives))
        return self.inner.start(sends, receives, channel)


class KeyGradientsLost(Fault):
    """dk and dv of the last rank never arrive."""

    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        factor = 0.0 if last(group) else 1.0
        return step(q, scaled(k, factor), scaled(v, factor))


class KeyGradientsTimesWorld(Fault):
    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, scaled(k, float(group.size)), scaled(v, float(group.size)))


class GradientsDividedByWorld(Fault):
    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(*(scaled(x, 1 / group.size) for x in (q, k, v)))


class ValueGradientsOfLastRankLost(Fault):
    breaks = ("B4",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, scaled(v, 0.0 if last(group) else 1.0))


def fitted(own: Tensor, like: Tensor) -> Tensor:
    """`own` `[B, H, L, D]` repeated or cut to the tokens of `like`."""
    times = -(-like.shape[2] // max(1, own.shape[2]))
    return own.repeat(1, 1, times, 1)[:, :, :like.shape[2]].to(like.dtype) if own.shape[2] else torch.zeros_like(like)
