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
    """Guards one trial at a time. On a loss rank 0 calls `lost(reason)`, then every rank leaves with code 3."""

    def __init__(self, store: dist.Store, rank: int, world: int, lost: Callable[[str], None], own: Trace):
        self._store, self._rank, self._world, self._lost, self._trace = store, rank, world, lost, own
        store.set(f"trace/{rank}", json.dumps([platform.node(), own.path]))
        self._main = threading.get_ident()
        self._end: float | None = None
        self._limit = 0.0
        self._leaving = threading.Lock()
        self._term = _term_pipe()
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    @contextmanager
    def over(self, limit: float) -> Iterator[None]:
        """Guards a block for `limit` seconds; an exception in it ends every rank."""
        self._limit, self._end = limit, time.monotonic() + limit
        try:
            yield
        except (Exception, SystemExit) as error:
            self._leave(f"rank {self._rank} raised {stacks.raised(error)}")
        finally:
            self._end = None

    def _watch(self) -> None:
        while True:
            terminated = bool(select.select([self._term], [], [], TICK)[0])
            end = self._end
            if terminated and signal.SIGTERM in os.read(self._term, 64):
                time.sleep(1.0)
                self._leave("this rank was ended from outside: another rank was lost")
            elif end is not None and time.monotonic() > end:
                self._leave(f"no answer within {self._limit:g} s")
            elif end is not None and self._store.check(["lost"]):
                self._leave(None)

    def _leave(self, cause: str | None) -> None:
        """Tells the others, waits until rank 0 has written the record, and ends this process."""
        self._leaving.acquire()
        try:
            if cause:
                self._store.compare_set("lost", "", json.dumps(cause))
            mine = f"rank {self._rank} {stacks.last_call(stacks.of_thread(self._main))}"
            self._store.set(f"call/{self._rank}", json.dumps(mine))
            self._store.set(f"calls/{self._rank}", json.dumps(self._trace.calls()))
            if self._rank == 0:
                self._lost(self._reason())
                self._store.set("recorded", "1")
            else:
                print(f"[rank {self._rank}] {cause or mine}", file=sys.stderr, flush=True)
                self._await("recorded")
        finally:
            shutil.rmtree(Path(self._trace.path).parent, ignore_errors=True)
            os._exit(EXIT_CODE)

    def _reason(self) -> str:
        """First line the cause, where every rank is and where they part; then every rank's last call."""
        stacks_found = self._calls()
        calls = {rank: self._traced(rank) for rank in range(self._world)}
        first = "; ".join([json.loads(self._store.get("lost")), *stacks_found, *divergence.headline(calls)])
        return "\n".join([first, *divergence.last_calls(calls)])

    def _traced(self, rank: int) -> list[Call]:
        """What a rank has called: as it told, or from its file when it died on this machine."""
        if self._store.check([f"calls/{rank}"]):
            told = json.loads(self._store.get(f"calls/{rank}"))
            return [Call(*call[:3], tuple(call[3]), *call[4:]) for call in told]
        node, path = json.loads(self._store.get(f"trace/{rank}"))
        return trace.read(path) if node == platform.node() else []

    def _calls(self) -> list[str]:
        found = []
        for rank in range(self._world):
            key = f"call/{rank}"
            found.append(json.loads(self._store.get(key)) if self._await(key) else f"rank {rank} said nothing")
        return found

    def _await(self, key: str) -> bool:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self._store.check([key]):
                return True
            time.sleep(TICK)
        return False


def _term_pipe() -> int:
    """A file descriptor that turns readable on SIGTERM, even while the main thread waits in C code."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading
