"""Calls between ranks, written to a mapped file before they are made: a rank that is killed leaves its last one."""

import mmap
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness.implementation import Group

HEADER, SLOT, SLOTS = 16, 256, 1024
LONGEST_SITE = 60


class Call(NamedTuple):
    """One collective or one end of a transfer, as one rank makes it.

    phase  "load", "timed", "timeline" or the number of the forward and which half of it: "0 forward", "3 backward"
    kind   "send", "recv", "all_gather", ...
    group  name of the process group; `ranks` are its global ranks
    peer   global rank of the other end, of the root where there is one, else -1
    bytes  what this rank puts in (a receive: what it expects)
    site   the innermost call that is neither torch's nor Python's: "start (exchange.py:107)"
    """

    phase: str
    kind: str
    group: str
    ranks: tuple[int, ...]
    peer: int
    tag: int
    bytes: int
    site: str

    @property
    def collective(self) -> bool:
        return self.kind not in ("send", "recv")

    def sent(self, rank: int) -> int:
        """Bytes that leave `rank` at least, whatever algorithm runs."""
        return self._moved(rank, out=True)

    def received(self, rank: int) -> int:
        """Bytes that come to `rank` at least."""
        return self._moved(rank, out=False)

    def _moved(self, rank: int, out: bool) -> int:
        others, whole = len(self.ranks) - 1, len(self.ranks)
        alike = {"all_gather": others, "all_reduce": 2 * others / whole, "reduce_scatter": others / whole,
                 "all_to_all": others / whole, "barrier": 0}
        if self.kind in alike:
            return int(self.bytes * alike[self.kind])
        if self.kind in ("send", "recv"):
            return self.bytes if out == (self.kind == "send") else 0
        root_gives = self.kind in ("broadcast", "scatter")
        if rank == self.peer:
            return self.bytes * others if out == root_gives else 0
        return self.bytes if out != root_gives else 0

    def words(self) -> str:
        """"send of 512 bytes to rank 1 in start (exchange.py:107)"."""
        other = {"send": f" to rank {self.peer}", "recv": f" from rank {self.peer}"}.get(self.kind)
        other = other or f" among ranks {','.join(map(str, self.ranks))}"
        return f"{self.kind} of {self.bytes} bytes{other} in {self.site}"


def sent(calls: list[Call] | None, group: Group) -> int | None:
    """Bytes that leave the rank of `group` in these calls; None where nothing is traced."""
    return None if calls is None else sum(call.sent(group.ranks[group.rank]) for call in calls)


class Trace:
    """One rank's calls of the current trial in a ring of SLOTS slots.

    phase  what is going on
    count  calls so far
    apart  names of process groups whose calls are nobody's business
    """

    def __init__(self, path: str | Path):
        with open(path, "w+b") as file:
            file.truncate(HEADER + SLOT * SLOTS)
            self._map = mmap.mmap(file.fileno(), HEADER + SLOT * SLOTS)
        self.path, self.phase, self.apart = str(path), "", set()
        self._lock, self.count = threading.Lock(), 0
        self.before: Callable[[Call], None] | None = None

    def begin(self) -> None:
        """Forgets the trial before."""
        self.count, self.phase, self.before = 0, "", None
        self._map[:8] = bytes(8)

    def write(self, call: Call) -> None:
        """Keeps the call; `before` then has a moment until it is made."""
        fields = (call.phase, call.kind, call.group, ",".join(map(str, call.ranks)), call.peer, call.tag, call.bytes,
                  call.site[:LONGEST_SITE])
        line = "\t".join(map(str, fields)).encode()[:SLOT - 1]
        with self._lock:
            start = HEADER + SLOT * (self.count % SLOTS)
            self._map[start:start + SLOT] = line.ljust(SLOT, b"\0")
            self.count += 1
            self._map[:8] = self.count.to_bytes(8, "little")
        if self.before:
            self.before(call)

    def calls(self, since: int = 0) -> list[Call]:
        """The newest calls, oldest first; `since` leaves out the first so many of the trial."""
        return _read(self._map, since)

    def close(self) -> None:
        self._map.close()
        if os.path.exists(self.path):
            os.remove(self.path)


def read(path: str | Path) -> list[Call]:
    """The newest calls of a rank, oldest first, also while it runs or after it died; nothing where there is no file."""
    try:
        return _read(Path(path).read_bytes())
    except FileNotFoundError:
        return []


def _read(data: bytes | mmap.mmap, since: int = 0) -> list[Call]:
    count = int.from_bytes(data[:8], "little")
    slots = (HEADER + SLOT * (number % SLOTS) for number in range(max(since, count - SLOTS), count))
    return [_parsed(bytes(data[start:start + SLOT])) for start in slots]


def _parsed(slot: bytes) -> Call:
    phase, kind, group, ranks, peer, tag, size, site = slot.rstrip(b"\0").decode(errors="replace").split("\t")
    return Call(phase, kind, group, tuple(map(int, ranks.split(","))), int(peer), int(tag), int(size), site)
