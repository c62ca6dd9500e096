"""Rank 0's table, in the manner of nccl-tests: `#` before everything that is not data, failures repeated last."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from harness.arguments import Settings
from harness.columns import BENCH, PLAIN, Columns, compared
from harness.progress import Progress
from harness.reading import picture

DRAWN = 32
FEW = 3


class Table:
    """Prints a run as it happens; where there are several implementations, every line says which one is meant.

    A stream that takes no more ends the table and not the run."""

    def __init__(self, stream: TextIO, total: int, implementations: Iterable[str] = (), columns: Columns = PLAIN,
                 progress: Progress | None = None):
        self.stream, self.total, self.number, self.columns = stream, total, 0, columns
        self.progress = progress
        self.margin = " " * (len(self._number(total)) + 1)
        specs = list(dict.fromkeys(implementations))
        self.several, self.width = len(specs) > 1, max(map(len, specs), default=0)

    def header(self, settings: Settings, environment: dict[str, Any], places: list[str],
               worlds: tuple[int, ...]) -> None:
        """Versions and settings; places: one text a rank, such as "host-a pid 4711 cpu"."""
        ranks = ",".join(map(str, worlds)) or "0"
        self._note(f"ringcheck {environment['ringcheck']}  torch {environment['torch']}  {environment['backend']}  "
                   f"{ranks} x {environment['device']}  impl {','.join(settings.implementations)}  "
                   f"warmup {settings.timing.warmup}  iters {settings.timing.iters}  seed {settings.seed}")
        if places:
            self._note("   ".join(f"rank {rank} {place}" for rank, place in enumerate(places)))
        if environment.get("matmul_tflops"):
            self._note(f"bf16 matrix product {environment['matmul_tflops']:.0f} TFLOP/s")
        for name, who, line in zip(("", "case", ""), ("", "impl", ""), self.columns.heads(), strict=True):
            self._line((f"#{self.margin[1:]}{name:<48} {self._column(who)}{line}").rstrip())

    def row(self, record: dict[str, Any]) -> None:
        """One trial."""
        self.number += 1
        case = record["case"]
        heads = f"{case['heads']}/{case['kv_heads']}"
        self._line(f"{self._number(self.number)} {case['id']:<48} {self._column(record['implementation']['spec'])}"
                   f"{case['tokens']:>7} {heads:>6} {case['dtype']:>5} "
                   f"{self.columns.cells(record)} {_ratio(record):>13}   {_verdict(record)}")
        if self.progress:
            self.progress.done()

    def end(self, records: list[dict[str, Any]], seconds: float, path: str, note: str = "") -> None:
        """Counts, then failures, errors and skips once more; equal errors and equal skips together."""
        for line in compared(records) if self.columns is BENCH else ():
            self._note(line)
        for spec, own in _grouped(records, _spec).items() if self.several else ():
            self._note(f"  {spec:<{self.width}}  {_counted(own)}")
        self._note(f"{len(records)} cases: {_counted(records)} in {seconds:.1f} s{note}    {path}")
        by_verdict = _grouped(records, lambda record: record["verdict"])
        for record in by_verdict.get("FAIL", []):
            self._failure(record)
        for alike in _grouped(by_verdict.get("ERROR", []), _same).values():
            self._error(alike)
        for alike in _grouped(by_verdict.get("SKIP", []), _same).values():
            self._skip(alike)

    def note(self, text: str) -> None:
        """A line that is not data."""
        self._note(text)

    def _failure(self, record: dict[str, Any]) -> None:
        found = _diagnosis(record)
        self._note(f"FAIL {self._named(record)}  {found['headline']}")
        place = f"     first wrong: {found['place']}" if found["place"] else ""
        self._note(f"  requirement  {found['requirement']}")
        self._note(f"  expected     {found['expected']}     actual  {found['actual']}{place}")
        self._note(f"  again        {found['again']}")
        self._investigated(found.get("shrunk"), found.get("recovered"))

    def _investigated(self, shrunk: dict[str, Any] | None, recovered: dict[str, Any] | None) -> None:
        if shrunk and shrunk["again"]:
            end = "nothing smaller fails" if shrunk["complete"] else "the search was cut"
            self._note(f"  smallest     {shrunk['again']}")
            tokens = shrunk["case"]["tokens"]
            self._note(f"               {tokens} token{'s' * (tokens != 1)}, {shrunk['case']['mask']}; {end}")
        if recovered:
            self._note(f"  read back    {recovered['sentence']}")
            for line in picture(recovered) if len(recovered["grid"]) <= DRAWN else ():
                self._note(f"    {line}")

    def _error(self, alike: list[dict[str, Any]]) -> None:
        first, *rest = (alike[0]["reason"] or "no reason given").splitlines()
        self._note(f"ERROR {self._named(alike[0])}  {first}")
        for line in rest:
            self._note(f"  {line}")
        if alike[1:]:
            self._note(f"  also         {_few(alike[1:])}")
        if alike[0]["diagnosis"]:
            self._note(f"  again        {_diagnosis(alike[0])['again']}")

    def _skip(self, alike: list[dict[str, Any]]) -> None:
        who = _spec(alike[0]) if self.several else alike[0]["implementation"]["name"]
        what = f"{len(alike)} cases" if alike[1:] else alike[0]["case"]["id"]
        reason = alike[0]["reason"] or "no reason given"
        self._note(f"SKIP {what}: {reason if reason.startswith('not asked: ') else f'{who} refuses: {reason}'}")
        if alike[1:]:
            self._note(f"  {_few(alike)}")

    def _named(self, record: dict[str, Any]) -> str:
        return record["case"]["id"] + (f"  {_spec(record)}" if self.several else "")

    def _column(self, spec: str) -> str:
        return f"{spec:<{self.width}} " if self.several else ""

    def _number(self, number: int) -> str:
        width = len(str(self.total))
        return f"[{number:>{width}}/{self.total}]"

    def _note(self, text: str) -> None:
        self._line(f"# {text}")

    def _line(self, text: str) -> None:
        if self.progress:
            self.progress.hide()
        try:
            print(text, file=self.stream, flush=True)
        except OSError as error:
            silence(self.stream)
            self.stream = None
            if not isinstance(error, BrokenPipeError):
                print(f"ringcheck: the table cannot be written: {error.strerror}; the run goes on", file=sys.stderr)
            self.stream = open(os.devnull, "w")


def silence(stream: TextIO) -> None:
    """Lets what is still buffered for a stream that takes no more go nowhere, so that the interpreter ends in peace."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def is_strict(record: dict[str, Any]) -> bool:
    """Whether a record is a failure of the strict level alone."""
    levels = {deviation.get("level", "required") for deviation in record["deviations"] or []}
    levels = levels or {(record["diagnosis"] or {}).get("level")}
    return record["verdict"] == "FAIL" and levels == {"strict"}


def _counted(records: list[dict[str, Any]]) -> str:
    counts = Counter(record["verdict"] for record in records)
    strict = sum(is_strict(record) for record in records)
    apart = f" ({strict} of strict level)" if strict else ""
    return (f"{counts['PASS']} passed, {counts['FAIL']} failed{apart}, {counts['SKIP']} skipped, "
            f"{counts['ERROR']} errors")


def _grouped(records: list[dict[str, Any]], by: Callable[[dict[str, Any]], Any]) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(by(record), []).append(record)
    return found


def _spec(record: dict[str, Any]) -> str:
    return record["implementation"].get("spec") or record["implementation"].get("name") or "?"


def _same(record: dict[str, Any]) -> tuple[str, str]:
    return _spec(record), record["reason"]


def _few(records: list[dict[str, Any]]) -> str:
    ids = [record["case"]["id"] for record in records]
    return ", ".join(ids[:FEW]) + (f" and {len(ids) - FEW} more" if len(ids) > FEW else "")


def _diagnosis(record: dict[str, Any]) -> dict[str, Any]:
    """With every line that the table prints, whatever wrote the record."""
    return {**dict.fromkeys(("headline", "requirement", "expected", "actual", "place", "again")),
            **(record["diagnosis"] or {"headline": record["reason"]})}


def _ratio(record: dict[str, Any]) -> str:
    ratios = [deviation["ratio"] for deviation in record["deviations"] if deviation["ratio"] is not None]
    most = max(ratios, default=None)
    return "-" if most is None else f"{most:.2f}" if most < 1e4 else f"{most:.1e}"


def _verdict(record: dict[str, Any]) -> str:
    failed = [deviation["tensor"] for deviation in record["deviations"]
              if deviation["ratio"] is not None and not deviation["ratio"] <= 1]
    silent = [deviation["tensor"] for deviation in record["deviations"] if deviation["ratio"] is None]
    strict = record["case"].get("level") == "strict" or is_strict(record)
    words = " ".join([record["verdict"], *failed]) + (" (strict)" if strict else "")
    words += " (relations)" if record["truth"] == "relations" else ""
    laid_out = record["implementation"].get("layout")
    if laid_out not in (None, record["case"].get("layout")) and record["verdict"] in ("PASS", "FAIL"):
        words += f" ({laid_out} layout)"
    return words + (f" ({', '.join(silent)} not offered)" if silent else "")
