"""Speed and memory against the number of tokens, a panel a mask: what grows how, and how far the kernel is away."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from reports import metrics
from reports.figure import Figure
from reports.figures import naming, panels, values
from reports.figures.panels import Axis, Panel, Series
from reports.metrics import Trial
from reports.record import Results

PANELS, SERIES = 9, 8
SHAPE = ("batch", "heads", "kv_heads", "head_dim", "value_dim")
Row = tuple[Trial, float, float]


def throughput(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """TFLOP/s a rank of forward and backward against tokens, with what the kernel alone reaches."""
    rows = _rows(trials, metrics.tflops_step)
    if not rows:
        return None
    bounds = [
        (trial, tokens, bound)
        for trial, tokens, _ in rows
        if (bound := values.positive(values.of(metrics.bound_tflops, trial)))
    ]
    svg, note = _drawn(rows, bounds, "TFLOP/s per rank against tokens, by mask", "TFLOP/s per rank")
    caption = (
        "TFLOP/s per rank (per GPU) of forward and backward together against the tokens of a row; a panel a mask, "
        "lines join one problem at several sizes, through medians; higher is better."
    )
    if bounds:
        caption += " Dashes: the fastest kernel alone on the busiest rank's work; exchange can only slow it."
    bound = {id(trial): value for trial, _, value in bounds}
    table = _table(
        rows, lambda trial: (values.short(bound.get(id(trial))), values.short(values.of(metrics.share_step, trial)))
    )
    return Figure(
        "throughput",
        "Speed against tokens",
        svg,
        caption + note,
        (*HEAD, "TFLOP/s per rank", "kernel bound", "share of bound"),
        table,
        "TFLOP/s per rank",
    )


def memory(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Peak memory of the fullest rank against tokens."""
    rows = _rows(trials, metrics.peak_mib)
    if not rows:
        return None
    unit, least = ("GiB", 1024) if max(value for *_, value in rows) > 4096 else ("MiB", 1)
    rows = [(trial, tokens, value / least) for trial, tokens, value in rows]
    svg, note = _drawn(rows, [], "Peak memory of the fullest rank against tokens, by mask", f"peak {unit} of a rank")
    caption = (
        f"Peak memory of the fullest rank in {unit} against the tokens of a row; a panel a mask, lines join one "
        "problem at several sizes, through medians; lower is better. Heads and head_dim differ between cases: the "
        "table names them."
    )
    table = _table(rows, lambda trial: (values.short(values.of(metrics.extra_gib, trial)),))
    head = (*HEAD, f"peak {unit}", "extra GiB")
    return Figure("memory", "Peak memory against tokens", svg, caption + note, head, table, "Peak memory")


HEAD = ("case", "series", "mask", "heads", "head_dim", "tokens")


def _rows(trials: Sequence[Trial], metric: Callable[[Trial], float | None]) -> list[Row]:
    """Trials whose tokens and metric a logarithm can hold, fewest tokens first."""
    found = [
        (trial, values.positive(trial["case"].get("tokens")), values.positive(values.of(metric, trial)))
        for trial in trials
    ]
    kept = [(trial, tokens, value) for trial, tokens, value in found if tokens and value]
    return sorted(kept, key=lambda row: (naming.rules(row[0]), row[1], row[0]["case"]["id"]))


def _drawn(rows: list[Row], bounds: list[Row], title: str, unit: str) -> tuple[str, str]:
    """The drawing and what it leaves out, as sentences."""
    called, kinds, note = naming.drawable([trial for trial, *_ in rows], SERIES)
    rows, bounds = ([row for row in some if called(row[0]) in kinds] for some in (rows, bounds))
    masks, fewer = naming.most((naming.rules(trial) for trial, *_ in rows), PANELS)
    points, limits = _by_problem(rows, called), _by_problem(bounds, lambda trial: "kernel bound")
    drawn = [
        Panel(mask, tuple(_series(kind, index, found[mask, kind])
                          for found, kind, index in (*((points, kind, index) for index, kind in enumerate(kinds)),
                                                     (limits, "kernel bound", None)) if found[mask, kind]))
        for mask in masks
    ]
    key = [*((kind, index) for index, kind in enumerate(kinds)), *([("kernel bound", None)] if bounds else [])]
    note += naming.left_out(fewer, "masks")
    return panels.grid(drawn, title, Axis("tokens", 2, values.tokens), Axis(unit, panels.AUTO), key), note


def _by_problem(rows: list[Row], called: Callable[[Trial], str]) -> dict[tuple[str, str], dict[tuple, list]]:
    """Points by mask and series, in each by problem: only one of the same heads makes a line over tokens."""
    found: dict[tuple[str, str], dict[tuple, list]] = defaultdict(lambda: defaultdict(list))
    for trial, tokens, value in rows:
        problem = naming.unsized(trial), *(naming.case(trial, name) for name in SHAPE)
        found[naming.rules(trial), called(trial)][problem].append((tokens, value))
    return found


def _series(kind: str, index: int | None, problems: dict[tuple, list]) -> Series:
    lines = tuple(map(tuple, problems.values()))
    return Series(kind, index, tuple(point for line in lines for point in line), lines=lines)


def _table(rows: list[Row], more: Callable[[Trial], tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    called = naming.series([trial for trial, *_ in rows])
    return tuple(
        (
            trial["case"]["id"],
            called(trial),
            naming.rules(trial),
            f"{naming.case(trial, 'heads')}/{naming.case(trial, 'kv_heads')}",
            naming.case(trial, "head_dim"),
            f"{tokens:.0f}",
            values.short(value),
            *more(trial),
        )
        for trial, tokens, value in rows
    )
