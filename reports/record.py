"""Results files: JSON lines written one flushed line at a time, read back even when the run was cut."""

import fcntl
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from reports import fields, keep
from reports.keep import KINDS
from reports.non_finite import plain, restored

SCHEMA = 1
NO_END = "no end line: the last run was cut"


class Unwritable(ValueError):
    """One line about a results file that cannot be written, or no further."""


class Writer:
    """Writes a results file, alone. Every call puts one complete line on disk before it returns, or none of it.

    Without `append`, results that are there already are put aside first; `aside` is their new name. Non-finite floats
    become the strings "inf", "-inf" and "nan", so that an infinite ratio stays apart from null (not compared).
    Raises Unwritable, also for a file of something else and while another run writes the file.
    """

    def __init__(self, path: str | Path, append: bool = False):
        self.path, self.aside = Path(path), None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
            self.regular = self.path.is_file()
            if self.regular and self.path.stat().st_size:
                self._take_over(append)
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

    def _opened(self) -> BinaryIO:
        file = open(self.path, "ab", buffering=0)
        try:
            if self.path.is_file():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise Unwritable(f"results file {self.path} is being written by another run") from error
        return file

    def _take_over(self, append: bool) -> None:
        """Begins behind, or in the place of, a file that holds something."""
        if not keep.holds_results(self.path):
            self.close()
            raise Unwritable(f"{self.path} is there already and is no results file of ringcheck; it is left as it is")
        if not append:
            self.aside = keep.put_aside(self.path)
            self.close()
            self._file = self._opened()
        else:
            self._mend_end()

    def _mend_end(self) -> None:
        """A last line without an end gets one; what a cut left of a line is no record and goes."""
        *_, last = self.path.read_bytes().split(b"\n")
        try:
            json.loads(last or b"0")
        except ValueError:
            self._file.truncate(self.path.stat().st_size - len(last))
            return
        if last:
            self._put(b"\n")

    def _line(self, kind: str, record: dict[str, Any]) -> None:
        stamped = {
            "kind": kind,
            "schema": SCHEMA,
            **{key: record[key] for key in record if key not in ("kind", "schema")},
        }
        line = json.dumps(plain(stamped), allow_nan=False, separators=(",", ":"))
        start = self._file.seek(0, os.SEEK_END) if self.regular else 0
        try:
            self._put(line.encode() + b"\n")
        except OSError as error:
            if self.regular:
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
    """A results file: its runs in order (more than one after `--resume`) and what could not be read. `running` is set
    by who knows that a run still writes it."""

    path: str
    runs: list[Run] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    running: bool = False

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
        raise ValueError(f"{path}: holds no record of a run or trial: name another file, or remove it")
    if results.runs[-1].end is None:
        results.warnings.append(f"{path}: {NO_END}")
    return results


def _take(results: Results, number: int, line: str, cut: bool) -> None:
    place = f"{results.path}:{number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        results.warnings.append(f"{place}: " + ("truncated last line left out" if cut else "not JSON, line left out"))
        return
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in KINDS:
        raise ValueError(f"{place}: not a ringcheck record: kind is {kind!r}, known are {', '.join(KINDS)}")
    if record.get("schema") != SCHEMA:
        raise ValueError(f"{place}: schema {record.get('schema')!r} is unknown, this version reads {SCHEMA}")
    try:
        fields.check(kind, record)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    if kind == "run" or not results.runs:
        results.runs.append(Run(record if kind == "run" else {}))
    if kind == "trial":
        _restore(record)
        results.runs[-1].trials.append(record)
    if kind == "end":
        results.runs[-1].end = record


def _restore(trial: dict[str, Any]) -> None:
    """Non-finite numbers of the deviations as numbers."""
    for deviation in trial.get("deviations") or []:
        for name in ("ratio", "error", "allowance", "expected", "actual"):
            deviation[name] = restored(deviation.get(name))
