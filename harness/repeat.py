"""The commands that a record prints: each repeats one case as it was asked."""

import sys
from pathlib import Path
from typing import Any

from cases import generate
from cases.case import Case
from harness.arguments import Settings, parser
from harness.choice import under_torchrun
from harness.entries import again


def settle(found: dict[str, Any], case: Case, spec: str, settings: Settings) -> None:
    """Gives a record's commands the settings of its run, which the ranks that made it do not know."""
    diagnosis = found["diagnosis"]
    if not diagnosis:
        return
    diagnosis["again"] = command(case, spec, settings)
    shrunk = diagnosis.get("shrunk")
    if shrunk and shrunk["again"]:
        shrunk["again"] = command(generate.from_replay(shrunk["replay"]), spec, settings)


def command(case: Case, spec: str, settings: Settings) -> str:
    """The command line of one case under these settings."""
    given = {"--iters": settings.timing.iters, "--warmup": settings.timing.warmup, "--timeout": settings.timeout}
    flags = [f"{flag} {value:g}" for flag, value in given.items() if value != parser().get_default(flag.strip("-"))]
    flags += ["--in-process"] * settings.in_process
    return again(case, spec, settings.device, settings.truth, start(case), flags)


def start(case: Case) -> str:
    """How this program was started, with the ranks of a case."""
    if under_torchrun():
        return f"torchrun --nproc-per-node {case.ranks} -m {module() or 'ringcheck'}"
    name = module()
    return f"python -m {name} --ranks {case.world}" if name else f"ringcheck --ranks {case.world}"


def module() -> str | None:
    """The module that `python -m` was given, None for the console script."""
    path = Path(sys.argv[0])
    known = {("ringcheck", "__main__"): "ringcheck", ("harness", "run"): "harness.run"}
    return known.get((path.parent.name, path.stem))
