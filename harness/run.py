"""`python -m harness.run` and `torchrun -m harness.run`: arguments -> trials -> table, results file, exit code."""

import importlib.util
import os
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from cases import catalogue
from cases.case import Case
from harness import arguments, listing, trials
from harness.arguments import Settings
from harness.environment import environment
from harness.implementation import load
from harness.investigate import Investigation
from harness.runners import Pools, Runner, Threads, Torchrun
from harness.table import Table
from reports import record

PASSED, FAILED, USAGE, ERROR = 0, 1, 2, 3


def main(argv: list[str] | None = None) -> int:
    """Runs what the arguments ask for. Returns the exit code: 0 all passed, 1 a failure, 2 bad usage or nothing ran,
    3 an error or an interruption."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        settings = arguments.parse(argv)
        cases = chosen(settings)
        if settings.listing:
            listing.show(settings.listing, cases, sys.stdout)
            return PASSED
        for spec in settings.implementations:
            load(spec)
        if settings.report and importlib.util.find_spec("jinja2") is None:
            raise ValueError("--report needs jinja2: pip install 'ringcheck[report]'")
        return Run(settings, cases, argv).code()
    except KeyboardInterrupt:
        print("ringcheck: interrupted", file=sys.stderr)
        return ERROR
    except ValueError as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"ringcheck: {error}", file=sys.stderr)
        return USAGE


def chosen(settings: Settings) -> list[Case]:
    """The cases that the settings select. Raises ValueError when there is none, or under torchrun another world."""
    world = os.environ.get("WORLD_SIZE") if under_torchrun() else None
    if world and settings.worlds and settings.worlds != (int(world),):
        raise ValueError(f"--ranks {','.join(map(str, settings.worlds))} but torchrun started {world} ranks")
    choice = {"layouts": settings.layouts, "dtypes": settings.dtypes, "seed": settings.seed,
              "tokens": settings.tokens, "count": settings.count}
    if not world:
        return catalogue.select(settings.cases, settings.worlds or (2,), **choice)
    found = [case for pattern in catalogue.split(settings.cases) for case in placed(pattern, int(world), choice)]
    return list({(case.id, case.digest): case for case in found}.values())


def placed(pattern: str, world: int, choice: dict[str, Any]) -> list[Case]:
    """The cases of one pattern for `world` ranks of torchrun, groups inside them included. Raises ValueError."""
    found = catalogue.select(pattern, (world,) if pattern == "random" else range(1, world + 1), **choice)
    fit = [case for case in found if case.ranks == world]
    if not fit:
        raise ValueError(f"case {found[0].id} needs {found[0].ranks} ranks but torchrun started {world}")
    return fit


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()


class Run:
    """A results file, a table and the trials between their first line and their last."""

    def __init__(self, settings: Settings, cases: list[Case], argv: list[str]):
        self.settings, self.argv = settings, argv
        self.started = time.perf_counter()
        self.runner = self._runner()
        self.investigation = Investigation(self.runner, settings)
        self.records = self.runner.share(self._earlier() if self.runner.leads and settings.resume else [])
        done = {(kept["case"]["digest"], kept["implementation"]["spec"]) for kept in self.records}
        asked = [(case, spec) for case in cases for spec in settings.implementations]
        self.todo = [(case, spec) for case, spec in asked if (case.digest, spec) not in done]
        self.kept = len(self.records)
        self.table = Table(sys.stdout, len(self.todo))
        self.writer = record.Writer(settings.json, append=settings.resume) if self.runner.leads else None

    def code(self) -> int:
        """Runs everything; what was recorded before an interruption is kept."""
        try:
            self._head()
            for case, spec in self.todo:
                kind = trials.kind_of(case, self.settings.truth)
                found = self.runner.run(case, spec, self.settings.timing, self.settings.timeout, kind)
                self.investigation.look(found, case, spec)
                self._keep(found)
                if self.settings.fail_fast and self.runner.share(found and found["verdict"] in ("FAIL", "ERROR")):
                    break
            return self._tail()
        except record.Unwritable as error:
            print(f"ringcheck: {error}; the {len(self.records)} trials before are kept", file=sys.stderr)
            return ERROR
        except KeyboardInterrupt:
            if self.writer:
                new = len(self.records) - self.kept
                self.table.note(f"interrupted after {new} of {len(self.todo)} cases    {self.settings.json}")
            return ERROR
        finally:
            self.runner.close()
            if self.writer:
                self.writer.close()

    def _runner(self) -> Runner:
        if under_torchrun():
            return Torchrun(self.settings.device, self._lost)
        return Threads() if self.settings.in_process else Pools(self.settings.device)

    def _earlier(self) -> list[dict[str, Any]]:
        if not self.settings.json.exists():
            return []
        found = record.read(self.settings.json)
        for warning in found.warnings:
            print(f"ringcheck: {warning}", file=sys.stderr)
        return found.trials

    def _head(self) -> None:
        settings, places = self.settings, self.runner.places()
        if not self.writer:
            return
        worlds = tuple(sorted({case.world for case, _ in self.todo}))
        about = environment(settings.device, self.runner.backend, self.runner.threads(max(worlds, default=1)))
        self.writer.run({
            "time": datetime.now(UTC).isoformat(timespec="seconds"), "argv": self.argv,
            "settings": {"implementations": list(settings.implementations), "cases": list(settings.cases),
                         "ranks": max(worlds, default=0), "worlds": list(worlds), "seed": settings.seed,
                         "iters": settings.timing.iters,
                         "warmup": settings.timing.warmup, "timeout": settings.timeout, "tokens": settings.tokens},
            "environment": about})
        self.table.header(settings, about, places, worlds)
        if self.kept:
            self.table.note(f"resumed: {self.kept} trials of {settings.json} are kept")

    def _keep(self, found: dict[str, Any] | None) -> None:
        if found is not None:
            self.writer.trial(found)
            self.records.append(found)
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
                self._report()
        return code

    def _report(self) -> None:
        from reports import build

        build.write([self.settings.json], self.settings.report)
        self.table.note(f"report    {self.settings.report}")


def exit_code(records: list[dict[str, Any]]) -> int:
    """By the worst verdict; nothing but refusals is nothing run."""
    verdicts = {found["verdict"] for found in records}
    if "ERROR" in verdicts:
        return ERROR
    if "FAIL" in verdicts:
        return FAILED
    return PASSED if "PASS" in verdicts else USAGE


if __name__ == "__main__":
    sys.exit(main())
