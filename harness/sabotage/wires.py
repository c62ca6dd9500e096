"""Faults between the ranks: an exchange that delivers something else than was sent."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from cases.case import Case
from harness.implementation import Group
from harness.sabotage.copies import Copy
from harness.sabotage.fault import FaultySession, RingFault
from ringcp.exchange import GRADS, KEYS, Exchange

__all__ = ["GRADS", "KEYS", "Wire", "WireFault"]


class Wire:
    """Passes everything on; `change` is given what arrived in one call of `start`, [N, Hkv, D + Dv] a message."""

    def __init__(self, exchange: Exchange, channel: int, change: Callable[[Tensor], Tensor]):
        self.inner, self.channel, self.change = exchange, channel, change
        self.rank, self.size, self.traffic = exchange.rank, exchange.size, exchange.traffic

    def start(self, sends: list[Any], receives: list[Any], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        wait = self.inner.start(sends, receives, channel)
        if channel != self.channel:
            return wait
        return lambda: [self.change(message.clone()) for message in wait()]


class WireFault(RingFault):
    """`message` is what a receiver finds instead of a message on `channel`; `memory` outlives it within a session."""

    channel = KEYS

    def bend(self, copy: Copy) -> None:
        pass

    def message(self, message: Tensor, case: Case, memory: dict) -> Tensor:
        raise NotImplementedError

    def open(self, case: Case, group: Group) -> FaultySession:
        session, memory = super().open(case, group), {}
        session.inner.exchange = Wire(session.inner.exchange, self.channel,
                                      lambda message: self.message(message, case, memory))
        return session
