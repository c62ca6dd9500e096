"""Banded: runs a hop as few calls of a flash-attention kernel; tokens before heads, the batch flattened.

T query tokens and U key tokens of a call, M segments of n queries and m keys, Hq and Hkv heads.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringcp.calls import Call, Place
from ringcp.merge import merge_
from ringcp.work import Work


class Banded(ABC):
    """A kernel made of band-shaped calls: bottom-right aligned, `call.left` and `call.right` keys past the diagonal."""

    name: str

    @abstractmethod
    def dense(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        """q `[M, n, Hq, D]`, k `[M, m, Hkv, D]`, v -> out `[M, n, Hq, Dv]`, lse `[M, Hq, n]`."""

    @abstractmethod
    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                       scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk, dv in the shapes of q, k, v, from the out and lse of all hops."""

    @abstractmethod
    def ragged(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        """q `[T, Hq, D]`, k `[U, Hkv, D]`, v -> out `[T, Hq, Dv]`, lse `[Hq, T]`."""

    @abstractmethod
    def ragged_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                        scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk, dv in the shapes of q, k, v."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float) -> tuple[Tensor, Tensor]:
        batch, heads, length, _ = q.shape
        q, scale, _ = _positive(q, scale)
        queries, keys, values = _tokens(q), _tokens(k), _tokens(v)
        total: tuple[Tensor, Tensor] | None = None
        for layer in work.calls:
            out = q.new_zeros(batch * length, heads, v.shape[3], dtype=torch.float32)
            lse = torch.full((heads, batch * length), -torch.inf, device=q.device)
            for call in layer:
                parts = queries[call.queries], keys[call.keys], values[call.keys]
                out[call.queries], lse[:, call.queries] = self._run(*parts, call, scale)
            if total is None:
                total = out, lse
            else:
                merge_(total[0], total[1].T, out, lse.T)
        out, lse = total
        return out.unflatten(0, (batch, length)).transpose(1, 2), lse.unflatten(1, (batch, length)).transpose(0, 1)

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, kept = q.shape[0], q.shape[2], k.shape[2]
        q, scale, sign = _positive(q, scale)
        grads = [torch.zeros_like(_tokens(x), dtype=torch.float32) for x in (q, k, v)]
        dout, q, k, v, out = (_tokens(x) for x in (dout, q, k, v, out))
        lse = lse.transpose(0, 1).flatten(1)
        for call in (call for layer in work.calls for call in layer):
            rows, columns = call.queries, call.keys
            parts = dout[rows], q[rows], k[columns], v[columns], out[rows], lse[:, rows]
            found = self._run_backward(*parts, call, scale)
            for total, part, place in zip(grads, found, (rows, columns, columns), strict=True):
                _add(total, part, place, call.repeated)
        lengths = length, kept, kept
        grads[0] *= sign
        return tuple(x.unflatten(0, (batch, size)).transpose(1, 2) for x, size in zip(grads, lengths, strict=True))

    def _run(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        if call.equal is None:
            return self.ragged(q, k, v, call, scale)
        q, k, v = _batched(call, q, k, v)
        out, lse = self.dense(q, k, v, call, scale)
        return out.flatten(0, 1), lse.transpose(0, 1).flatten(1)

    def _run_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                      scale: float) -> tuple[Tensor, Tensor, Tensor]:
        lse = lse.contiguous()
        if call.equal is None:
            return self.ragged_backward(dout, q, k, v, out, lse, call, scale)
        q, k, v, dout, out = _batched(call, q, k, v, dout, out)
        lse = lse.unflatten(1, (call.segments, -1)).transpose(0, 1).contiguous()
        return tuple(grad.flatten(0, 1) for grad in self.dense_backward(dout, q, k, v, out, lse, call, scale))


def _tokens(tensor: Tensor) -> Tensor:
    """[B, H, L, D] -> [B * L, H, D], a view where the batch allows it."""
    return tensor.transpose(1, 2).flatten(0, 1)


def _positive(q: Tensor, scale: float) -> tuple[Tensor, float, int]:
    """The same scores with a scale above 0, which kernels that take a row's maximum before scaling depend on."""
    sign = (scale > 0) - (scale < 0)
    return (q, scale, sign) if sign > 0 else (q * sign, abs(scale) or 1.0, sign)


def _batched(call: Call, *tensors: Tensor) -> list[Tensor]:
    return [tensor.unflatten(0, (call.segments, -1)) for tensor in tensors]


def _add(total: Tensor, part: Tensor, place: Place, repeated: bool) -> None:
    if isinstance(place, slice):
        total[place] += part
    elif repeated:
        total.index_add_(0, place, part.to(total.dtype))
    else:
        total[place] += part
