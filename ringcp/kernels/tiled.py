"""Tiled: runs a hop tile by tile, for kernels that take a dense block with an optional mask."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ringcp.kernels.shape import accumulation, tokens_first
from ringcp.merge import Merged, Total
from ringcp.work import Tile, Work


class Tiled(ABC):
    """A kernel made of two dense primitives. Subclasses see contiguous problems in the accumulation dtype.

    block  queries a tile
    """

    name: str
    pays_from: int = 0
    block: int = 512

    @abstractmethod
    def dense(self, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None, causal: bool,
              scale: float) -> tuple[Tensor, Tensor]:
        """out and lse of one tile; rows without an allowed key may hold anything."""

    @abstractmethod
    def dense_backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
                       allowed: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk, dv of one tile; lse is finite and rows without an allowed key get zeros."""

    def partial(self, dtype: torch.dtype) -> torch.dtype:
        return accumulation(dtype)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float, into: Merged) -> None:
        out, lse = self._forward(*_accumulable(q, k, v), work, scale)
        into.add(slice(None), *tokens_first(out), lse.transpose(0, 1).flatten(1))

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float, dq: Total, dk: Total, dv: Total) -> None:
        grads = self._backward(*_accumulable(dout, q, k, v, out), lse, work, scale)
        for total, grad in zip((dq, dk, dv), tokens_first(*grads), strict=True):
            total.add(slice(None), grad)

    def _forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float) -> tuple[Tensor, Tensor]:
        if work.causal:
            return self.dense(q, k, v, None, True, scale)
        out, lse = q.new_zeros(*q.shape[:3], v.shape[3]), q.new_full(q.shape[:3], -torch.inf)
        for tile in work.tiles(self.block):
            rows, keys = tile.queries, tile.keys
            allowed = _allowed(work, tile, q.shape[1])
            tile_out, tile_lse = self.dense(q[:, :, rows], k[:, :, keys], v[:, :, keys], allowed, False, scale)
            if allowed is not None:
                empty = ~allowed.any(-1)
                tile_out = tile_out.masked_fill(empty[..., None], 0.0)
                tile_lse = tile_lse.masked_fill(empty, -torch.inf)
            out[:, :, rows], lse[:, :, rows] = tile_out, tile_lse
        return out, lse

    def _backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                  scale: float) -> tuple[Tensor, Tensor, Tensor]:
        if work.causal:
            return self.dense_backward(dout, q, k, v, out, lse, None, True, scale)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for tile in work.tiles(self.block):
            rows, keys = tile.queries, tile.keys
            grads = self.dense_backward(
                dout[:, :, rows], q[:, :, rows], k[:, :, keys], v[:, :, keys], out[:, :, rows], lse[:, :, rows],
                _allowed(work, tile, q.shape[1]), False, scale)
            dq[:, :, rows] = grads[0]
            dk[:, :, keys] += grads[1]
            dv[:, :, keys] += grads[2]
        return dq, dk, dv


def _accumulable(*tensors: Tensor) -> list[Tensor]:
    """In the accumulation dtype with a dense last axis, which the CPU kernels take for granted."""
    raised = [tensor.to(accumulation(tensor.dtype)) for tensor in tensors]
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in raised]


def _allowed(work: Work, tile: Tile, heads: int) -> Tensor | None:
    """The tile's mask `[B, 1 or Hq, queries, keys]`, None where it allows everything."""
    if tile.full:
        return None
    allowed = work.allowed(tile)
    return allowed if allowed.shape[1] == 1 else allowed.repeat_interleave(heads // allowed.shape[1], 1)
