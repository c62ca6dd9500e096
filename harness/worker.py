"""One rank of the living pool: a process that joins the others once and then runs trial after trial."""

import os
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from typing import TextIO

import torch
import torch.distributed as dist

from cases.case import Case
from harness import stacks, trials
from harness.clock import Timing
from harness.control import Peers
from harness.implementation import Implementation, load
from harness.interrupts import follow_parent
from harness.ranks import ProcessRanks, threads_per_rank
from harness.trace import Trace

COLLECTIVE_LIMIT = 3600.0


@dataclass(frozen=True)
class Seat:
    """A worker's place: its rank in a pool of `world`, the store where they meet, the files for its stack and trace."""

    rank: int
    world: int
    device: str
    port: int
    generation: int
    stack: str
    trace: str


@dataclass(frozen=True)
class Job:
    """A trial to run, the same on every rank; of several implementations, one each that take turns."""

    case: Case
    specs: tuple[str, ...]
    timing: Timing
    kind: str = "dense"


def main(seat: Seat, connection: Connection, peers: Peers) -> None:
    """Serves jobs until the connection closes. Answers ("done", records or Nones, whether this rank is spent and
    can run no other trial) or ("raised", line, traceback)."""
    follow_parent()
    stacks.offer(seat.stack)
    os.dup2(2, 1)
    sys.stdout = sys.stderr = Prefixed(sys.__stderr__, f"[rank {seat.rank}] ")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    os.environ["LOCAL_RANK"] = str(seat.rank)
    torch.set_num_threads(threads_per_rank(seat.world))
    store = dist.PrefixStore(str(seat.generation), dist.TCPStore("127.0.0.1", seat.port, is_master=False))
    ranks = ProcessRanks(store, seat.rank, seat.world, seat.device, COLLECTIVE_LIMIT, Trace(seat.trace), peers)
    connection.send(("ready",))
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        connection.send(_answer(job, ranks))


def _answer(job: Job, ranks: ProcessRanks) -> tuple:
    ranks.begin()
    made = {spec: implementation(spec) for spec in job.specs}
    try:
        if len(made) > 1:
            return "done", trials.run_turns(job.kind, job.case, made, ranks, job.timing), ranks.spent
        (spec, one), = made.items()
        return "done", [trials.run(job.kind, job.case, one, ranks, job.timing, spec)], ranks.spent
    except BaseException as error:  # noqa: BLE001  SIGINT is ignored here, so whatever comes is an implementation's
        return "raised", stacks.raised(error), stacks.told(error)


@cache
def implementation(spec: str) -> Implementation:
    return load(spec)


class Prefixed:
    """Writes whole lines with the rank in front of each."""

    def __init__(self, stream: TextIO, prefix: str):
        self._stream, self._prefix, self._open = stream, prefix, ""

    def write(self, text: str) -> int:
        *lines, self._open = (self._open + text).split("\n")
        self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
        self._stream.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def __getattr__(self, name: str):
        return getattr(self._stream, name)
