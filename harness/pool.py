"""The supervised living pool: worker processes that outlive trials, and are replaced when one is lost."""

import multiprocessing
import tempfile
import time
from itertools import combinations
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cases.case import Case
from harness import divergence, stacks, trace, worker
from harness.clock import Timing
from harness.compare import Verdict
from harness.control import Peers
from harness.entries import About
from harness.implementation import load
from harness.trace import Call
from harness.worker import Job, Seat

GRACE = 0.3
START_LIMIT = 120.0
PRELOADED = ["torch", "torch.distributed", "torch.fx.experimental.symbolic_shapes", "harness.worker"]


class Pool:
    """`world` ranks on this machine, started at once and used for any number of trials.

    A rank that raises, exits, is killed or does not answer in time turns its trial into an ERROR record with
    every living rank's stack; the ranks are replaced and the next trial runs as if nothing had happened.
    """

    def __init__(self, world: int, device: str = "cpu"):
        self.world, self.device = world, device
        self.restarts, self._left = 0, None
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._folder = tempfile.TemporaryDirectory(prefix="ringcheck-")
        self._workers: list[_Worker] = []
        self._generation = 0
        self._start()

    def run(self, case: Case, spec: str, timing: Timing, limit: float = 60.0,
            kind: str = "dense") -> dict[str, Any]:
        """The record of one trial of `case.ranks` ranks, within about `limit` seconds; kind: one of `trials.KINDS`."""
        started = time.perf_counter()
        records, loss = self._ask(Job(case, (spec,), timing, kind), limit)
        if loss is None:
            return records[0]
        about = About(case, load(spec), spec, self.device)
        return about.entry(Verdict("ERROR", loss), started)

    def take_turns(self, case: Case, specs: list[str], timing: Timing, limit: float,
                   kind: str) -> list[dict[str, Any]] | None:
        """The records of several implementations that take turns, None when a rank was lost over one of them."""
        return self._ask(Job(case, tuple(specs), timing, kind), limit)[0]

    def _ask(self, job: Job, limit: float) -> tuple[list[dict[str, Any]] | None, str | None]:
        """Has every rank do a job. Returns rank 0's records, or None and why it was not done. The ranks are new after a
        loss, and when one of them can run no other trial."""
        assert job.case.ranks == self.world, f"a pool of {self.world} cannot run a case of {job.case.ranks} ranks"
        loss, self._left = self._ready(), None
        if loss is None:
            for each in self._workers:
                each.send(job)
            loss = self._collect(limit)
        records = self._workers[0].answer[1] if loss is None else None
        if loss is not None or any(each.answer[2] for each in self._workers):
            self._replace()
        return records, loss

    def calls(self) -> dict[int, list[Call]]:
        """What each rank called in the last trial, also where that trial ended it."""
        return self._left or {each.seat.rank: trace.read(each.seat.trace) for each in self._workers}

    def close(self) -> None:
        """Ends the workers; a second call does nothing."""
        self._kill()
        self._folder.cleanup()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def pids(self) -> list[int]:
        """Process id of each rank."""
        return [each.process.pid for each in self._workers]

    def _start(self) -> None:
        self._generation += 1
        port, peers = self._store.port, self._piped()
        for rank in range(self.world):
            own = Path(self._folder.name) / f"{self._generation}-{rank}"
            stack, calls = own.with_suffix(".stack"), own.with_suffix(".trace")
            stack.touch()
            seat = Seat(rank, self.world, self.device, port, self._generation, str(stack), str(calls))
            self._workers.append(_Worker(self._context, seat, peers[rank]))
        for connection in (connection for own in peers for connection in own.values()):
            connection.close()

    def _piped(self) -> list[Peers]:
        """A pipe between every two ranks: for each rank its ends by the other rank."""
        peers: list[Peers] = [{} for _ in range(self.world)]
        for one, other in combinations(range(self.world), 2):
            peers[one][other], peers[other][one] = self._context.Pipe()
        return peers

    def _ready(self) -> str | None:
        """Waits for workers that still start; a pool that lost an idle worker is replaced first."""
        if any(each.started and not each.idle() for each in self._workers):
            self._replace()
        fresh = [each for each in self._workers if not each.started]
        loss = self._collect(START_LIMIT) if fresh else None
        for each in fresh:
            each.started = True
        return loss

    def _collect(self, limit: float) -> str | None:
        """Waits until every worker has answered. Returns None, or why one of them will not."""
        end, pending = time.monotonic() + limit, list(self._workers)
        while pending and (left := end - time.monotonic()) > 0:
            sources = [source for each in pending for source in (each.connection, each.process.sentinel)]
            wait(sources, left)
            for each in list(pending):
                if each.listen():
                    pending.remove(each)
            if any(each.lost for each in self._workers) and end - time.monotonic() > GRACE:
                end = time.monotonic() + GRACE
        if not pending and not any(each.lost for each in self._workers):
            return None
        return self._loss(limit)

    def _loss(self, limit: float) -> str:
        """What happened in words: first line the cause, then every living rank's stack."""
        living = {each.seat.rank: (each.process.pid, each.seat.stack) for each in self._workers if each.answer is None
                  and each.process.is_alive()}
        calls = self.calls()
        found = stacks.collect(living)
        lost = [each for each in self._workers if each.lost]
        first = [each for each in lost if not each.answer] or lost
        cause = "; ".join(each.lost for each in first[:1]) or f"no answer within {limit:g} s"
        rest = [f"rank {rank} {stacks.last_call(stack)}" for rank, stack in found.items()]
        others = [each.lost for each in lost if each not in first[:1]]
        headline = "; ".join([cause, *rest, *others, *divergence.headline(calls)])
        details = divergence.last_calls(calls)
        details += [f"rank {rank}:\n{stack.rstrip()}" for rank, stack in found.items()]
        details += [f"rank {each.seat.rank}:\n{each.answer[2].rstrip()}" for each in lost if each.answer]
        return "\n".join([headline, *details])

    def _replace(self) -> None:
        self._left = self.calls()
        self._kill()
        self.restarts += 1
        self._start()

    def _kill(self) -> None:
        for each in self._workers:
            each.process.kill()
        for each in self._workers:
            each.process.join()
            each.connection.close()
        self._workers.clear()


class _Worker:
    """The supervisor's end of one rank."""

    def __init__(self, context: Any, seat: Seat, peers: Peers):
        self.seat, self.started = seat, False
        self.answer: tuple | None = None
        self.lost: str | None = None
        self.connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=worker.main, args=(seat, theirs, peers), daemon=True)
        self.process.start()
        theirs.close()

    connection: Connection

    def send(self, job: Job) -> None:
        self.answer = self.lost = None
        try:
            self.connection.send(job)
        except OSError:
            self._gone()

    def idle(self) -> bool:
        """Whether it lives and waits for a job: its end of the pipe is closed before its death is known."""
        return self.process.is_alive() and not self.connection.poll()

    def listen(self) -> bool:
        """Whether this rank has said its last word on the current job."""
        try:
            if self.lost is None and self.connection.poll():
                self.answer = self.connection.recv()
                if self.answer[0] == "raised":
                    self.lost = f"rank {self.seat.rank} raised {self.answer[1]}"
            elif self.lost is None and not self.process.is_alive():
                self._gone()
        except (EOFError, OSError):
            self._gone()
        return self.answer is not None or self.lost is not None

    def _gone(self) -> None:
        self.process.join(1.0)
        code = self.process.exitcode
        how = f"was killed by signal {-code}" if code is not None and code < 0 else f"exited with code {code}"
        self.lost = f"rank {self.seat.rank} {how}"
