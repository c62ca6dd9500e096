"""What one rank posts to others and what it waits for, as it happens: a step seen from torch.distributed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.trace import Call

DIGITS = 7


@dataclass
class Posted:
    """A call of one rank: its phase, how many waits were over when it was made, when it was, when its wait returned."""

    call: Call
    phase: str
    waited: int
    start: float
    end: float | None = None


@dataclass(frozen=True)
class Wait:
    """The wait of one rank for what it posted."""

    start: float
    end: float
    posted: Posted


class Recorder:
    """What one rank posts and waits for, from the first phase on. Calls of groups that are nobody's business, and waits
    for them, never come here; a wait inside torch's own C++ is not seen.

    The host's clock tells all of it, so it is no recorder of nccl: there a wait holds up a stream and no host.
    """

    def __init__(self):
        self.phases: list[tuple[str, float]] = []
        self.posted: Posted = []
        self.waits: list[Wait] = []
        self._works: dict[int, tuple[Any, Posted]] = {}
        self._tensors: dict[int, Posted] = {}

    def begin(self, phase: str) -> None:
        """What follows belongs to `phase`; "" ends the last one."""
        self.phases.append((phase, perf_counter()))

    def around(self, call: Call, make: Callable[[], Any]) -> Any:
        """What `make` returns: it makes the call."""
        if not self.phases:
            return make()
        posted = Posted(call, self.phases[-1][0], len(self.waits), perf_counter())
        self.posted.append(posted)
        result = make()
        if result is None:
            posted.end = perf_counter()
        else:
            self._await(result, posted)
        return result

    def _await(self, result: Any, posted: Posted) -> None:
        """Remembers that whoever waits for a Work or for a tensor waits for what was posted."""
        if isinstance(result, Tensor):
            self._tensors[_memory(result)] = posted
        elif isinstance(result, list | tuple):
            for one in result:
                self._await(one, posted)
        elif result is not None:
            self._works[id(result)] = result, posted

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """Hears waits until it is left."""
        space = torch.ops._c10d_functional
        wait, wait_tensor = dist.Work.wait, space.wait_tensor
        dist.Work.wait, space.wait_tensor = self._waiting(wait), _Operator(self, wait_tensor)
        try:
            yield
        finally:
            dist.Work.wait, space.wait_tensor = wait, wait_tensor

    def _waiting(self, original: Callable) -> Callable:
        def wait(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            _, posted = self._works.pop(id(work), (None, None))
            return self.wait(posted, lambda: original(work, *args, **kwargs))

        return wait

    def tensor(self, x: Tensor) -> Posted | None:
        """What a functional collective posted whose result is x; None where it was waited for before."""
        return self._tensors.pop(_memory(x), None) if self._tensors else None

    def wait(self, posted: Posted | None, action: Callable[[], Any]) -> Any:
        """What `action` returns: it waits for what was posted, or for what is nobody's business."""
        if posted is None:
            return action()
        start, result = perf_counter(), action()
        posted.end = perf_counter()
        self.waits.append(Wait(start, posted.end, posted))
        return result

    def seconds(self, at: float) -> float:
        """Since the first phase began."""
        return round(at - self.phases[0][1], DIGITS)


class _Operator:
    """wait_tensor, heard; its overloads stay reachable."""

    def __init__(self, recorder: Recorder, original: Any):
        self._recorder, self._original = recorder, original

    def __call__(self, x: Tensor) -> Tensor:
        return self._recorder.wait(self._recorder.tensor(x), lambda: self._original(x))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _memory(x: Tensor) -> int:
    """Where its numbers lie: of a tensor that waits for itself, where those of the one inside lie."""
    return getattr(x, "elem", x).untyped_storage().data_ptr()
