"""Memory that is handed out again as soon as nobody holds it, as allocators do: an address says nothing (SPEC D3)."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

ALIGNED = 64


class Arena:
    """The first block of a size that nobody holds is the next to be used."""

    def __init__(self):
        self._blocks: list[tuple[bytearray, Callable[[], memoryview | None]]] = []

    def like(self, x: Tensor) -> Tensor:
        """A dense tensor of x's shape and dtype; what it holds is left over from others."""
        size = x.numel() * x.element_size()
        if not size:
            return torch.empty(x.shape, dtype=x.dtype)
        block = self._free(size + ALIGNED)
        held = memoryview(block)
        self._blocks.append((block, weakref.ref(held)))
        return _dense(held, x)

    def _free(self, size: int) -> bytearray:
        """A block that is free, which is taken off the list, or a new one."""
        for number, (block, held) in enumerate(self._blocks):
            if len(block) == size and held() is None:
                return self._blocks.pop(number)[0]
        return bytearray(size)


def _dense(held: memoryview, x: Tensor) -> Tensor:
    """torch keeps `held` alive for as long as the storage of this tensor."""
    start = -torch.frombuffer(held, dtype=torch.uint8).data_ptr() % ALIGNED
    return torch.frombuffer(held, dtype=x.dtype, count=x.numel(), offset=start).view(x.shape)
