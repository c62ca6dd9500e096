"""Banded: runs a hop as few calls of a flash-attention kernel; tokens before heads, the batch flattened.

T query tokens and U key tokens of a call, M segments of n queries and m keys, Hq and Hkv heads.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringcp.calls import Call
from ringcp.kernels.shape import tokens_first
from ringcp.merge import Merged, Total
from ringcp.work import Work


class Banded(ABC):
    """A kernel made of band-shaped calls: bottom-right aligned, `call.left` and `call.right` keys past the diagonal."""

    name: str
    pays_from: int = 0

    def partial(self, dtype: torch.dtype) -> torch.dtype:
        return dtype

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

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float, into: Merged) -> None:
        q, scale, _ = _positive(q, scale)
        q, k, v = tokens_first(q, k, v)
        for call in (call for layer in work.calls for call in layer):
            into.add(call.queries, *self._run(q[call.queries], k[call.keys], v[call.keys], call, scale))

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float, dq: Total, dk: Total, dv: Total) -> None:
        q, scale, sign = _positive(q, scale)
        dout, q, k, v, out = tokens_first(dout, q, k, v, out)
        lse = lse.transpose(0, 1).flatten(1)
        for call in (call for layer in work.calls for call in layer):
            rows, keys = call.queries, call.keys
            grads = self._run_backward(dout[rows], q[rows], k[keys], v[keys], out[rows], lse[:, rows], call, scale)
            dq.add(rows, grads[0] if sign > 0 else grads[0] * sign)
            dk.add(keys, grads[1], call.rounds)
            dv.add(keys, grads[2], call.rounds)

    def _run(self, q: Tensor, k: Tensor, v: Tensor, call: Call, scale: float) -> tuple[Tensor, Tensor]:
        q, k, v = map(_readable, (q, k, v))
        if call.equal is None:
            return self.ragged(q, k, v, call, scale)
        q, k, v = _batched(call, q, k, v)
        out, lse = self.dense(q, k, v, call, scale)
        return out.flatten(0, 1), lse.transpose(0, 1).flatten(1)

    def _run_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, call: Call,
                      scale: float) -> tuple[Tensor, Tensor, Tensor]:
        lse, (dout, q, k, v, out) = lse.contiguous(), map(_readable, (dout, q, k, v, out))
        if call.equal is None:
            return self.ragged_backward(dout, q, k, v, out, lse, call, scale)
        q, k, v, dout, out = _batched(call, q, k, v, dout, out)
        lse = lse.unflatten(1, (call.segments, -1)).transpose(0, 1).contiguous()
        return tuple(grad.flatten(0, 1) for grad in self.dense_backward(dout, q, k, v, out, lse, call, scale))


def _positive(q: Tensor, scale: float) -> tuple[Tensor, float, int]:
    """The same scores with a scale above 0, which kernels that take a row's maximum before scaling depend on."""
    sign = (scale > 0) - (scale < 0)
    return (q, scale, sign) if sign > 0 else (q * sign, abs(scale) or 1.0, sign)


def _readable(x: Tensor) -> Tensor:
    """A copy of what no kernel of this kind reads right: strides of 0, as in the gradient of a sum, and dimensions of a
    head that are no neighbours."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


def _batched(call: Call, *tensors: Tensor) -> list[Tensor]:
    return [tensor.unflatten(0, (call.segments, -1)) for tensor in tensors]

