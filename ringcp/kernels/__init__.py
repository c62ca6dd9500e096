"""Kernels: local attention of one hop, one backend a file, and the table that chooses among them."""

from typing import Protocol

import torch
from torch import Tensor

from ringcp.kernels.eager import Eager
from ringcp.kernels.torch_cpu import TorchCpu
from ringcp.work import Work


class Kernel(Protocol):
    """Attention of L local queries over the K keys of one hop.

    q `[B, Hq, L, D]`, k `[B, Hkv, K, D]`, v `[B, Hkv, K, Dv]`; scale is a float. Results are in fp64 for fp64 inputs
    and fp32 otherwise. A query without keys in `work` has out 0 and lse minus infinity.
    """

    name: str

    def refuses(self, device: str, dtype: torch.dtype) -> str | None:
        """A reason that depends on configuration alone, or None."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float) -> tuple[Tensor, Tensor]:
        """out `[B, Hq, L, Dv]` and lse `[B, Hq, L]` over this hop's keys."""
        ...

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk, dv of this hop, from the out and lse of all hops together; lse is finite in every row."""
        ...


TABLE: tuple[Kernel, ...] = (TorchCpu(), Eager())


def select(device: str, dtype: torch.dtype, name: str | None = None) -> Kernel:
    """The first kernel of the table that takes this configuration, or the one named. Raises ValueError."""
    asked = [kernel for kernel in TABLE if name in (None, kernel.name)]
    if not asked:
        raise ValueError(f"unknown kernel {name!r}: known are {', '.join(kernel.name for kernel in TABLE)}")
    reasons = {kernel.name: kernel.refuses(device, dtype) for kernel in asked}
    for kernel in asked:
        if reasons[kernel.name] is None:
            return kernel
    raise ValueError("; ".join(f"kernel {kernel}: {reason}" for kernel, reason in reasons.items()))
