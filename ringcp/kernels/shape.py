"""The two orders in which attention tensors stand: heads first for users, tokens first for kernels and messages."""

import torch
from torch import Tensor


def tokens_first(*tensors: Tensor) -> list[Tensor]:
    """[B, H, L, D] -> [B * L, H, D], a view where the memory allows it."""
    return [tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors]


def heads_first(tensor: Tensor, batch: int) -> Tensor:
    """[B * L, H, D] -> [B, H, L, D], a view."""
    return tensor.unflatten(0, (batch, -1)).transpose(1, 2)


def accumulation(dtype: torch.dtype) -> torch.dtype:
    """fp64 for fp64, fp32 for everything below."""
    return torch.promote_types(dtype, torch.float32)
