"""Strong and weak scaling: what more ranks bring to the same tokens, and to the same tokens a rank."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from reports import metrics, view
from reports.figure import Figure
from reports.figures import naming, panels, values
from reports.figures.panels import Axis, Panel, Series
from reports.metrics import Trial
from reports.record import Results

FEW = 8
Metric = Callable[[Trial, Trial], float | None]


@dataclass(frozen=True)
class Run:
    """One trial of a family of worlds, with the numbers it is told by; `base` is its trial on the fewest ranks."""

    family: tuple[str, ...]
    label: str
    trial: Trial
    base: Trial
    told: tuple[float, ...]

    @property
    def world(self) -> int:
        return naming.world(self.trial)


def strong(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Speed-up and efficiency of equal cases on more and more ranks."""
    found = _families(trials, _case, (metrics.speedup, metrics.strong_efficiency))
    if not found:
        return None
    plots = [_panel("speed-up over the fewest ranks", found, 0, ideal=True), _panel("efficiency", found, 1)]
    caption = (
        "The same case, all its tokens divided over more ranks: step time on the fewest ranks over step time, and "
        "that over the ratio of the worlds. Dashes are ideal, higher is better."
    )
    return _figure(
        "strong-scaling", "Strong scaling", found, plots, ("speed-up", "efficiency"), caption, "Strong scaling"
    )


def weak(trials: Sequence[Trial], files: Sequence[Results] = ()) -> Figure | None:
    """Efficiency where every rank holds as many tokens, whatever the world."""
    found = _families(trials, _share, (metrics.weak_efficiency,))
    if not found:
        return None
    caption = (
        "As many tokens a rank on more and more ranks: TFLOP/s a rank over that on the fewest ranks (arithmetic, "
        "since a causal row twice as long is four times the work). Dashes are ideal, higher is better."
    )
    return _figure(
        "weak-scaling",
        "Weak scaling",
        found,
        [_panel("efficiency per rank", found, 0)],
        ("efficiency",),
        caption,
        "Weak scaling",
    )


def _case(trial: Trial) -> tuple[str, ...]:
    names = ("name", "tokens", "dtype", "batch", "heads", "kv_heads", "head_dim", "value_dim", "seed")
    return (*(naming.case(trial, name) for name in names), view.layout(trial))


def _share(trial: Trial) -> tuple[str, ...] | None:
    """What stays when the tokens grow with the world; a size in the name goes."""
    tokens = values.positive(trial["case"].get("tokens"))
    if tokens is None:
        return None
    names = ("dtype", "batch", "heads", "kv_heads", "head_dim", "value_dim")
    name = naming.unsized(trial)
    share = f"{values.tokens(tokens / naming.world(trial))} a rank"
    return (name, share, *(naming.case(trial, one) for one in names), view.layout(trial))


def _families(trials: Sequence[Trial], family: Callable[[Trial], tuple | None], told: Sequence[Metric]) -> list[Run]:
    """Trials that are timed on several worlds, family by family, by world; the last of equal ones counts."""
    label, members = view.labels(trials), defaultdict(dict)
    for trial in trials:
        key = family(trial)
        if key is not None and values.positive(values.of(metrics.step_ms, trial)):
            members[label(trial), key][naming.world(trial)] = trial
    found = []
    for (name, key), by_world in sorted(members.items()):
        base = by_world[min(by_world)]
        runs = [(trial, _told(told, trial, base)) for _, trial in sorted(by_world.items())]
        kept = [Run(key, name, trial, base, numbers) for trial, numbers in runs if None not in numbers]
        found += kept if len(kept) > 1 else []
    return found


def _told(metrics_of: Sequence[Metric], trial: Trial, base: Trial) -> tuple[float | None, ...]:
    return tuple(values.positive(values.of(partial(metric, base=base), trial)) for metric in metrics_of)


def _words(key: tuple[str, ...]) -> str:
    """Name, what tells it apart at a glance, and layout."""
    return " ".join(part for part in (*key[:3], key[-1]) if part)


def _first(runs: list[Run]) -> int:
    """The fewest ranks that any family starts at; only families that start there are drawn together."""
    return min(naming.world(run.base) for run in runs)


def _panel(title: str, runs: list[Run], place: int, ideal: bool = False) -> Panel:
    """Every family in a look of its own while they are few; else pale, with the median of each implementation."""
    first, families = _first(runs), defaultdict(list)
    for run in runs:
        if naming.world(run.base) == first:
            families[run.label, run.family].append((run.world, run.told[place]))
    several, pale = len({label for label, _ in families}) > 1, ()
    told = [(_words(key) + (f" {label}" if several else ""), found) for (label, key), found in families.items()]
    if len(told) > FEW:
        pale, merged = tuple(map(tuple, families.values())), defaultdict(list)
        for (label, _), found in families.items():
            merged[f"median, {label}"] += found
        told = list(merged.items())[:FEW]
    series = [Series(name, index, tuple(panels.middles(found))) for index, (name, found) in enumerate(told)]
    worlds = sorted({world for found in families.values() for world, _ in found})
    bound = Series("ideal", None, tuple((world, world / first) for world in worlds))
    return Panel(title, (*series, *([bound] if ideal else [])), () if ideal else ((1.0, "ideal"),), pale)


def _figure(
    anchor: str, title: str, runs: list[Run], plots: list[Panel], heads: tuple[str, ...], caption: str, metric: str
) -> Figure:
    first = _first(runs)
    families = {(run.label, run.family): naming.world(run.base) == first for run in runs}
    drawn = sum(families.values())
    if drawn > FEW:
        caption += f" Pale lines are {drawn} cases under their layouts, marked ones their medians by implementation."
        caption += naming.left_out(max(0, len({label for label, _ in families}) - FEW), "medians")
    caption += naming.left_out(len(families) - drawn, "cases, whose fewest ranks are more,")
    y = Axis("ratio", panels.AUTO)
    worlds = tuple(sorted({float(run.world) for run in runs}))
    svg = panels.grid(plots, title, Axis("ranks", 2, marked=worlds), y, _key(plots), shared=False)
    table = tuple(
        (
            _words(run.family),
            run.label,
            str(run.world),
            naming.case(run.trial, "tokens"),
            values.short(values.of(metrics.step_ms, run.trial)),
            *map(values.short, run.told),
        )
        for run in runs
    )
    return Figure(
        anchor, title, svg, caption, ("case", "implementation", "ranks", "tokens", "step ms", *heads), table, metric
    )


def _key(plots: list[Panel]) -> list[tuple[str, int | None]]:
    return list(dict.fromkeys((one.label, one.index) for plot in plots for one in plot.series))
