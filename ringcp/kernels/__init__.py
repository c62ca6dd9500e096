"""Kernels: local attention of one hop, one backend a file, and the table that chooses among them."""

from typing import Protocol

import torch
from torch import Tensor

from ringcp.kernels.demand import Demand
from ringcp.kernels.eager import Eager
from ringcp.kernels.fa2 import Fa2
from ringcp.kernels.fa4 import Fa4
from ringcp.kernels.ffpa import Ffpa
from ringcp.kernels.torch_cpu import TorchCpu
from ringcp.merge import Merged, Total
from ringcp.work import Work


class Kernel(Protocol):
    """Attention of L local queries over the K keys of one hop.

    q `[B, Hq, L, D]`, k `[B, Hkv, K, D]`, v `[B, Hkv, K, Dv]`; scale is a float. Results go into accumulators, which
    stand tokens first, so that a hop costs only the rows it touches.
    """

    name: str

    def refuses(self, demand: Demand) -> str | None:
        """A reason that depends on configuration alone, or None."""
        ...

    def partial(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of partial results for inputs of `dtype`; sums of them are computed in fp32 or better."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float, into: Merged) -> None:
        """Merges out and lse over this hop's keys; queries without keys in `work` are left out or have lse -inf."""
        ...

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float, dq: Total, dk: Total, dv: Total) -> None:
        """Adds this hop's gradients, from the out and lse of all hops together; lse is finite in every row."""
        ...


TABLE: tuple[Kernel, ...] = (Fa4(), Ffpa(), Fa2(), TorchCpu(), Eager())


def select(demand: Demand, name: str | None = None) -> Kernel:
    """The first kernel of the table that takes this configuration, or the one named. Raises ValueError."""
    asked = [kernel for kernel in TABLE if name in (None, kernel.name)]
    if not asked:
        raise ValueError(f"unknown kernel {name!r}: known are {', '.join(kernel.name for kernel in TABLE)}")
    for kernel in asked:
        if kernel.refuses(demand) is None:
            return kernel
    raise ValueError("; ".join(f"kernel {kernel.name} {kernel.refuses(demand)}" for kernel in asked))


def why(demand: Demand) -> dict[str, str | None]:
    """Every kernel of the table in order, with its reason to refuse, None for those that would run."""
    return {kernel.name: kernel.refuses(demand) for kernel in TABLE}
