"""Kernels: local attention of one hop, one backend a file, and the table that chooses among them."""

from typing import Protocol

from torch import Tensor

from ringcp.kernels.demand import Demand
from ringcp.kernels.eager import Eager
from ringcp.kernels.fa2 import Fa2
from ringcp.kernels.fa4 import Fa4
from ringcp.kernels.ffpa import Ffpa
from ringcp.kernels.torch_cpu import TorchCpu
from ringcp.work import Work


class Kernel(Protocol):
    """Attention of L local queries over the K keys of one hop.

    q `[B, Hq, L, D]`, k `[B, Hkv, K, D]`, v `[B, Hkv, K, Dv]`; scale is a float. Results are in fp64 for fp64 inputs
    and fp32 otherwise. A query without keys in `work` has out 0 and lse minus infinity.
    """

    name: str

    def refuses(self, demand: Demand) -> str | None:
        """A reason that depends on configuration alone, or None."""
        ...

    def forward(self, q: Tensor, k: Tensor, v: Tensor, work: Work, scale: float) -> tuple[Tensor, Tensor]:
        """out `[B, Hq, L, Dv]` and lse `[B, Hq, L]` over this hop's keys."""
        ...

    def backward(self, dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, work: Work,
                 scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk, dv of this hop, from the out and lse of all hops together; lse is finite in every row."""
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
