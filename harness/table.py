"""Rank 0's table, in the manner of nccl-tests: `#` before everything that is not data, failures repeated last."""

import statistics
from collections import Counter
from typing import Any, TextIO

from harness.arguments import Settings
from harness.reading import picture

NAMES = (f"{'case':<48} {'tokens':>7} {'heads':>6} {'dtype':>5} {'time':>9} {'TFLOP/s':>8} {'time':>9} {'TFLOP/s':>8} "
         f"{'error/budget':>13}   verdict")
UNITS = f"{'':<48} {'':>7} {'':>6} {'':>5} {'(ms)':>9} {'(/rank)':>8} {'(ms)':>9} {'(/rank)':>8}"
ABOVE = f"{'':<69} {'forward':>18} {'forward+backward':>18}"
DRAWN = 32


class Table:
    """Prints a run as it happens."""

    def __init__(self, stream: TextIO, total: int):
        self.stream, self.total, self.number = stream, total, 0
        self.margin = " " * (len(self._number(total)) + 1)

    def header(self, settings: Settings, environment: dict[str, Any], places: list[str],
               worlds: tuple[int, ...]) -> None:
        """Versions and settings; places: one text a rank, such as "host-a pid 4711 cpu"."""
        ranks = ",".join(map(str, worlds))
        self._note(f"ringcheck {environment['ringcheck']}  torch {environment['torch']}  {environment['backend']}  "
                   f"{ranks} x {environment['device']}  impl {','.join(settings.implementations)}  "
                   f"warmup {settings.timing.warmup}  iters {settings.timing.iters}  seed {settings.seed}")
        if places:
            self._note("   ".join(f"rank {rank} {place}" for rank, place in enumerate(places)))
        for line in (ABOVE, NAMES, UNITS):
            self._line(("#" + self.margin[1:] + line).rstrip())

    def row(self, record: dict[str, Any]) -> None:
        """One trial."""
        self.number += 1
        case = record["case"]
        heads = f"{case['heads']}/{case['kv_heads']}"
        self._line(f"{self._number(self.number)} {case['id']:<48} {case['tokens']:>7} {heads:>6} {case['dtype']:>5} "
                   f"{_speed(record)} {_ratio(record):>13}   {_verdict(record)}")

    def end(self, records: list[dict[str, Any]], seconds: float, path: str, note: str = "") -> None:
        """Counts, then failures, errors and skips once more."""
        counts = Counter(record["verdict"] for record in records)
        strict = sum(is_strict(record) for record in records)
        apart = f" ({strict} of strict level)" if strict else ""
        self._note(f"{len(records)} cases: {counts['PASS']} passed, {counts['FAIL']} failed{apart}, "
                   f"{counts['SKIP']} skipped, {counts['ERROR']} errors in {seconds:.1f} s{note}    {path}")
        for record in records:
            if record["verdict"] == "FAIL":
                self._failure(record)
        for record in records:
            if record["verdict"] == "ERROR":
                self._error(record)
        for record in records:
            if record["verdict"] == "SKIP":
                name = record["implementation"]["name"]
                self._note(f"SKIP {record['case']['id']}: {name} refuses: {record['reason']}")

    def note(self, text: str) -> None:
        """A line that is not data."""
        self._note(text)

    def _failure(self, record: dict[str, Any]) -> None:
        found = record["diagnosis"]
        self._note(f"FAIL {record['case']['id']}  {found['headline']}")
        place = f"     first wrong: {found['place']}" if found["place"] else ""
        self._note(f"  requirement  {found['requirement']}")
        self._note(f"  expected     {found['expected']}     actual  {found['actual']}{place}")
        self._note(f"  again        {found['again']}")
        self._investigated(found.get("shrunk"), found.get("recovered"))

    def _investigated(self, shrunk: dict[str, Any] | None, recovered: dict[str, Any] | None) -> None:
        if shrunk and shrunk["again"]:
            end = "nothing smaller fails" if shrunk["complete"] else "the search was cut"
            self._note(f"  smallest     {shrunk['again']}")
            self._note(f"               {shrunk['case']['tokens']} tokens, {shrunk['case']['mask']}; {end}")
        if recovered:
            self._note(f"  read back    {recovered['sentence']}")
            for line in picture(recovered) if len(recovered["grid"]) <= DRAWN else ():
                self._note(f"    {line}")

    def _error(self, record: dict[str, Any]) -> None:
        first, *rest = record["reason"].splitlines()
        self._note(f"ERROR {record['case']['id']}  {first}")
        for line in rest:
            self._note(f"  {line}")
        if record["diagnosis"]:
            self._note(f"  again        {record['diagnosis']['again']}")

    def _number(self, number: int) -> str:
        width = len(str(self.total))
        return f"[{number:>{width}}/{self.total}]"

    def _note(self, text: str) -> None:
        self._line(f"# {text}")

    def _line(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


def is_strict(record: dict[str, Any]) -> bool:
    """Whether a record is a failure of the strict level alone."""
    levels = {deviation["level"] for deviation in record["deviations"]}
    levels = levels or {(record["diagnosis"] or {}).get("level")}
    return record["verdict"] == "FAIL" and levels == {"strict"}


def _speed(record: dict[str, Any]) -> str:
    measured, work, world = record["measurement"], record["work"], record["case"]["world"]
    if not measured:
        return f"{'-':>9} {'-':>8} {'-':>9} {'-':>8}"
    forward, step = statistics.median(measured["forward_s"]), statistics.median(measured["step_s"])
    once, both = work["flops_forward"], work["flops_forward"] + work["flops_backward"]
    return (f"{forward * 1e3:>9.2f} {once / forward / world / 1e12:>8.3g} "
            f"{step * 1e3:>9.2f} {both / step / world / 1e12:>8.3g}")


def _ratio(record: dict[str, Any]) -> str:
    ratios = [deviation["ratio"] for deviation in record["deviations"] if deviation["ratio"] is not None]
    return f"{max(ratios):.2f}" if ratios else "-"


def _verdict(record: dict[str, Any]) -> str:
    failed = [deviation["tensor"] for deviation in record["deviations"]
              if deviation["ratio"] is not None and not deviation["ratio"] <= 1]
    silent = [deviation["tensor"] for deviation in record["deviations"] if deviation["ratio"] is None]
    words = " ".join([record["verdict"], *failed]) + (", strict" if is_strict(record) else "")
    return words + (f" ({', '.join(silent)} not offered)" if silent else "")
