"""Three ways to have ranks behind one method: a supervised pool a world, threads of this process, torchrun."""

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from cases.case import Case
from harness import stacks, trials
from harness.clock import Timing
from harness.compare import Verdict
from harness.entries import About
from harness.implementation import load
from harness.interrupts import prepare, undisturbed
from harness.pool import PRELOADED, Pool
from harness.ranks import BACKENDS, ProcessRanks, blame, run_threads, threads_per_rank
from harness.trace import Call, Trace
from harness.watchdog import Watchdog
from harness.worker import COLLECTIVE_LIMIT, Prefixed, implementation

DYNAMO = "torch._dynamo"


class Runner(Protocol):
    """Runs trials for the command line. `leads` is true where records are kept: everywhere but on ranks above 0;
    `fixed` where the number of ranks is given from outside."""

    leads: bool
    fixed: bool
    backend: str

    def threads(self, world: int) -> int: ...

    def run(self, case: Case, spec: str, timing: Timing, limit: float,
            kind: str = "dense") -> dict[str, Any] | None: ...

    def take_turns(self, case: Case, specs: list[str], timing: Timing, limit: float,
                   kind: str) -> list[dict[str, Any] | None] | None: ...

    def hold(self, found: dict[str, Any] | None) -> None: ...

    def share(self, value: Any) -> Any: ...

    def places(self) -> list[str]: ...

    def close(self) -> None: ...


class Pools:
    """`--ranks N`: one living pool a world, started when first needed."""

    leads, fixed = True, False

    def __init__(self, device: str = "cpu"):
        self.device, self.backend = device, BACKENDS[device]
        self.preloaded = list(PRELOADED)
        self._pools: dict[int, Pool] = {}
        self._last: Pool | None = None

    def expect(self, cases: Iterable[Case]) -> None:
        """What is about to be run. What torch imports late for some of it is imported once, not by every rank."""
        if DYNAMO not in self.preloaded and any(case.course.recomputes for case in cases):
            self.preloaded.append(DYNAMO)

    def threads(self, world: int) -> int:
        """Threads of torch in each rank."""
        return threads_per_rank(world)

    def pool(self, world: int) -> Pool:
        if world not in self._pools:
            prepare(self.preloaded)
            with undisturbed():
                self._pools[world] = Pool(world, self.device)
        return self._pools[world]

    def run(self, case: Case, spec: str, timing: Timing, limit: float, kind: str = "dense") -> dict[str, Any]:
        """The record of a trial; of a skipped one where a rank would have no GPU of its own."""
        if self.device == "cuda" and case.ranks > (seen := torch.cuda.device_count()):
            lack = f"not asked: it takes {case.ranks} GPUs, torch sees {seen} here"
            about = About(case, load(spec), spec, self.device, truth_of(kind))
            return about.entry(Verdict("SKIP", lack), time.perf_counter())
        self._last = self.pool(case.ranks)
        return self._last.run(case, spec, timing, limit, kind)

    def calls(self) -> dict[int, list[Call]]:
        """What each rank called in the last trial that was run."""
        return self._last.calls() if self._last else {}

    def take_turns(self, case: Case, specs: list[str], timing: Timing, limit: float,
                   kind: str) -> list[dict[str, Any]] | None:
        """Records of implementations that take turns; None where each must be asked alone, as after a loss."""
        if self.device == "cuda" and case.ranks > torch.cuda.device_count():
            return None
        return self.pool(case.ranks).take_turns(case, specs, timing, limit * len(specs), kind)

    def hold(self, found: dict[str, Any] | None) -> None:
        pass

    def share(self, value: Any) -> Any:
        return value

    def places(self) -> list[str]:
        return []

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


def truth_of(kind: str) -> str:
    """What `--truth` says of a kind of trial."""
    return kind if kind in ("probes", "relations") else "auto"


class Threads:
    """`--in-process`: ranks are threads, for implementations that declare `in_process`."""

    leads, fixed, backend = True, False, "threads"

    def __init__(self):
        torch.set_num_threads(1)

    def threads(self, world: int) -> int:
        return 1

    def run(self, case: Case, spec: str, timing: Timing, limit: float, kind: str = "dense") -> dict[str, Any]:
        started, made = time.perf_counter(), implementation(spec)
        about = About(case, made, spec, "cpu", truth_of(kind))
        if not made.in_process:
            lack = f"not asked: {made.name} does not run as threads of one process"
            return about.entry(Verdict("SKIP", lack), started)
        if case.topology.groups:
            lack = "not asked: groups inside a larger world need processes, not threads"
            return about.entry(Verdict("SKIP", lack), started)
        outcome = run_threads(case.world, lambda ranks: trials.run(kind, case, made, ranks, timing, spec), limit)
        if not outcome.raised and not outcome.stuck:
            return outcome.results[0]
        told = [f"rank {rank} raised {stacks.raised(error)}" for rank, error in blame(outcome.raised).items()]
        told = told or [f"no answer within {limit:g} s"]
        told += [f"rank {rank} {stacks.last_call(stacks.of_thread(ident))}" for rank, ident in outcome.stuck.items()]
        return about.entry(Verdict("ERROR", "; ".join(told)), started)

    def calls(self) -> dict[int, list[Call]]:
        """Nothing: threads make no calls that could be traced."""
        return {}

    def take_turns(self, case: Case, specs: list[str], timing: Timing, limit: float,
                   kind: str) -> list[dict[str, Any]] | None:
        """As for pools; also None where one of them does not run as threads."""
        made = {spec: implementation(spec) for spec in specs}
        if not all(one.in_process for one in made.values()):
            return None
        outcome = run_threads(case.world, lambda ranks: trials.run_turns(kind, case, made, ranks, timing),
                              limit * len(specs))
        return None if outcome.raised or outcome.stuck else outcome.results[0]

    def hold(self, found: dict[str, Any] | None) -> None:
        pass

    def share(self, value: Any) -> Any:
        return value

    def places(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def _assemble(store: dist.Store, world: int) -> None:
    """Waits for all ranks. One that cannot begin ends all of them (torchrun sees to that): nothing lies about then."""
    if store.add("ringcheck/arrived", 1) == world:
        store.set("ringcheck/assembled", "all")
    store.wait(["ringcheck/assembled"])


class Torchrun:
    """One process a rank, started by torchrun; `keep` is called on rank 0 with the record of a lost trial, before
    every rank leaves with code 3."""

    fixed = True

    def __init__(self, device: str, keep: Callable[[dict[str, Any]], None]):
        store, rank, world = next(dist.rendezvous("env://"))
        _assemble(store, world)
        self.device, self.backend, self.leads = device, BACKENDS[device], rank == 0
        sys.stderr = Prefixed(sys.__stderr__, f"[rank {rank}] ")
        sys.stdout = sys.__stdout__ if rank == 0 else sys.stderr
        self._folder = tempfile.TemporaryDirectory(prefix="ringcheck-")
        trace = Trace(Path(self._folder.name) / f"{rank}.trace")
        self.ranks = ProcessRanks(store, rank, world, device, COLLECTIVE_LIMIT, trace)
        self._keep, self._now, self._held = keep, None, None
        self._watchdog = Watchdog(dist.PrefixStore("ringcheck", store.clone()), rank, world, self._lost, trace)

    def threads(self, world: int) -> int:
        return torch.get_num_threads()

    def run(self, case: Case, spec: str, timing: Timing, limit: float,
            kind: str = "dense") -> dict[str, Any] | None:
        self._begin(case, spec, kind)
        self.ranks.begin()
        with self._watchdog.over(limit, f"{case.id} with {spec}"):
            return trials.run(kind, case, implementation(spec), self.ranks, timing, spec)

    def take_turns(self, case: Case, specs: list[str], timing: Timing, limit: float,
                   kind: str) -> list[dict[str, Any] | None]:
        """A loss is that of the implementation whose turn it was; --resume asks the others again."""
        made = {spec: implementation(spec) for spec in specs}
        with self._watchdog.over(limit * len(specs), f"{case.id} with {', '.join(specs)}"):
            return trials.run_turns(kind, case, made, self.ranks, timing, lambda spec: self._begin(case, spec, kind))

    def _begin(self, case: Case, spec: str, kind: str) -> None:
        self._now = About(case, load(spec), spec, self.device, truth_of(kind)), time.perf_counter()

    def hold(self, found: dict[str, Any] | None) -> None:
        """A record that is finished but not written: it is kept as it is should the next trial end all ranks."""
        self._held = found

    def share(self, value: Any) -> Any:
        """Rank 0's value on every rank."""
        return self.ranks.all_gather(value)[0]

    def places(self) -> list[str]:
        return self.ranks.all_gather(f"{platform.node()} pid {os.getpid()} {self.ranks.device}")

    def close(self) -> None:
        self.ranks.close()
        self._folder.cleanup()

    def _lost(self, reason: str) -> None:
        about, started = self._now
        self._keep(self._held or about.entry(Verdict("ERROR", reason), started))
