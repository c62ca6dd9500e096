"""Results files: JSON lines written one flushed line at a time, read back even when the run was cut."""

import fcntl
import json
import math
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
KINDS = ("run", "trial", "end")
NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class Unwritable(ValueError):
    """One line about a results file that cannot be written, or no further."""


class Writer:
    """Writes a results file, alone. Every call puts one complete line on disk before it returns, or none of it.

    Non-finite floats become the strings "inf", "-inf" and "nan", so that an infinite ratio stays apart from
    null (not compared). Raises Unwritable, also while another run writes the file.
    """

    def __init__(self, path: str | Path, append: bool = False):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not append:
                self._file.truncate(0)
            elif self.path.read_bytes()[-1:] not in (b"", b"\n"):
                self._put(b"\n")
        except BlockingIOError as error:
            self._file.close()
            raise Unwritable(f"results file {self.path} is being written by another run") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def run(self, record: dict[str, Any]) -> None:
        """The header: argv, settings, environment."""
        self._line("run", record)

    def trial(self, record: dict[str, Any]) -> None:
        """One trial, in the schema of docs/design.md."""
        self._line("trial", record)

    def end(self, record: dict[str, Any]) -> None:
        """Counts, seconds and the exit code of a run that was not cut."""
        self._line("end", record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _line(self, kind: str, record: dict[str, Any]) -> None:
        stamped = {
            "kind": kind,
            "schema": SCHEMA,
            **{key: record[key] for key in record if key not in ("kind", "schema")},
        }
        line = json.dumps(plain(stamped), allow_nan=False, separators=(",", ":"))
        start = self._file.seek(0, os.SEEK_END)
        try:
            self._put(line.encode() + b"\n")
        except OSError as error:
            self._file.truncate(start)
            raise self._unwritable(error) from error

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left):]

    def _unwritable(self, error: OSError) -> Unwritable:
        return Unwritable(f"results file {self.path} cannot be written: {error.strerror or error}")


@dataclass
class Run:
    """A header with the trials that follow it; `end` is None when the run was cut."""

    header: dict[str, Any]
    trials: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None


@dataclass
class Results:
    """A results file: its runs in order (more than one after `--resume`) and what could not be read."""

    path: str
    runs: list[Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def header(self) -> dict[str, Any]:
        """Header of the last run; empty when its line was lost."""
        return self.runs[-1].header if self.runs else {}

    @property
    def trials(self) -> list[dict[str, Any]]:
        return [trial for run in self.runs for trial in run.trials]

    @property
    def counts(self) -> dict[str, int]:
        """Trials by verdict."""
        return dict(Counter(trial["verdict"] for trial in self.trials))


def read(path: str | Path) -> Results:
    """Everything readable in a results file; unreadable lines become `warnings`.

    Raises ValueError, file and line named, for a file that cannot be opened, that holds no record at all, or
    that was written under another schema.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise ValueError(f"results file {path} cannot be read: {error.strerror or error}") from error
    results = Results(str(path))
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines, 1):
        if line.strip():
            _take(results, number, line, cut=number == last and number == len(lines))
    if not results.runs:
        raise ValueError(f"{path}: holds no record of a run or trial")
    if results.runs[-1].end is None:
        results.warnings.append(f"{path}: no end line: the last run was cut")
    return results


def plain(value: Any) -> Any:
    """`value` with every non-finite float, at any depth, as the string "inf", "-inf" or "nan"."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _take(results: Results, number: int, line: str, cut: bool) -> None:
    place = f"{results.path}:{number}"
    try:
        record = json.loads(line)
    except ValueError:
        results.warnings.append(f"{place}: " + ("truncated last line left out" if cut else "not JSON, line left out"))
        return
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in KINDS:
        raise ValueError(f"{place}: not a ringcheck record: kind is {kind!r}, known are {', '.join(KINDS)}")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{place}: schema {record.get('schema')!r} is unknown, this version reads {SCHEMA}")
    if kind == "run" or not results.runs:
        results.runs.append(Run(record if kind == "run" else {}))
    if kind == "trial":
        _check(place, record)
        results.runs[-1].trials.append(record)
    if kind == "end":
        results.runs[-1].end = record


def _check(place: str, trial: dict[str, Any]) -> None:
    """Restores non-finite numbers of the deviations; the fields every reader relies on must be there."""
    case = trial.get("case")
    case = case if isinstance(case, dict) else {}
    wanted = [
        ("case", trial.get("case"), dict),
        ("implementation", trial.get("implementation"), dict),
        ("verdict", trial.get("verdict"), str),
        ("case.id", case.get("id"), str),
        ("case.name", case.get("name"), str),
        ("case.world", case.get("world"), int),
    ]
    for name, value, kind in wanted:
        if not isinstance(value, kind):
            raise ValueError(f"{place}: field {name} is missing or no {kind.__name__}")
    for deviation in trial.get("deviations") or []:
        for name in ("ratio", "error", "allowance", "expected", "actual"):
            if isinstance(deviation.get(name), str):
                deviation[name] = NON_FINITE.get(deviation[name], deviation[name])
        if not isinstance(deviation.get("ratio"), (int, float, type(None))):
            raise ValueError(f"{place}: field deviations.ratio is no number: {deviation['ratio']!r}")
