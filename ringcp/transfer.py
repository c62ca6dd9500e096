"""Transfer: keys and values out along the plan, their gradients back to their owners, one hop ahead of the kernels."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ringcp.exchange import GRADS, KEYS, Distributed, Exchange, Receive, Send
from ringcp.kernels.shape import tokens_first
from ringcp.merge import Total
from ringcp.plan import Hop, Plan


class Supply:
    """Iterates over (hop, keys, values) of a plan; hop t + 1 is in flight while the caller works on hop t.

    k `[B, Hkv, L, D]`, v `[B, Hkv, L, Dv]` local; yields keys `[B, Hkv, K, D]` and values `[B, Hkv, K, Dv]`. A caller
    lets go of them before it asks for more, as the buffers of the hop after the next are made then.
    """

    def __init__(self, plan: Plan, exchange: Exchange, k: Tensor, v: Tensor):
        self.plan, self.exchange, self.k, self.v = plan, exchange, k, v

    def __iter__(self) -> Iterator[tuple[Hop, Tensor | None, Tensor | None]]:
        hops = self.plan.hops
        arriving = self._start(hops[0], lambda post: post()) if hops else None
        for hop, following in zip(hops, (*hops[1:], None)):
            keys, values = arriving()
            arriving = None
            later: list[Callable[[], None]] = []
            arriving = self._start(following, later.append) if following is not None else None
            yield hop, keys, values
            del keys, values
            for post in later:
                post()

    def _start(self, hop: Hop, later: Callable) -> Callable[[], tuple[Tensor | None, Tensor | None]]:
        """Prepares the transfers of one hop; the result waits for its keys and values. What can be posted behind the
        caller's kernels is given to `later`."""
        if hop.distance == 0:
            return lambda: (_ordered(self.k, self.plan.order), _ordered(self.v, self.plan.order))
        source, target = _neighbours(self.exchange, hop)
        k, v = self.k, self.v
        sends = [Send(target, pack(k, v, hop.give))] if hop.give is not None else []
        shape = (hop.arriving, k.shape[1], k.shape[3] + v.shape[3])
        receives = [Receive(source, shape, k.dtype, k.device)] if hop.arriving else []
        wait = self._posted(sends, receives, later)

        def arrived() -> tuple[Tensor | None, Tensor | None]:
            packed = wait()
            return unpack(packed[0], hop, k.shape[0], k.shape[3]) if packed else (None, None)

        return arrived


    def _posted(self, sends: list[Send], receives: list[Receive], later: Callable) -> Callable[[], list[Tensor]]:
        if not (self.k.is_cuda and isinstance(self.exchange, Distributed)):
            return self.exchange.start(sends, receives, KEYS)
        prepared = self.exchange.prepare(sends, receives, KEYS)
        later(prepared.post)
        return prepared.wait


class Returns:
    """Collects dK and dV: own ones at once, a hop's by sending them to the keys' owner while the caller goes on."""

    def __init__(self, exchange: Exchange, dk: Total, dv: Total):
        self.exchange, self.dk, self.dv = exchange, dk, dv
        self._pending: tuple[Hop, Callable[[], list[Tensor]]] | None = None

    def add(self, hop: Hop, grads: tuple[Total, Total] | None, order: Tensor | None) -> None:
        """Takes dk and dv of one hop, None when it had nothing to compute; own ones may be in the totals already."""
        if hop.distance == 0:
            if grads is not None and order is not None:
                self._add_own(grads, order)
            return
        self._settle()
        source, target = _neighbours(self.exchange, hop)
        sends, receives = [], []
        if hop.arriving:
            assert grads is not None, "keys that arrived are attended"
            sends.append(Send(source, _joined(*(grad.result().to(grad.part) for grad in grads), hop.place)))
        if hop.give is not None:
            shape = (len(hop.give), self.dk.shape[1], self.dk.shape[2] + self.dv.shape[2])
            receives.append(Receive(target, shape, self.dk.part, self.dk.device))
        self._pending = hop, self.exchange.start(sends, receives, GRADS)

    def finish(self) -> tuple[Tensor, Tensor]:
        """dk `[B * L, Hkv, D]` and dv of the local tokens, once everything has come home."""
        self._settle()
        return self.dk.result(), self.dv.result()

    def _settle(self) -> None:
        if self._pending is None:
            return
        hop, wait = self._pending
        for grads in wait():
            width = self.dk.shape[2]
            self.dk.add(hop.give, grads[..., :width])
            self.dv.add(hop.give, grads[..., width:])
        self._pending = None

    def _add_own(self, grads: tuple[Total, Total], order: Tensor) -> None:
        rows = torch.arange(len(order), device=order.device)[:, None] * order.shape[1]
        self.dk.add((order + rows).flatten(), grads[0].result())
        self.dv.add((order + rows).flatten(), grads[1].result())


def pack(k: Tensor, v: Tensor, slots: Tensor | None) -> Tensor:
    """Chosen tokens of k `[B, H, K, D]` and v `[B, H, K, Dv]` as one message `[N, H, D + Dv]`; None takes all."""
    return _joined(*tokens_first(k, v), slots)


def _joined(k: Tensor, v: Tensor, slots: Tensor | None) -> Tensor:
    """The same for tensors that stand tokens first."""
    return torch.cat([k, v] if slots is None else [k.index_select(0, slots), v.index_select(0, slots)], -1)


def unpack(message: Tensor, hop: Hop, rows: int, head_dim: int) -> tuple[Tensor, Tensor]:
    """A message as keys `[B, H, K, D]` and values `[B, H, K, Dv]`; rows that got fewer keys end in zeros."""
    if hop.place is not None:
        padded = message.new_zeros(rows * hop.work.keys, *message.shape[1:])
        message = padded.index_copy_(0, hop.place, message)
    whole = message.unflatten(0, (rows, -1)).transpose(1, 2)
    return whole[..., :head_dim], whole[..., head_dim:]


def _ordered(tensor: Tensor, order: Tensor | None) -> Tensor:
    if order is None:
        return tensor
    return tensor.gather(2, order[:, None, :, None].expand(-1, tensor.shape[1], -1, tensor.shape[3]))


def _neighbours(exchange: Exchange, hop: Hop) -> tuple[int, int]:
    return (exchange.rank - hop.distance) % exchange.size, (exchange.rank + hop.distance) % exchange.size
