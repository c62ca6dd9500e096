"""How the ranks of a trial tell each other what they found, apart from every message of an implementation."""

import pickle
import threading
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

HEAD, SHORT = 8, 4096
Peers = dict[int, Connection]


class Control(Protocol):
    """Collectives over Python values, the same on every rank of a group."""

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value."""
        ...

    def gather(self, value: Any) -> list[Any] | None:
        """Every rank's value on group rank 0, None elsewhere."""
        ...

    def scatter(self, values: list[Any] | None) -> Any:
        """What group rank 0 has for this rank, a value a rank; elsewhere `values` is not looked at."""
        ...


class Pipes:
    """Over pipes between processes of one machine, through group rank 0: a tenth of what gloo takes.

    peers  a connection to each other rank of the world; ranks  those of the group, by rank of the world
    """

    def __init__(self, peers: Peers, ranks: tuple[int, ...], rank: int):
        self._first = None if rank == ranks[0] else peers[ranks[0]]
        self._rest = [peers[other] for other in ranks[1:]] if self._first is None else []

    def all_gather(self, value: Any) -> list[Any]:
        every = self.gather(value)
        if every is None:
            return _received(self._first)
        for peer in self._rest:
            _sent(peer, every)
        return every

    def gather(self, value: Any) -> list[Any] | None:
        if self._first is not None:
            _sent(self._first, value)
            return None
        return [value, *(_received(peer) for peer in self._rest)]

    def scatter(self, values: list[Any] | None) -> Any:
        if self._first is not None:
            return _received(self._first)
        for peer, value in zip(self._rest, values[1:], strict=True):
            _sent(peer, value)
        return values[0]


def _sent(peer: Connection, value: Any) -> None:
    try:
        peer.send(value)
    except OSError:
        _stay()


def _received(peer: Connection) -> Any:
    try:
        return peer.recv()
    except (EOFError, OSError):
        _stay()


def _stay() -> None:
    """The other rank is gone; whoever supervises both tells of it and ends this one too."""
    threading.Event().wait()


class Gloo:
    """Over a gloo group of its own, for ranks that torchrun started anywhere."""

    def __init__(self, group: dist.ProcessGroup):
        self._group = group

    def all_gather(self, value: Any) -> list[Any]:
        """What is short takes one collective; should any rank's be long, all take another."""
        mine = pickle.dumps(value)
        slots = self._every(_sized(mine, SHORT))
        most = max(_size(slot) for slot in slots)
        if most > SHORT:
            slots = self._every(_sized(mine, most))
        return [pickle.loads(slot[HEAD:HEAD + _size(slot)].numpy().tobytes()) for slot in slots]

    def gather(self, value: Any) -> list[Any] | None:
        first = dist.get_rank(self._group) == 0
        every = [None] * dist.get_world_size(self._group) if first else None
        dist.gather_object(value, every, group=self._group, group_dst=0)
        return every

    def scatter(self, values: list[Any] | None) -> Any:
        own = [None]
        dist.scatter_object_list(own, values, group=self._group, group_src=0)
        return own[0]

    def _every(self, slot: Tensor) -> list[Tensor]:
        every = [torch.empty_like(slot) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(every, slot, group=self._group)
        return every


def _sized(content: bytes, room: int) -> Tensor:
    """Content behind its length in HEAD + room bytes; only the length where it does not fit."""
    slot = torch.zeros(HEAD + room, dtype=torch.uint8)
    slot[:HEAD] = torch.tensor([len(content)]).view(torch.uint8)
    if len(content) <= room:
        slot[HEAD:HEAD + len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    return slot


def _size(slot: Tensor) -> int:
    return int(slot[:HEAD].view(torch.int64))
