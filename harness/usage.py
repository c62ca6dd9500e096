"""Device memory that an implementation takes beside what it is given and what it gives back; nothing on CPU."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Usage:
    """Of one session on one rank.

    peak   most bytes that the device held in a lap, whoever held them
    extra  most bytes in a lap beyond those before it, results and gradients, with what the session kept since its load
    """

    def __init__(self, device: torch.device):
        self.device, self.kept = device, 0
        self.peak: int | None = None
        self.extra: int | None = None

    @contextmanager
    def kept_by_session(self) -> Iterator[None]:
        """What is held after the block and was not before it is the session's own."""
        before = self._held()
        yield
        self.kept += self._held() - before

    @contextmanager
    def lap(self) -> Iterator[list[Tensor]]:
        """A lap; its results and gradients are to be put into the list, and to be let go behind it."""
        results: list[Tensor] = []
        if self.device.type != "cuda":
            yield results
            return
        before = self._held()
        torch.cuda.reset_peak_memory_stats(self.device)
        yield results
        peak = torch.cuda.max_memory_allocated(self.device)
        given = sum(x.numel() * x.element_size() for x in results)
        self.peak = max(self.peak or 0, peak)
        self.extra = max(self.extra or 0, self.kept + peak - before - given)
        results.clear()

    def _held(self) -> int:
        return torch.cuda.memory_allocated(self.device) if self.device.type == "cuda" else 0
