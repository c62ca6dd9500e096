"""Results as one flat table, a row a trial: documented columns of plain values, for pandas, CSV and Parquet."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from reports import metrics, view
from reports.metrics import Trial
from reports.record import Results, Run, read_all

Row = dict[str, Any]
SAMPLES = ("load_s", "forward_s", "backward_s", "step_s", "rank_step_s", "bound_forward_s", "bound_step_s",
           "silent_forward_s", "silent_step_s", "bytes_sent", "messages", "peak_bytes", "extra_bytes")
WHOLE = 2**63


@dataclass(frozen=True)
class Place:
    """A trial, the run that it is of, its file, and whether it is the last of its kind (see reports.view.latest)."""

    trial: Trial
    run: Run
    path: str
    latest: bool


@dataclass(frozen=True)
class Field:
    """A column: its name, what it holds, the kind of its values (str, int, float, bool, list) and where they are from.
    A value of another kind is none, as a missing one."""

    name: str
    about: str
    kind: type
    of: Callable[[Place], Any]

    def value(self, place: Place) -> Any:
        return fit(self.of(place), self.kind)


def fit(value: Any, kind: type) -> Any:
    """`value` where it is of this kind, else None; numbers become ints of 64 bits or any floats."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is float:
        return _float(value) if number else None
    if kind is int:
        return int(value) if number and -WHOLE < value < WHOLE and value == int(value) else None
    if kind is str:
        return str(value).encode("utf-8", "backslashreplace").decode() if value is not None else None
    return value if isinstance(value, kind) else None


def _float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def header(*names: str) -> Callable[[Place], Any]:
    return lambda place: at(place.run.header, names)


def trial(*names: str) -> Callable[[Place], Any]:
    return lambda place: at(place.trial, names)


def words(*names: str) -> Callable[[Place], str | None]:
    def of(place: Place) -> str | None:
        found = at(place.trial, names)
        return " ".join(map(str, found)) if isinstance(found, list) else None
    return of


def worst(name: str) -> Callable[[Place], Any]:
    return lambda place: (metrics.worst(place.trial) or {}).get(name)


def at(record: Any, names: Iterable[str]) -> Any:
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def of_case(name: str, about: str, kind: type = str) -> Field:
    return Field(name, about, kind, trial("case", name))


def measures() -> dict[str, Callable[[Trial], float | None]]:
    """Every metric of reports/metrics.py that is one number of one trial, by name, in the order of that file."""
    wanted = [("trial", metrics.Trial)]
    return {
        name: made for name, made in vars(metrics).items()
        if inspect.isfunction(made) and made.__module__ == metrics.__name__ and not name.startswith("_")
        and [(one.name, one.annotation) for one in inspect.signature(made).parameters.values()] == wanted
        and inspect.signature(made).return_annotation == float | None
    }


def sentence(function: Callable) -> str:
    """The docstring of a metric in one line."""
    return " ".join((function.__doc__ or "").split())


FIELDS = (
    Field("file", "results file, as it was named", str, lambda place: place.path),
    Field("latest", "false where a later run repeats this trial", bool, lambda place: place.latest),
    Field("time", "start of the run, ISO 8601", str, header("time")),
    Field("ringcheck", "its version", str, header("environment", "ringcheck")),
    Field("commit", "commit of the checkout that ran", str, header("environment", "commit")),
    Field("torch", "its version", str, header("environment", "torch")),
    Field("python", "its version", str, header("environment", "python")),
    Field("backend", "what moves bytes between ranks", str, header("environment", "backend")),
    Field("processor", "name of the CPU", str, header("environment", "processor")),
    of_case("id", "id of the case"), of_case("name", "group and name of the case, without its axes"),
    of_case("group", "group of cases"), of_case("digest", "digest of all that the case asks"),
    of_case("mask", "its rules as text"), Field("rules", "names of its rules, blanks between", str,
                                               words("case", "rules")),
    Field("requirements", "ids of SPEC.md that it tests, blanks between", str, words("case", "requirements")),
    of_case("world", "ranks", int), of_case("layout", "layout that the case asks for"), of_case("dtype", "of q, k, v"),
    of_case("batch", "rows", int), of_case("tokens", "tokens a row", int), of_case("heads", "query heads", int),
    of_case("kv_heads", "key heads", int), of_case("head_dim", "D", int), of_case("value_dim", "Dv, none: D", int),
    of_case("seed", "of the inputs", int), of_case("level", "required or strict"),
    Field("implementation", "its name", str, trial("implementation", "name")),
    Field("spec", "how it was asked for", str, trial("implementation", "spec")),
    Field("layout_ran", "layout that ran, as the implementation names it", str, trial("implementation", "layout")),
    Field("kernel", "kernel that ran", str, trial("implementation", "kernel")),
    Field("device", "cpu or cuda", str, trial("implementation", "device")),
    Field("truth", "what answers were held to: dense, probes, relations", str, trial("truth")),
    Field("verdict", "PASS, FAIL, SKIP or ERROR", str, trial("verdict")),
    Field("reason", "why, where it is no PASS", str, trial("reason")),
    Field("headline", "what is wrong, in one line", str, trial("diagnosis", "headline")),
    Field("worst_tensor", "tensor of worst_ratio; none where nothing was compared", str, worst("tensor")),
    Field("strict", "PASS or FAIL of the strict level; none where no strict rule was judged", str,
          lambda place: metrics.strict_verdict(place.trial)),
    Field("seconds", "wall time of the whole trial", float, trial("seconds")),
    Field("warmup", "laps before timing", int, trial("measurement", "warmup")),
    Field("iters", "timed laps", int, trial("measurement", "iters")),
    *(Field(name, sentence(made), float, lambda place, made=made: made(place.trial))
      for name, made in measures().items()),
)
RAW = tuple(Field(f"samples_{name}", f"`measurement.{name}` of the record as a list", list,
                  trial("measurement", name)) for name in SAMPLES)


def fields(samples: bool = False) -> tuple[Field, ...]:
    """The columns in their order; `samples` adds the raw lists."""
    return FIELDS + (RAW if samples else ())


def rows(files: Iterable[Results], samples: bool = False) -> Iterator[Row]:
    """One row a trial, in the order of files and lines; every row has every column."""
    files, columns = list(files), fields(samples)
    last = {id(one) for one in view.latest(files)}
    for results in files:
        for run in results.runs:
            for one in run.trials:
                place = Place(one, run, results.path, id(one) in last)
                yield {column.name: column.value(place) for column in columns}


def frame(paths: str | Path | Iterable[str | Path], samples: bool = False) -> Any:
    """The trials of results files as a pandas.DataFrame.

    One row a trial and one column a field of `fields(samples)`: texts as objects or strings (None where missing),
    whole numbers as Int64, other numbers as float64 (NaN where missing or not a number; worst_tensor tells these
    apart), lists as objects. What could not be read is left out with a UserWarning each. Raises ValueError for a file
    that cannot be opened and where none holds a record, ImportError without pandas.
    """
    _pandas()
    files = read_all([paths] if isinstance(paths, (str, PathLike)) else paths)
    for words in view.left_out(files):
        warnings.warn(words, stacklevel=3)
    return framed(files, samples)


def framed(files: list[Results], samples: bool = False) -> Any:
    """The frame of results that are read already."""
    pandas, made = _pandas(), list(rows(files, samples))
    dtypes = {int: "Int64", float: "float64", bool: "bool"}
    columns = {one.name: pandas.Series([row[one.name] for row in made], dtype=dtypes.get(one.kind, "object"))
               for one in fields(samples)}
    return pandas.DataFrame(columns)


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ImportError("reports.frame needs pandas: pip install 'ringcheck[frame]'") from error
    return pandas
