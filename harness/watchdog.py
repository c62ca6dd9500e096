"""Under torchrun: a thread on every rank that ends all of them, with a record, when one raised or hangs."""

import json
import os
import platform
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from harness import divergence, stacks, trace
from harness.trace import Call, Trace

EXIT_CODE = 3
TICK = 0.1
PATIENCE = 3.0


class Watchdog:
    """Guards one trial at a time. On a loss rank 0 calls `lost(reason)`, then every rank leaves with code 3.

    Where rank 0 itself is lost another rank says on stderr what would have been recorded. A rank whose torchrun is gone
    leaves as well, and tells what it knows by itself.
    """

    def __init__(self, store: dist.Store, rank: int, world: int, lost: Callable[[str], None], own: Trace):
        self._store, self._rank, self._world, self._lost, self._trace = store, rank, world, lost, own
        store.set(f"trace/{rank}", json.dumps([platform.node(), own.path]))
        self._main = threading.get_ident()
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self._end: float | None = None
        self._limit, self._what = 0.0, "this trial"
        self._leaving = threading.Lock()
        self._interrupted = self._recorded = False
        self._term = _term_pipe()
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    @contextmanager
    def over(self, limit: float, what: str = "this trial") -> Iterator[None]:
        """Guards a block for `limit` seconds; an exception in it ends every rank. `what` names it."""
        self._limit, self._what, self._end = limit, what, time.monotonic() + limit
        try:
            yield
        except BaseException as error:  # noqa: BLE001  whatever an implementation raises, all but a user's Ctrl-C
            if self._interrupted:
                raise
            self._leave(f"rank {self._rank} raised {stacks.raised(error)}")
        finally:
            self._end = None

    def _interrupt(self, *_) -> None:
        self._interrupted = True
        raise KeyboardInterrupt

    def _watch(self) -> None:
        while True:
            terminated = bool(select.select([self._term], [], [], TICK)[0])
            end = self._end
            if self._agent not in (None, os.getppid()):
                self._leave_alone(f"torchrun (pid {self._agent}) is gone")
            elif terminated and signal.SIGTERM in os.read(self._term, 64):
                time.sleep(1.0)
                self._leave("this rank was ended from outside: another rank was lost")
            elif end is not None and time.monotonic() > end:
                self._leave(f"no answer within {self._limit:g} s")
            elif end is not None and self._told("lost"):
                self._leave(None)

    def _leave(self, cause: str | None) -> None:
        """Tells the others, waits until rank 0 has written the record, and ends this process."""
        self._leaving.acquire()
        try:
            self._part(cause)
        except dist.DistError:
            gone = [f"torchrun (pid {self._agent}) is gone"] if self._agent not in (None, os.getppid()) else []
            self._tell_alone("; ".join([*gone, cause or "another rank was lost"]))
        finally:
            self._end_process()

    def _part(self, cause: str | None) -> None:
        if cause:
            self._store.compare_set("lost", "", json.dumps(cause))
        self._store.set(f"call/{self._rank}", json.dumps(self._mine()))
        self._store.set(f"calls/{self._rank}", json.dumps(self._trace.calls()))
        if self._rank == 0:
            self._record(self._reason())
            self._store.set("recorded", "1")
            return
        self._say(cause or self._mine())
        if self._await("call/0"):
            self._await("recorded", PATIENCE * self._world)
        elif self._store.compare_set("heir", "", str(self._rank)) == str(self._rank).encode():
            self._say(f"rank 0 is lost, and with it the record of {self._what}: ERROR {self._reason()}")
            self._say("what was recorded before is kept, --resume continues")

    def _leave_alone(self, cause: str) -> None:
        """Without torchrun there is no store to meet at."""
        self._leaving.acquire()
        try:
            self._tell_alone(f"{cause}; {self._mine()}")
        finally:
            self._end_process()

    def _tell_alone(self, reason: str) -> None:
        reason = "\n".join([reason, *divergence.last_calls({self._rank: self._trace.calls()})])
        self._say(reason)
        if self._rank == 0:
            self._record(reason)

    def _record(self, reason: str) -> None:
        """Once: the store may be lost after the record was written."""
        if self._recorded:
            return
        self._recorded = True
        if self._end is None:
            self._say("no trial was running: nothing is lost, --resume continues")
        else:
            self._lost(reason)

    def _mine(self) -> str:
        return f"rank {self._rank} {stacks.last_call(stacks.of_thread(self._main))}"

    def _say(self, text: str) -> None:
        for line in text.splitlines():
            print(f"[rank {self._rank}] {line}", file=sys.__stderr__, flush=True)

    def _end_process(self) -> None:
        shutil.rmtree(Path(self._trace.path).parent, ignore_errors=True)
        os._exit(EXIT_CODE)

    def _reason(self) -> str:
        """First line the cause, where every rank is and where they part; then every rank's last call."""
        said = self._calls()
        calls = {rank: self._traced(rank) for rank in range(self._world)}
        silent = [f"rank {rank} was killed or stopped: it says nothing any more" for rank in said if said[rank] is None]
        others = [call for call in said.values() if call is not None]
        first = "; ".join([*silent, json.loads(self._store.get("lost")), *others, *divergence.headline(calls)])
        return "\n".join([first, *divergence.last_calls(calls)])

    def _traced(self, rank: int) -> list[Call]:
        """What a rank has called: as it told, or from its file when it died on this machine."""
        if self._store.check([f"calls/{rank}"]):
            told = json.loads(self._store.get(f"calls/{rank}"))
            return [Call(*call[:3], tuple(call[3]), *call[4:]) for call in told]
        node, path = json.loads(self._store.get(f"trace/{rank}"))
        return trace.read(path) if node == platform.node() else []

    def _calls(self) -> dict[int, str | None]:
        """Where every rank is, None of those that do not answer."""
        keys = {rank: f"call/{rank}" for rank in range(self._world)}
        return {rank: json.loads(self._store.get(key)) if self._await(key) else None for rank, key in keys.items()}

    def _await(self, key: str, patience: float = PATIENCE) -> bool:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if self._store.check([key]):
                return True
            time.sleep(TICK)
        return False

    def _told(self, key: str) -> bool:
        """Not where the store is gone: who held it is looked after by others."""
        try:
            return self._store.check([key])
        except dist.DistError:
            return False


def _term_pipe() -> int:
    """A file descriptor that turns readable on SIGTERM, even while the main thread waits in C code."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading
