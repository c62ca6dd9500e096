"""Results files read back: every good record, and in words what of a file was no good.

A line that is no JSON, no record, of another schema, or a trial that does not say which trial it is, is left out. Of
any other record only the field is left out that holds something else than its name says. Each of them becomes one
`Damage`; whoever shows results says how many there are, and `strict` reading raises instead.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports import fields
from reports.keep import KINDS
from reports.non_finite import restored

SCHEMA = 1
NUMBERS = ("measurement", "work", "traffic", "timeline", "seconds")
OF_DEVIATION = ("ratio", "error", "allowance", "expected", "actual")
NOTHING = "holds no record of a run or trial"


@dataclass(frozen=True)
class Damage:
    """What could not be read: the line (0: the file), why, and whether all of the line is left out or one field."""

    line: int
    words: str
    whole: bool = True

    def at(self, path: str) -> str:
        """With its place and what became of it."""
        if not self.line:
            return f"{path}: {self.words}"
        return f"{path}:{self.line}: {self.words}; {'line' if self.whole else 'field'} left out"


@dataclass
class Run:
    """A header with the trials that follow it; `end` is None when the run was cut, `lost` counts lines between them
    that are left out."""

    header: dict[str, Any]
    trials: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None
    lost: int = 0


@dataclass
class Results:
    """A results file: its runs in order (more than one after `--resume`) and what could not be read. `running` is set
    by who knows that a run still writes it."""

    path: str
    runs: list[Run] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
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

    @property
    def left_out(self) -> list[str]:
        """What could not be read, a line each: file, line, field."""
        return [one.at(self.path) for one in self.damage]

    @property
    def warnings(self) -> list[str]:
        """All that is not whole: what is left out, and a missing end."""
        cut = [f"{self.path}: no end line: the last run was cut"] if self.runs and self.runs[-1].end is None else []
        return self.left_out + cut


def read(path: str | Path, strict: bool = False) -> Results:
    """Everything readable in a results file; what is not becomes `damage`.

    Raises ValueError for a file that cannot be opened or that holds no record at all; with `strict` also, file, line
    and field named, for the first line that is no record of this schema or has a field of another kind. A line that is
    no JSON, as a cut leaves it, is never fatal.
    """
    found = _read(path, strict)
    if not found.runs:
        first = f" ({found.left_out[0]})" if found.damage else ""
        raise ValueError(f"{path}: {NOTHING}{first}: name another file, or remove it")
    return found


def read_all(paths: Iterable[str | Path]) -> list[Results]:
    """The results of these files. One that holds no record is damage where another holds some; raises ValueError where
    none does, and for a file that cannot be opened."""
    paths = list(paths)
    found = [_read(path, strict=False) for path in paths]
    if not any(results.runs for results in found):
        return [read(path) for path in paths[:1]]
    for results in found:
        if not results.runs:
            results.damage.append(Damage(0, NOTHING))
    return found


def _read(path: str | Path, strict: bool) -> Results:
    try:
        lines = Path(path).read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except OSError as error:
        raise ValueError(f"results file {path} cannot be read: {error.strerror or error}") from error
    results = Results(str(path))
    last = max((number for number, line in enumerate(lines, 1) if line.strip()), default=0)
    for number, line in enumerate(lines, 1):
        if line.strip():
            _take(results, number, line, strict, cut=number == last and number == len(lines))
    return results


def _take(results: Results, number: int, line: str, strict: bool, cut: bool) -> None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        _leave_out(results, number, "truncated last line" if cut else "not JSON", None if cut else _kind_of(line))
        return
    kind = record.get("kind") if isinstance(record, dict) else None
    try:
        told = mended(record, strict)
    except ValueError as error:
        if strict:
            raise ValueError(f"{results.path}:{number}: {error}") from None
        _leave_out(results, number, str(error), kind)
        return
    results.damage += [Damage(number, words, whole=False) for words in told]
    _put(results, kind, record)


def mended(record: Any, strict: bool = False) -> list[str]:
    """Makes of a line's value what readers rely on; returns what is taken out of it, in words. Raises ValueError for
    what cannot stand, with `strict` for anything that would have to be taken out."""
    check(record)
    _restore(record)
    if strict:
        fields.check(record["kind"], record)
    return fields.mend(record["kind"], record)


def check(record: Any) -> None:
    """Raises ValueError for what is no record of this schema."""
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in KINDS:
        raise ValueError(f"not a ringcheck record: kind is {short(kind)}, known are {', '.join(KINDS)}")
    if type(record.get("schema")) is not int or record["schema"] != SCHEMA:
        raise ValueError(f"schema {short(record.get('schema'))} is unknown, this version reads {SCHEMA}")


def short(value: Any) -> str:
    """A value of a record, of any kind and length, in a sentence."""
    told = repr(value)
    return told if len(told) <= 60 else f"{told[:60]}…"


def _kind_of(line: str) -> str | None:
    """What a line that is no JSON began as."""
    return next((kind for kind in KINDS if line.lstrip().startswith(f'{{"kind":"{kind}"')), None)


def _leave_out(results: Results, number: int, words: str, kind: Any) -> None:
    """What follows a header that is left out is no trial of the run before."""
    results.damage.append(Damage(number, words))
    if kind == "run" and results.runs:
        results.runs.append(Run({}))
    elif results.runs and kind == "trial":
        results.runs[-1].lost += 1


def _put(results: Results, kind: str, record: dict[str, Any]) -> None:
    if kind == "run":
        results.runs.append(Run(record))
    elif not results.runs or kind == "trial" and results.runs[-1].end is not None:
        results.runs.append(Run({}))
    if kind == "trial":
        results.runs[-1].trials.append(record)
    if kind == "end":
        results.runs[-1].end = record


def _restore(record: dict[str, Any]) -> None:
    """Non-finite numbers, which JSON has none of, as numbers where numbers are due."""
    for name in NUMBERS:
        if record.get(name) is not None:
            record[name] = _numbers(record[name])
    deviations = record.get("deviations")
    for deviation in deviations if isinstance(deviations, list) else []:
        if isinstance(deviation, dict):
            deviation |= {name: restored(deviation.get(name)) for name in OF_DEVIATION}


def _numbers(value: Any) -> Any:
    """`value` with every text that spells a number, at any depth, as that number. Lists of plain numbers, which are
    most of a record, are not looked through."""
    if isinstance(value, list):
        return value if {*map(type, value)} <= {int, float} else [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _numbers(item) for name, item in value.items()}
    return restored(value)
