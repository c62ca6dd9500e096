"""Kernels: local attention of one hop, one backend a file, and the table that chooses among them."""

from typing import Protocol

import torch
from torch import Tensor

from ringcp.kernels.cudnn import Cudnn
from ringcp.kernels.demand import Demand
from ringcp.kernels.eager import Eager
from ringcp.kernels.fa2 import Fa2
from ringcp.kernels.fa4 import Fa4
from ringcp.kernels.ffpa import Ffpa
from ringcp.kernels.flex import Flex
from ringcp.kernels.torch_cpu import TorchCpu
from ringcp.merge import Merged, Total
from ringcp.work import Work


class Kernel(Protocol):
    """Attention of L local queries over the K keys of one hop.

    q `[B, Hq, L, D]`, k `[B, Hkv, K, D]`, v `[B, Hkv, K, Dv]`; scale is a float. Results go into accumulators, which
    stand tokens first, so that a hop costs only the rows it touches. `pays_from` tokens of a row on it is worth its
    compilation; shorter rows take it only by name.
    """

    name: str
    pays_from: int

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


TABLE: tuple[Kernel, ...] = (Fa4(), Ffpa(), Cudnn(), Fa2(), TorchCpu(), Flex(), Eager())


def select(demand: Demand, name: str | None = None) -> Kernel:
    """The first kernel of the table that takes this configuration, or the one named. Raises ValueError."""
    if name is not None:
        reason = named(name).refuses(demand)
        if reason:
            raise ValueError(f"kernel {name} {reason}")
        return named(name)
    for kernel in TABLE:
        if unfit(kernel, demand) is None:
            return kernel
    raise ValueError("; ".join(f"kernel {kernel} {reason}" for kernel, reason in why(demand).items()))


def named(name: str) -> Kernel:
    """A kernel of the table. Raises ValueError."""
    for kernel in TABLE:
        if kernel.name == name:
            return kernel
    raise ValueError(f"unknown kernel {name!r}: known are {', '.join(kernel.name for kernel in TABLE)}")


def why(demand: Demand) -> dict[str, str | None]:
    """Every kernel of the table in order, with the reason why it is not chosen, None for those that would run."""
    return {kernel.name: unfit(kernel, demand) for kernel in TABLE}


def unfit(kernel: Kernel, demand: Demand) -> str | None:
    """Why a kernel that nobody named is passed over."""
    if demand.tokens < kernel.pays_from:
        return f"pays from {kernel.pays_from} tokens on, not with {demand.tokens}"
    return kernel.refuses(demand)
