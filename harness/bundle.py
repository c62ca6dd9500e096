"""`ringcheck bundle CASE --impl X`: one archive with which somebody else sees the same failure."""

import argparse
import importlib.util
import json
import os
import re
import shlex
import sys
import zipfile
from pathlib import Path
from typing import Any, NoReturn

from cases import catalogue, generate
from cases.case import Case
from harness import arguments, trials
from harness.arguments import Settings
from harness.clock import Timing
from harness.environment import environment
from harness.implementation import KNOWN, load
from harness.investigate import Investigation
from harness.ranks import BACKENDS
from harness.replay_script import script
from harness.runners import Pools, Threads
from reports.record import plain

OWN = ("harness", "cases", "reference", "ringcp", "reports")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parser() -> argparse.ArgumentParser:
    """All flags with their help."""
    made = _Parser(prog="ringcheck bundle", allow_abbrev=False, description="Runs one case and packs what shows it.")
    add = made.add_argument
    add("case", metavar="CASE", help="the id of one case, or 'replay:...'")
    add("--impl", default="ring", metavar="NAME", help="as for a run")
    add("--ranks", type=int, metavar="N", help="number of ranks (default: the case's own, as its id says, or else 2)")
    add("--seed", type=arguments.natural, default=7, metavar="N")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--truth", choices=trials.CHOICES, default="auto")
    add("--timeout", type=arguments.seconds, default=60.0, metavar="S")
    add("--shrink", action=argparse.BooleanOptionalAction, default=True, help="packs a smallest case that still fails")
    add("--in-process", action="store_true", help="ranks are threads of one process")
    add("-o", "--output", type=Path, metavar="FILE", help="the archive (default CASE.zip)")
    return made


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the archive is written, whatever the verdict, and 2 for bad usage."""
    try:
        given = parser().parse_args(sys.argv[1:] if argv is None else argv)
        case = one_case(given.case, given.ranks, given.seed)
        path = given.output or Path(re.sub(r"[^A-Za-z0-9.-]+", "-", case.id) + ".zip")
        check(path)
        record = ask(case, given)
        names = write(path, case, given, record)
    except ValueError as error:
        print(f"ringcheck: {error}", file=sys.stderr)
        return 2
    print(f"{record['verdict']} {case.id}  {headline(record)}")
    print(f"{path}: {', '.join(names)}")
    return 0


def check(path: Path) -> None:
    """Raises ValueError when the archive would take the place of anything that is no archive, has no place, or a name
    that promises another kind of archive."""
    if path.suffix.lower() not in ("", ".zip"):
        raise ValueError(f"bundle {path} is a zip archive: name it .zip, not {path.suffix}")
    if path.exists() and not zipfile.is_zipfile(path):
        raise ValueError(f"bundle {path} would overwrite what is no zip archive")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"bundle {path} cannot be written: {path.parent} is no folder that can be written to")


def ask(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """The record of the case, with whatever an investigation adds to a failure."""
    load(given.impl)
    settings = Settings((given.case,), (given.impl,), (case.world,), None, None, given.device, None, Timing(iters=0),
                        given.seed, given.timeout, Path(), None, False, False, given.in_process, None, given.truth,
                        given.shrink)
    runner = Threads() if given.in_process else Pools(given.device)
    try:
        kind = trials.kind_of(case, given.truth)
        record = runner.run(case, given.impl, settings.timing, given.timeout, kind)
        trace = runner.calls()
        Investigation(runner, settings).look(record, case, given.impl)
        about = environment(given.device, runner.backend, runner.threads(case.world))
    finally:
        runner.close()
    about = {name: value for name, value in about.items() if name != "host"}
    return record | {"environment": about, "trace": {rank: [call._asdict() for call in calls]
                                                     for rank, calls in trace.items()}}


def one_case(pattern: str, ranks: int | None, seed: int) -> Case:
    """The one case of a pattern, at the world that its id names. Raises ValueError when it names more or fewer."""
    named = re.search(r"-w(\d+)-\w+$", pattern)
    ranks = ranks or (int(named[1]) if named else 2)
    found = catalogue.select([pattern], worlds=(ranks,), seed=seed)
    if len(found) > 1:
        raise ValueError(f"{pattern} names {len(found)} cases, a bundle holds one, such as {found[0].id}")
    return found[0]


def write(path: Path, case: Case, given: argparse.Namespace, record: dict[str, Any]) -> list[str]:
    """Writes the archive and returns the names in it. Raises ValueError when the file cannot be written."""
    files = contents(case, given, record)
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    except OSError as error:
        raise ValueError(f"bundle {path} cannot be written: {error.strerror}") from error
    return list(files)


def contents(case: Case, given: argparse.Namespace, record: dict[str, Any]) -> dict[str, str]:
    """Text by name: replay.py, README.txt, case.txt, record.json, versions.json; adapter and trace where there are."""
    shrunk = (record.get("diagnosis") or {}).get("shrunk")
    line = shrunk["replay"] if shrunk else generate.replay(case)
    ranks = shrunk["case"]["world"] if shrunk else case.world
    words = ["--ranks", str(ranks), "--iters", "0", "--no-shrink"]
    words += ["--truth", given.truth] * (given.truth != "auto") + ["--device", given.device] * (given.device != "cpu")
    told = dict(record)
    about, trace = told.pop("environment"), told.pop("trace")
    files = {
        "README.txt": readme(case, given, record, line, ranks),
        "replay.py": script(given.impl, line, f"{case.id}: {headline(record)}", ranks, given.device,
                            BACKENDS[given.device], words),
        "case.txt": line + "\n" + (generate.replay(case) + "\n" if shrunk else ""),
        "record.json": json.dumps(plain(told), indent=1, allow_nan=False) + "\n",
        "versions.json": json.dumps(plain(about), indent=1, allow_nan=False) + "\n",
    }
    if trace:
        files["trace.json"] = json.dumps(plain(trace), indent=1, allow_nan=False) + "\n"
    return files | adapter(given.impl)


def adapter(spec: str) -> dict[str, str]:
    """The source of an adapter that is a file outside of this distribution and of installed packages, with the modules
    beside it that it has imported."""
    module = spec.partition(":")[0]
    if spec in KNOWN or module in KNOWN or module == "sabotage" or "." in module or module in OWN:
        return {}
    found = importlib.util.find_spec(module)
    if found is None or not found.origin or "site-packages" in found.origin or not found.origin.endswith(".py"):
        return {}
    folder, files = Path(found.origin).parent, {f"{module}.py": Path(found.origin)}
    for name, one in list(sys.modules.items()):
        origin = Path(getattr(one, "__file__", None) or "")
        beside = origin.suffix == ".py" and origin.is_relative_to(folder) and "site-packages" not in origin.parts
        if beside and name.partition(".")[0] not in {*OWN, "__main__"}:
            files[str(origin.relative_to(folder))] = origin
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


def headline(record: dict[str, Any]) -> str:
    return (record.get("diagnosis") or {}).get("headline") or record["reason"] or "nothing is wrong"


def readme(case: Case, given: argparse.Namespace, record: dict[str, Any], line: str, ranks: int) -> str:
    found = record.get("diagnosis") or {}
    shrunk = (found.get("shrunk") or {}).get("case")
    rows = [f"{record['verdict']} {case.id}  {headline(record)}", ""]
    rows += [f"{name:<12} {found[name]}" for name in ("requirement", "expected", "actual", "place") if found.get(name)]
    if shrunk:
        rows += ["", f"What follows is about the smallest case found that still fails: {shrunk['tokens']} tokens, "
                     f"world {shrunk['world']}, {shrunk['mask']}."]
    if found.get("recovered"):
        rows += ["", found["recovered"]["sentence"], *found["recovered"]["grid"], found["recovered"]["legend"]]
    return "\n".join([*rows, "", "Again, with ringcheck installed:", f"  python replay.py       ({given.impl})",
                      f"  ringcheck --ranks {ranks} --impl {shlex.quote(given.impl)} --cases {shlex.quote(line)}",
                      "", "case.txt holds the case that replay.py asks; a second line, the one it was shrunk from, "
                      "where it was.",
                      *["trace.json holds what each rank called, in its order, to the last call of one that was lost."]
                      * bool(record.get("trace")), ""])


if __name__ == "__main__":
    sys.exit(main())
