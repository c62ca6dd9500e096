"""Exchange: moves tensors between the ranks of a group; torch.distributed and in-process forms, one interface."""

import itertools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

KEYS, GRADS = 0, 1


@dataclass(frozen=True)
class Send:
    peer: int
    tensor: Tensor


@dataclass(frozen=True)
class Receive:
    peer: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


class Exchange(Protocol):
    """Point-to-point transfers inside one group; peers are group ranks.

    `start` posts every transfer at once and returns without waiting; the callable it gives waits and returns what
    arrived, in the order of `receives`. Both ends derive shapes from the plan, so no sizes are sent. Messages of one
    channel between two ranks arrive in the order in which both sides start them; channels have no common order.
    """

    rank: int
    size: int
    traffic: "Traffic"

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]: ...


@dataclass
class Traffic:
    """Bytes and messages that a rank has sent so far."""

    bytes: int = 0
    messages: int = 0

    def count(self, sends: list[Send]) -> None:
        self.bytes += sum(send.tensor.numel() * send.tensor.element_size() for send in sends)
        self.messages += len(sends)


class Alone:
    """The exchange of a group of one: nothing to move."""

    rank, size = 0, 1

    def __init__(self):
        self.traffic = Traffic()

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        assert not sends and not receives, "a group of one has no peers"
        return list


class Distributed:
    """Transfers over a torch.distributed process group (gloo, nccl)."""

    def __init__(self, group: Any = None):
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.groups = _channel_groups(self.group)
        self.traffic = Traffic()

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        posted = self.prepare(sends, receives, channel)
        posted.post()
        return posted.wait

    def prepare(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> "Prepared":
        """What `start` does, but for posting it."""
        self.traffic.count(sends)
        arrived = [torch.empty(item.shape, dtype=item.dtype, device=item.device) for item in receives]
        operations = [self._operation(dist.irecv, buffer, item.peer, channel)
                      for buffer, item in zip(arrived, receives, strict=True)]
        operations += [self._operation(dist.isend, item.tensor, item.peer, channel) for item in sends]
        return Prepared(operations, arrived)

    def _operation(self, kind: Callable, tensor: Tensor, peer: int, channel: int) -> dist.P2POp:
        return dist.P2POp(kind, tensor, dist.get_global_rank(self.group, peer), self.groups[channel], tag=channel)


class Prepared:
    """Transfers whose buffers are there and that are not posted yet.

    On a GPU they begin when everything that was launched before `prepare` has run, whatever was launched since: posting
    takes the host long enough for the GPU to run dry, so a kernel is launched first.
    """

    def __init__(self, operations: list, arrived: list[Tensor]):
        self._operations, self._arrived, self._handles = operations, arrived, []
        buffers = [operation.tensor for operation in operations]
        self._ready = torch.cuda.current_stream().record_event() if buffers and buffers[0].is_cuda else None

    def post(self) -> None:
        if not self._operations:
            return
        if self._ready is None:
            self._handles = dist.batch_isend_irecv(self._operations)
            return
        beside = _stream(self._operations[0].tensor.device)
        beside.wait_event(self._ready)
        with torch.cuda.stream(beside):
            self._handles = dist.batch_isend_irecv(self._operations)

    def wait(self) -> list[Tensor]:
        """What arrived, in the order of the receives; on a GPU what is launched from now on waits for it."""
        for handle in self._handles:
            handle.wait()
        self._operations.clear()
        return self._arrived


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream that transfers are posted from."""
    return torch.cuda.Stream(device)


_gradient_groups: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()


def _channel_groups(group: Any) -> tuple[Any, Any]:
    """The process group of each channel. nccl ignores tags, so there gradients get a communicator of their own.

    It is kept no longer than `group`, and nothing here keeps that: gloo's threads end with their last holder, and those
    that are left when the interpreter ends abort the process.
    """
    if dist.get_backend(group) != "nccl" or dist.get_world_size(group) == 1:
        return group, group
    if group not in _gradient_groups:
        ranks = dist.get_process_group_ranks(group)
        _gradient_groups[group] = dist.new_group(ranks, backend="nccl", use_local_synchronization=True)
    return group, _gradient_groups[group]


class Mailbox:
    """What the ranks of an in-process group share: one queue a pair of ranks and channel.

    `timeout` seconds bound every wait, and setting `stop` ends them all: a rank that died must not hold the others.
    `latency` seconds pass between sending and arriving, as on a slow link.
    """

    def __init__(self, size: int, timeout: float = 60.0, stop: threading.Event | None = None, latency: float = 0.0):
        self.size, self.timeout, self.latency = size, timeout, latency
        self.stop = stop or threading.Event()
        pairs = itertools.product(range(size), range(size), (KEYS, GRADS))
        self._queues = {pair: queue.SimpleQueue() for pair in pairs}

    def put(self, source: int, target: int, channel: int, tensor: Tensor) -> None:
        self._queues[source, target, channel].put((time.monotonic() + self.latency, tensor))

    def take(self, source: int, target: int, channel: int) -> Tensor:
        waiting, end = self._queues[source, target, channel], time.monotonic() + self.timeout
        while time.monotonic() < end and not self.stop.is_set():
            try:
                arrival, tensor = waiting.get(timeout=min(0.05, self.timeout))
            except queue.Empty:
                continue
            time.sleep(max(0.0, arrival - time.monotonic()))
            return tensor
        why = "gave up waiting" if self.stop.is_set() else f"waited {self.timeout} s"
        raise TimeoutError(f"rank {target} {why} for a message of rank {source}")


class InProcess:
    """Transfers between threads of one process through a Mailbox."""

    def __init__(self, rank: int, mailbox: Mailbox):
        self.rank, self.size, self.mailbox = rank, mailbox.size, mailbox
        self.traffic = Traffic()

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        self.traffic.count(sends)
        for item in sends:
            self.mailbox.put(self.rank, item.peer, channel, item.tensor)

        def wait() -> list[Tensor]:
            arrived = [self.mailbox.take(item.peer, self.rank, channel) for item in receives]
            for item, tensor in zip(receives, arrived):
                assert tuple(tensor.shape) == tuple(item.shape) and tensor.dtype == item.dtype
            return arrived

        return wait


def exchange_for(group: Any = None) -> Exchange:
    """The exchange of a group: an Exchange as it is, a ProcessGroup, a one-dimensional DeviceMesh, or None for the
    default process group (a group of one when there is none). Raises ValueError."""
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return Alone()
    if hasattr(group, "start") and hasattr(group, "traffic"):
        return group
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ValueError(f"group is a mesh of {group.ndim} dimensions; pass the one that shards tokens: mesh['cp']")
        group = group.get_group()
    exchange = Distributed(group)
    return exchange if exchange.size > 1 else Alone()
