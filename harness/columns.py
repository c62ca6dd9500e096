"""What a row of the table says of speed: the few figures of every run, more of them where all cases are benches."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from cases import bench
from reports import metrics

Record = dict[str, Any]
BEFORE, BEHIND = f"{'tokens':>7} {'heads':>6} {'dtype':>5}", f"{'error/budget':>13}   verdict"


@dataclass(frozen=True)
class Column:
    """A figure of a record: what stands above it, its name, unit, width and format."""

    above: str
    name: str
    unit: str
    of: Callable[[Record], float | None]
    width: int = 8
    form: str = ".3g"

    def cell(self, record: Record) -> str:
        value = self.of(record)
        return f"{'-' if value is None else format(value, self.form):>{self.width}}"


@dataclass(frozen=True)
class Columns:
    """The columns between a case's sizes and its verdict."""

    every: tuple[Column, ...]

    def heads(self) -> tuple[str, str, str]:
        """The three lines above the rows: groups of columns, names, units."""
        names = " ".join(f"{one.name:>{one.width}}" for one in self.every)
        units = " ".join(f"{one.unit and f'({one.unit})':>{one.width}}" for one in self.every)
        empty = " " * len(BEFORE)
        return f"{empty} {self._above()}", f"{BEFORE} {names} {BEHIND}", f"{empty} {units}"

    def cells(self, record: Record) -> str:
        return " ".join(one.cell(record) for one in self.every)

    def _above(self) -> str:
        """Each heading once, at the right end of its columns."""
        last = [one.above != after.above for one, after in zip(self.every, self.every[1:])] + [True]
        widths, cells = 0, []
        for one, ends in zip(self.every, last, strict=True):
            widths += one.width + bool(widths)
            if ends:
                cells.append(f"{one.above:>{widths}}")
                widths = 0
        return " ".join(cells)


PLAIN = Columns((
    Column("forward", "time", "ms", metrics.forward_ms, 9, ".2f"),
    Column("forward", "TFLOP/s", "/rank", metrics.tflops_forward),
    Column("forward+backward", "time", "ms", metrics.step_ms, 9, ".2f"),
    Column("forward+backward", "TFLOP/s", "/rank", metrics.tflops_step),
))
BENCH = Columns((
    Column("forward", "TFLOP/s", "/rank", metrics.tflops_forward),
    Column("forward", "share", "bound", metrics.share_forward, 7, ".2f"),
    Column("forward+backward", "TFLOP/s", "/rank", metrics.tflops_step),
    Column("forward+backward", "share", "bound", metrics.share_step, 8, ".2f"),
    Column("exposed", "time", "ms", metrics.exposed_ms, 8, ".2f"),
    Column("sent", "MB", "/rank", metrics.sent_mb, 8, ".1f"),
    Column("extra", "peak", "GiB", metrics.extra_gib, 7, ".2f"),
))


def columns_of(groups: set[str]) -> Columns:
    """Those for a run of cases of these groups."""
    return BENCH if groups == {bench.GROUP} else PLAIN


def compared(records: Iterable[Record]) -> list[str]:
    """For each case with several timed implementations, how many times as long as the first the others take."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        if record["measurement"]:
            cases.setdefault(record["case"]["id"], []).append(record)
    several = {name: found for name, found in cases.items() if len(found) > 1}
    if not several:
        return []
    width = max(map(len, several))
    lines = [f"{'time over that of the first, forward / forward+backward':<{width}}"]
    return lines + [f"  {name:<{width}}  {_beside(found[0], found[1:])}" for name, found in several.items()]


def _beside(first: Record, others: list[Record]) -> str:
    told = [f"{_spec(other)} {metrics.times_of(first, other, 'forward_s'):.2f} / {metrics.times_of(first, other):.2f}"
            for other in others]
    return "   ".join([f"{_spec(first)} {median(first['measurement']['step_s']) * 1e3:.2f} ms", *told])


def _spec(record: Record) -> str:
    return record["implementation"].get("spec") or record["implementation"]["name"]
