"""Alone: a rank's kernels without exchange and merge, and an exchange that moves nothing, to measure a ring by.

B batch rows, L local queries, K keys that they need, H heads, T tokens of a piece.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ringcp.calls import Call
from ringcp.exchange import KEYS, Receive, Send, Traffic
from ringcp.kernels import TABLE, Kernel
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand
from ringcp.kernels.shape import accumulation, heads_first, tokens_first
from ringcp.merge import Merged, Total
from ringcp.work import Work


class Silent:
    """An exchange that moves nothing: in place of what should arrive stands a buffer that was filled once."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size, self.traffic = rank, size, Traffic()
        self._buffers: dict[tuple, Tensor] = {}

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        found = [self._buffer(item, channel) for item in receives]
        return lambda: found

    def _buffer(self, item: Receive, channel: int) -> Tensor:
        key = item.shape, item.dtype, item.device, channel
        if key not in self._buffers:
            self._buffers[key] = drawn(item.shape, item.dtype, item.device)
        return self._buffers[key]


def drawn(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Random numbers that leave torch's own state alone."""
    return torch.empty(shape, dtype=dtype, device=device).normal_(generator=torch.Generator(device).manual_seed(0))


def candidates(demand: Demand) -> list[Kernel]:
    """The kernels that take this configuration; those that take any mask only where there is no other."""
    taking = [kernel for kernel in TABLE if kernel.refuses(demand) is None]
    return [kernel for kernel in taking if kernel.name not in ("flex", "eager")] or taking[:1]


def alone(kernel: Kernel, work: Work, scale: float, q: Tensor, k: Tensor, v: Tensor,
          dout: Tensor) -> Callable[[], Callable[[], Any]]:
    """Called, it runs the forward of `work` for local q and dout `[B, Hq, L, ...]`, and gives what runs the backward.
    Keys are drawn; k and v say in which form. What a kernel reads lies in its order beforehand."""
    keys, values = (drawn((x.shape[0], x.shape[1], work.keys, x.shape[3]), x.dtype, x.device)
                    for x in (k, v))
    given = q.detach(), keys, values, dout
    pieces = _pieces(work, *given) if isinstance(kernel, Banded) else [Piece(work, *given)]

    def forward() -> Callable[[], Any]:
        answers = [piece.forward(kernel, scale) for piece in pieces]
        return lambda: [piece.backward(kernel, scale, *found) for piece, found in zip(pieces, answers, strict=True)]

    return forward


@dataclass(frozen=True, eq=False)
class OneCall:
    """A work of one band-shaped call."""

    calls: list[list[Call]]


@dataclass(frozen=True, eq=False)
class Piece:
    """What a kernel does at once: q `[B, Hq, L, D]`, k and v `[B, Hkv, K, ...]`, dout."""

    work: Work | OneCall
    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor

    def forward(self, kernel: Kernel, scale: float) -> tuple[Tensor, Tensor]:
        """out `[B, Hq, L, Dv]` and lse `[B, Hq, L]`."""
        batch, heads, tokens, _ = self.q.shape
        wide = accumulation(self.q.dtype)
        into = Merged(batch * tokens, heads, self.v.shape[3], kernel.partial(self.q.dtype), wide, self.q.device)
        kernel.forward(self.q, self.k, self.v, self.work, scale, into)
        out, lse = into.result()
        return heads_first(out, batch), lse.unflatten(1, (batch, tokens)).transpose(0, 1)

    def backward(self, kernel: Kernel, scale: float, out: Tensor, lse: Tensor) -> list[Tensor]:
        totals = [_total(x, kernel) for x in (self.q, self.k, self.v)]
        kernel.backward(self.dout, self.q, self.k, self.v, out.to(self.q.dtype), lse, self.work, scale, *totals)
        return [total.result() for total in totals]


def _total(like: Tensor, kernel: Kernel) -> Total:
    batch, heads, tokens, width = like.shape
    part = kernel.partial(like.dtype)
    return Total((batch * tokens, heads, width), part, part, like.device)


def _pieces(work: Work, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> list[Piece]:
    """One piece a call, whose tokens are gathered beforehand, so that a call covers its piece and nothing merges."""
    flat = tokens_first(q, k, v, dout)
    found = []
    for call in (call for layer in work.calls for call in layer):
        places = call.queries, call.keys, call.keys, call.queries
        parts = [x[where].contiguous() for x, where in zip(flat, places, strict=True)]
        whole = replace(call, queries=slice(0, len(parts[0])), keys=slice(0, len(parts[1])), rounds=())
        found.append(Piece(OneCall([[whole]]), *(heads_first(x, 1) for x in parts)))
    return found
