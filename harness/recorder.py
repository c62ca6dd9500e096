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
Mark = float | torch.cuda.Event


@dataclass
class Posted:
    """A call of one rank: its phase, how many waits were over when it was made, when it was, when its wait returned."""

    call: Call
    phase: str
    waited: int
    start: Mark
    end: Mark | None = None


@dataclass(frozen=True)
class Wait:
    """The wait of one rank for what it posted."""

    start: Mark
    end: Mark
    first: Posted


class Recorder:
    """What one rank posts and waits for, from the first phase on. Calls of groups that are nobody's business, and waits
    for them, never come here; a wait inside torch's own C++ is not seen.

    On a GPU marks are events of the stream that is current: the one that transfers are posted from, and the one that is
    held up by a wait. So nothing is waited for before the step is over.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.phases: list[tuple[str, Mark]] = []
        self.posted: list[Posted] = []
        self.waits: list[Wait] = []
        self._works: dict[int, tuple[Any, list[Posted]]] = {}
        self._tensors: dict[int, list[Posted]] = {}
        self._open: dict[str, list[Posted]] = {}

    def begin(self, phase: str) -> None:
        """What follows belongs to `phase`; "" ends the last one."""
        self.phases.append((phase, self._mark()))

    def around(self, call: Call, make: Callable[[], Any]) -> Any:
        """What `make` returns: it makes the call."""
        if not self.phases:
            return make()
        posted = Posted(call, self.phases[-1][0], len(self.waits), self._mark())
        self.posted.append(posted)
        result = make()
        if call.group in self._open:
            self._open[call.group].append(posted)
        elif result is None:
            posted.end = self._mark()
        else:
            self._await(result, [posted])
        return result

    def _await(self, result: Any, posted: list[Posted]) -> None:
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
        """Hears waits, and what is posted together, until it is left."""
        space = torch.ops._c10d_functional
        taps = ((dist.Work, "wait", self._waiting), (space, "wait_tensor", lambda original: _Operator(self, original)),
                (dist.ProcessGroup, "_start_coalescing", self._opening),
                (dist.ProcessGroup, "_end_coalescing", self._closing))
        kept = [(owner, name, getattr(owner, name), tap) for owner, name, tap in taps if hasattr(owner, name)]
        for owner, name, original, tap in kept:
            setattr(owner, name, tap(original))
        try:
            yield
        finally:
            for owner, name, original, _ in kept:
                setattr(owner, name, original)

    def _waiting(self, original: Callable) -> Callable:
        def wait(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
            _, posted = self._works.pop(id(work), (None, []))
            return self.wait(posted, lambda: original(work, *args, **kwargs))

        return wait

    def _opening(self, original: Callable) -> Callable:
        def start(group: dist.ProcessGroup, *args: Any) -> Any:
            self._open[group.group_name] = []
            return original(group, *args)

        return start

    def _closing(self, original: Callable) -> Callable:
        def end(group: dist.ProcessGroup, *args: Any) -> Any:
            posted, work = self._open.pop(group.group_name, []), original(group, *args)
            self._await(work, posted)
            return work

        return end

    def tensor(self, x: Tensor) -> list[Posted]:
        """What a functional collective posted whose result is x; nothing where it was waited for before."""
        return self._tensors.pop(_memory(x), []) if self._tensors else []

    def wait(self, posted: list[Posted], action: Callable[[], Any]) -> Any:
        """What `action` returns: it waits for what was posted."""
        if not posted:
            return action()
        start, result = self._mark(), action()
        end = self._mark()
        self.waits.append(Wait(start, end, posted[0]))
        for one in posted:
            one.end = end
        return result

    def _mark(self) -> Mark:
        if self.device.type != "cuda":
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, mark: Mark) -> float:
        """Since the first phase began."""
        first = self.phases[0][1]
        return round(mark - first if isinstance(mark, float) else first.elapsed_time(mark) / 1000, DIGITS)


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
