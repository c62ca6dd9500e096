"""A whole run: arguments -> trials -> table, results file, exit code."""

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from cases.case import Case
from harness import arguments, interrupts, listing, repeat, resume, trials
from harness.arguments import Settings
from harness.choice import apart, chosen, under_torchrun
from harness.columns import columns_of
from harness.environment import environment
from harness.implementation import load
from harness.investigate import Investigation
from harness.progress import Progress, weighed
from harness.resume import Kept
from harness.runners import Pools, Runner, Threads, Torchrun
from harness.table import Table, silence
from reports import build, record

PASSED, FAILED, USAGE, ERROR = 0, 1, 2, 3
PATIENCE = 2.0


def main(argv: list[str] | None = None) -> int:
    """Runs what the arguments ask for. Returns the exit code: 0 all passed, 1 a failure, 2 bad usage or nothing ran,
    3 an error or an interruption."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        settings = arguments.parse(argv)
        cases = chosen(settings)
        for spec in settings.implementations:
            load(spec)
        if settings.listing:
            return listed(settings.listing, cases)
        with interrupts.ended_alike(under_torchrun()):
            return Run(settings, cases, argv).code()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ringcheck: interrupted", file=sys.stderr)
        return ERROR
    except ValueError as error:
        _tell(error, int(os.environ.get("RANK", "0")) if under_torchrun() else 0)
        return USAGE


def _tell(error: ValueError, rank: int) -> None:
    """Rank 0 says what is wrong. Another one gives it the time to: torchrun ends all with the first that leaves, and
    whoever is still there has met what rank 0 has not."""
    if rank:
        time.sleep(PATIENCE)
    print(f"{f'[rank {rank}] ' if rank else ''}ringcheck: {error}", file=sys.stderr, flush=True)


def listed(kind: str, cases: list[Case]) -> int:
    """Prints a list; whoever reads it may leave early."""
    try:
        listing.show(kind, cases, sys.stdout)
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        silence(sys.stdout)
        print(f"ringcheck: the list cannot be written: {error.strerror}", file=sys.stderr)
        return ERROR
    return PASSED


class Run:
    """A results file, a table and the trials between their first line and their last."""

    def __init__(self, settings: Settings, cases: list[Case], argv: list[str]):
        self.settings, self.argv = settings, argv
        self.started = time.perf_counter()
        self.runner = self._runner(cases)
        self.investigation = Investigation(self.runner, settings)
        own = {spec: {case.id for case in apart(cases, load(spec))} for spec in settings.implementations}
        self.asked = [(case, spec) for case in cases for spec in settings.implementations if case.id in own[spec]]
        self.alike = {spec: len(cases) - len(ids) for spec, ids in own.items() if len(ids) < len(cases)}
        self.now: tuple[Case, str] | None = None
        self.lost: set[str] = set()
        self.writer, self.about = None, {}
        kept = self._led(self._opened)
        self.records, self.done, self.notes = list(kept.records), kept.done, kept.notes
        self.todo = [(case, spec) for case, spec in self.asked if (case.digest, spec) not in kept.done]
        self.new = 0
        specs = [found["implementation"].get("spec") or "?" for found in self.records]
        columns = columns_of({case.group for case, _ in self.todo})
        progress = Progress([weighed(case) for case, _ in self.todo], sys.stderr)
        self.table = Table(sys.stdout, len(self.todo), [*settings.implementations, *specs], columns, progress)

    def code(self) -> int:
        """Runs everything; what was recorded before an interruption is kept."""
        try:
            self._head()
            return self._trials()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            if self.writer:
                self.table.note(f"interrupted after {self.new} of {len(self.todo)} cases    {self.settings.json}")
            return ERROR
        finally:
            self.runner.close()
            if self.writer:
                self.writer.close()

    def _trials(self) -> int:
        try:
            for found in self._found():
                if self.settings.fail_fast and self.runner.share(found and found["verdict"] in ("FAIL", "ERROR")):
                    break
            return self._tail()
        except record.Unwritable as error:
            self.table.progress.hide()
            print(f"ringcheck: {error}; the {len(self.records)} trials before are kept", file=sys.stderr)
            return ERROR

    def _found(self) -> Iterator[dict[str, Any] | None]:
        """The records as they come; those of a case together."""
        for case, asked in groupby(self.todo, itemgetter(0)):
            yield from self._asked(case, [spec for _, spec in asked])

    def _asked(self, case: Case, specs: list[str]) -> Iterator[dict[str, Any] | None]:
        """A trial of each implementation, in turns where there are times to compare; one that lost a rank before is
        asked alone, so that it costs the others no more."""
        kind, timing = trials.kind_of(case, self.settings.truth), trials.timing_of(case, self.settings.timing)
        self.now, limit, together = (case, kind), self.settings.timeout, {}
        able = [spec for spec in specs if spec not in self.lost]
        if trials.alternates(kind, case, timing, able):
            together = dict(zip(able, self.runner.take_turns(case, able, timing, limit, kind) or ()))
        for spec in specs:
            found = together[spec] if spec in together else self.runner.run(case, spec, timing, limit, kind)
            if found and found["verdict"] == "ERROR":
                self.lost.add(spec)
            try:
                self.investigation.look(found, case, spec)
            finally:
                self._keep(found)
            yield found

    def _runner(self, cases: list[Case]) -> Runner:
        if under_torchrun():
            return Torchrun(self.settings.device, self._lost)
        if self.settings.in_process:
            return Threads()
        pools = Pools(self.settings.device)
        pools.expect(cases)
        return pools

    def _led(self, make: Callable[[], Any]) -> Any:
        """What `make` gives on rank 0, on every rank, and its ValueError too, so that all leave alike."""
        found = wrong = None
        try:
            found = make() if self.runner.leads else None
        except ValueError as error:
            wrong = str(error)
        found, wrong = self.runner.share((found, wrong))
        if wrong:
            self.runner.close()
            raise ValueError(wrong)
        return found

    def _opened(self) -> Kept:
        """Opens the results file when everything that is to be written can be. Raises ValueError."""
        settings = self.settings
        if settings.report:
            build.check(settings.report, settings.json)
        worlds = {case.world for case, _ in self.asked}
        self.about = environment(settings.device, self.runner.backend, self.runner.threads(max(worlds)))
        kept = self._earlier() if settings.resume else Kept()
        self.writer = record.Writer(settings.json, append=settings.resume)
        return kept

    def _earlier(self) -> Kept:
        path = self.settings.json
        if os.path.isfile(path) and os.path.getsize(path) or os.path.isdir(path):
            found = record.read(path, strict=True)
            for warning in found.warnings:
                print(f"ringcheck: {warning}", file=sys.stderr)
            return resume.keep(found, self.asked, self.settings, self.about)
        return Kept()

    def _head(self) -> None:
        settings, places = self.settings, self.runner.places()
        if not self.writer:
            return
        worlds = tuple(sorted({case.world for case, _ in self.todo}))
        self.writer.run({
            "time": datetime.now(UTC).isoformat(timespec="seconds"), "argv": self.argv,
            "settings": {"implementations": list(settings.implementations), "cases": list(settings.cases),
                         "ranks": max(worlds, default=0), "worlds": list(worlds), "seed": settings.seed,
                         "iters": settings.timing.iters, "warmup": settings.timing.warmup,
                         "timeout": settings.timeout, "tokens": settings.tokens, "truth": settings.truth,
                         "asked": len(self.asked), "kept": len(self.asked) - len(self.todo)},
            "environment": self.about})
        self.table.header(settings, self.about, places, worlds)
        if self.writer.aside:
            self.table.note(f"{settings.json} held results already, kept as {self.writer.aside}")
        for spec, number in self.alike.items():
            self.table.note(f"{spec} has one layout, {load(spec).own_layout}: {number} cases that differ from "
                            "others in their layout alone are not asked of it")
        for number, note in enumerate(self.notes):
            self.table.note(("  " if number else "resumed: ") + note)

    def _keep(self, found: dict[str, Any] | None) -> None:
        if found is not None:
            case, kind = self.now
            found["truth"] = kind
            repeat.settle(found, case, found["implementation"]["spec"], self.settings)
            self.writer.trial(found)
            self.records.append(found)
            self.new += 1
            self.table.row(found)

    def _lost(self, found: dict[str, Any]) -> None:
        """The last words of rank 0 under torchrun."""
        self._keep(found)
        seconds = time.perf_counter() - self.started
        self.table.end(self.records, seconds, str(self.settings.json), "; cut, --resume continues")

    def _tail(self) -> int:
        code = self.runner.share(exit_code(self.records))
        if self.writer:
            seconds = time.perf_counter() - self.started
            self.table.end(self.records, seconds, str(self.settings.json))
            counts = dict(Counter(kept["verdict"] for kept in self.records))
            self.writer.end({"counts": counts, "seconds": seconds, "exit_code": code})
            if self.settings.report:
                code = max(code, self._report())
        return code

    def _report(self) -> int:
        try:
            build.write([self.settings.json], self.settings.report)
        except ValueError as error:
            print(f"ringcheck: {error}; the results are kept in {self.settings.json}", file=sys.stderr)
            return ERROR
        self.table.note(f"report    {self.settings.report}")
        return PASSED


def exit_code(records: list[dict[str, Any]]) -> int:
    """By the worst verdict; nothing but refusals is nothing run."""
    verdicts = {found["verdict"] for found in records}
    if "ERROR" in verdicts:
        return ERROR
    if "FAIL" in verdicts:
        return FAILED
    return PASSED if "PASS" in verdicts else USAGE
