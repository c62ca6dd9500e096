"""The ranks of a trial as one of them sees it: processes of a group, or threads of one process."""

import copy
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from cases.course import PLAIN, Course
from cases.topology import parsed
from harness import streams
from harness.control import Control, Gloo, Peers, Pipes
from harness.implementation import Group
from harness.recorder import Recorder
from harness.trace import Call, Trace
from harness.wire import tapped

Heard = Callable[[], list[Call] | None]
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
Tensors = dict[str, Tensor]


class Ranks(Protocol):
    """What a trial needs of its ranks beside the group that it hands to the implementation."""

    group: Group
    device: torch.device

    def all_gather(self, value: Any) -> list[Any]: ...

    def gather_tensors(self, tensors: Tensors) -> list[Tensors] | None: ...

    def deal_tensors(self, parts: list[Tensors] | None) -> Tensors: ...

    def barrier(self) -> None: ...

    def begin(self) -> None: ...

    def during(self, phase: str, course: Course = PLAIN,
               recorder: Recorder | None = None) -> AbstractContextManager[Heard]: ...

    def calls(self) -> list[Call] | None: ...


class ProcessRanks:
    """One process a rank. The harness talks over a group of its own, so that it never meets the implementation's
    messages, not even those that a faulty one left behind."""

    def __init__(self, store: dist.Store, rank: int, world: int, device: str, limit: float, trace: Trace,
                 peers: Peers | None = None):
        """Joins `world` processes over `store`; `limit` seconds bound every collective of an implementation. `peers`
        are pipes to the other ranks, for those of one machine."""
        self.trace = trace
        self.device = _device(device)
        timeout = timedelta(seconds=limit)
        dist.init_process_group(BACKENDS[self.device.type], store=store, rank=rank, world_size=world, timeout=timeout)
        self._world = dist.group.WORLD
        self.group = Group(rank, world, tuple(range(world)), self._world)
        self._timeout, self._parts, self._peers = timeout, {}, peers
        self._control = self._controlled(self.group.ranks)

    def part(self, groups: str) -> "tuple[int | None, ProcessRanks | None]":
        """The number and the ranks of the group of `groups` ("0,2|1,3") that this rank is in; every rank must ask.

        Nothing for a rank that is in none of them. Groups are made once and kept.
        """
        if groups not in self._parts:
            made = [self._grouped(ranks) for ranks in parsed(groups)]
            own = [(number, ranks) for number, ranks in enumerate(made) if ranks is not None]
            self._parts[groups] = own[0] if own else (None, None)
        return self._parts[groups]

    def _grouped(self, ranks: tuple[int, ...]) -> "ProcessRanks | None":
        backend = BACKENDS[self.device.type]
        asked = dist.new_group(list(ranks), backend=backend, timeout=self._timeout)
        control = self._controlled(ranks)
        if self.group.rank not in ranks:
            return None
        part = copy.copy(self)
        part._control, part._parts = control, {}
        part.group = Group(ranks.index(self.group.rank), len(ranks), ranks, asked)
        return part

    def _controlled(self, ranks: tuple[int, ...]) -> Control | None:
        """How ranks of the world talk, None for a rank that is none of them; without pipes every rank must ask."""
        if self._peers is not None:
            return Pipes(self._peers, ranks, self.group.rank) if self.group.rank in ranks else None
        group = dist.new_group(list(ranks), backend="gloo", timeout=self._timeout)
        if self.group.rank not in ranks:
            return None
        self.trace.apart.add(group.group_name)
        return Gloo(group)

    def all_gather(self, value: Any) -> list[Any]:
        return self._control.all_gather(value)

    def gather_tensors(self, tensors: Tensors) -> list[Tensors] | None:
        every = self._control.gather({name: _packed(tensor) for name, tensor in tensors.items()})
        return every and [{name: _unpacked(*item) for name, item in part.items()} for part in every]

    def deal_tensors(self, parts: list[Tensors] | None) -> Tensors:
        """This rank's part of what rank 0 deals out."""
        packed = parts and [{name: _packed(tensor) for name, tensor in part.items()} for part in parts]
        return {name: _unpacked(*item) for name, item in self._control.scatter(packed).items()}

    def barrier(self) -> None:
        self.all_gather(None)

    def begin(self) -> None:
        """A trial begins: what was traced before is another's."""
        self.trace.begin()

    @contextmanager
    def during(self, phase: str, course: Course = PLAIN, recorder: Recorder | None = None) -> Iterator[Heard]:
        """Traces what an implementation does in `phase`, with the delays of the course before each call; `recorder`
        hears of calls and waits. Yields what tells the calls so far."""
        trace, begun = self.trace, self.trace.count
        trace.phase = phase
        with ExitStack() as stack:
            if course.delay or course.late:
                self._delay(course, stack)
            try:
                with tapped(trace, recorder):
                    yield lambda: trace.calls(begun)
            finally:
                trace.phase, trace.before = "", None

    def _delay(self, course: Course, stack: ExitStack) -> None:
        """Holds up the host before every call, and on a GPU the stream that the call is made from."""
        trace, group, on_gpu = self.trace, self.group, self.device.type == "cuda"

        def seconds(what: str) -> float:
            return delays(course, group.rank, group.size, f"{trace.phase} {trace.count} {what}")

        def before(call: Call) -> None:
            time.sleep(seconds(call.kind))
            if on_gpu:
                streams.occupy(seconds(f"{call.kind} stream"))

        trace.before = before
        if on_gpu:
            stack.enter_context(streams.delayed(seconds))

    def calls(self) -> list[Call]:
        """What this rank has called since the trial began."""
        return self.trace.calls()

    @property
    def spent(self) -> bool:
        """Whether an implementation has ended or exchanged the group of all ranks, which nothing brings back."""
        return not dist.is_initialized() or dist.group.WORLD is not self._world

    def close(self) -> None:
        self.trace.close()
        if not self.spent:
            dist.destroy_process_group()


@dataclass
class _Table:
    """Where the threads of one process meet."""

    size: int
    barrier: threading.Barrier
    values: list = field(default_factory=list)


class ThreadRanks:
    """One thread a rank, for implementations that declare `in_process`."""

    device = torch.device("cpu")

    def __init__(self, rank: int, table: _Table, shared: dict):
        self.group = Group(rank, table.size, tuple(range(table.size)), None, shared)
        self._table = table

    def all_gather(self, value: Any) -> list[Any]:
        self._table.values[self.group.rank] = value
        self._table.barrier.wait()
        every = list(self._table.values)
        self._table.barrier.wait()
        return every

    def gather_tensors(self, tensors: Tensors) -> list[Tensors] | None:
        every = self.all_gather({name: tensor.detach() for name, tensor in tensors.items()})
        return every if self.group.rank == 0 else None

    def deal_tensors(self, parts: list[Tensors] | None) -> Tensors:
        return self.all_gather(parts)[0][self.group.rank]

    def barrier(self) -> None:
        self._table.barrier.wait()

    def begin(self) -> None:
        """Threads trace nothing."""

    def during(self, phase: str, course: Course = PLAIN,
               recorder: Recorder | None = None) -> AbstractContextManager[Heard]:
        """Threads make no calls that could be traced; delays come before the phase."""
        time.sleep(delays(course, self.group.rank, self.group.size, phase))
        return nullcontext(lambda: None)

    def calls(self) -> None:
        return None


@dataclass
class Outcome:
    """How the threads of one trial ended: results or exceptions by rank, threads that never did."""

    results: dict[int, Any] = field(default_factory=dict)
    raised: dict[int, BaseException] = field(default_factory=dict)
    stuck: dict[int, int] = field(default_factory=dict)


def run_threads(world: int, work: Callable[[ThreadRanks], Any], limit: float, grace: float = 1.0) -> Outcome:
    """Runs `work` once a rank, each in a thread. `limit` in seconds; after a rank raised the others have `grace`.

    `Group.shared["stop"]` is an Event that is set when a rank raised or time ran out: whoever waits in process
    for another rank should watch it. Threads that still run are left behind and named by thread id in `stuck`.
    """
    table = _Table(world, threading.Barrier(world, timeout=limit), [None] * world)
    shared = {"stop": threading.Event()}
    outcome, done = Outcome(), threading.Semaphore(0)

    def rank_main(rank: int) -> None:
        try:
            outcome.results[rank] = work(ThreadRanks(rank, table, shared))
        except BaseException as error:  # noqa: BLE001  reported by the caller, rank by rank
            outcome.raised[rank] = error
            shared["stop"].set()
            table.barrier.abort()
        finally:
            done.release()

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(world)]
    for thread in threads:
        thread.start()
    _await(threads, limit, grace, shared["stop"])
    shared["stop"].set()
    table.barrier.abort()
    outcome.stuck = {rank: thread.ident for rank, thread in enumerate(threads) if thread.is_alive()}
    return outcome


def _await(threads: list[threading.Thread], limit: float, grace: float, stop: threading.Event) -> None:
    end = time.monotonic() + limit
    for thread in threads:
        while thread.is_alive() and time.monotonic() < end:
            thread.join(min(0.05, max(0.0, end - time.monotonic())))
            if stop.is_set():
                end = min(end, time.monotonic() + grace)
                break
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))


def blame(raised: dict[int, BaseException]) -> dict[int, BaseException]:
    """Without the ranks that raised only because another one had."""
    first = {rank: error for rank, error in raised.items() if not isinstance(error, threading.BrokenBarrierError)}
    return first or raised


def delays(course: Course, rank: int, world: int, call: str) -> float:
    """Seconds that a rank waits before a call: the same in every run of the case."""
    if not course.delay and not course.late:
        return 0.0
    late = course.late if rank == world - 1 else 0.0
    return random.Random(f"{rank} {call}").uniform(0, course.delay) + late


def threads_per_rank(world: int) -> int:
    """Threads of torch in each of `world` ranks that share this machine: OMP_NUM_THREADS, where somebody gave it, as
    runs beside each other would otherwise take all cores each."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else max(1, (os.cpu_count() or 1) // world)


def _device(name: str) -> torch.device:
    if name != "cuda":
        return torch.device(name)
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("cuda", torch.cuda.current_device())


def _packed(tensor: Tensor) -> tuple[torch.dtype, torch.Size, np.ndarray]:
    flat = tensor.detach().cpu().contiguous().flatten()
    return tensor.dtype, tensor.shape, flat.view(torch.uint8).numpy()


def _unpacked(dtype: torch.dtype, shape: torch.Size, raw: np.ndarray) -> Tensor:
    return torch.from_numpy(raw).view(dtype).view(shape) if raw.size else torch.empty(shape, dtype=dtype)
