"""Demand: the configuration that chooses a kernel, and what families of kernels can take of it, in words."""

from dataclasses import dataclass

import torch

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Demand:
    """What a call asks of a kernel; equal on every rank, since nothing here comes from a rank's own tokens.

    device      "cpu" or "cuda"
    groups      key/value heads that the mask tells apart
    rules       the mask's rules by name, of "causal", "window", "documents", "padding", "vision", "regions"
    tokens      of the whole row
    """

    device: str
    dtype: torch.dtype
    head_dim: int
    value_dim: int
    groups: int = 1
    rules: frozenset[str] = frozenset()
    tokens: int = 0


def on_cuda(demand: Demand, least: tuple[int, int]) -> str | None:
    """A reason unless this is a GPU of at least this compute capability."""
    if demand.device != "cuda":
        return f"runs on cuda only, not on {demand.device}"
    if torch.cuda.get_device_capability() < least:
        return f"needs compute capability {least[0]}.{least[1]}"
    return None


def banded(demand: Demand) -> str | None:
    """A reason when the mask is no band that all heads share."""
    return "cannot tell key/value heads apart, as selected regions want" if demand.groups > 1 else None


def half(demand: Demand, most: int, least: int = 8) -> str | None:
    """A reason unless dtype and head_dims suit half-precision kernels, whose head_dims go in steps of 8."""
    if demand.dtype not in HALF:
        return f"takes bfloat16 and float16, not {str(demand.dtype).removeprefix('torch.')}"
    if demand.head_dim != demand.value_dim:
        return f"takes one head_dim for keys and values, not {demand.head_dim} and {demand.value_dim}"
    if demand.head_dim % 8 or not least <= demand.head_dim <= most:
        return f"takes head_dims from {least} to {most} in steps of 8, not {demand.head_dim}"
    return None


def floating(demand: Demand) -> str | None:
    """A reason unless the dtype is a floating-point one."""
    return None if demand.dtype.is_floating_point else f"{demand.dtype} is not a floating-point dtype"
