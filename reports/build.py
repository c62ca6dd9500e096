"""`python -m reports.build results/*.jsonl -o report.html`: results files -> one self-contained page."""

import argparse
import importlib.util
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reports import figures, keep, metrics, view
from reports.metrics import Trial
from reports.record import Results, read

HERE = Path(__file__).parent
OPEN_UP_TO = 40


def page(files: list[Results]) -> str:
    """HTML text of the report. Identical records give identical bytes.

    Raises ValueError when jinja2, the extra `report`, is not installed.
    """
    try:
        from jinja2 import ChainableUndefined, Environment, FileSystemLoader
    except ModuleNotFoundError as error:
        raise ValueError("the report needs jinja2: pip install 'ringcheck[report]'") from error
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, size=size, command=shlex.join)
    return environment.get_template("page.html.jinja").render(contents(files))


def contents(files: list[Results]) -> dict[str, Any]:
    """What the template shows: values by section, figures as SVG text."""
    trials, cut = view.latest(files), view.cuts(files)
    counts, label = view.counts(trials), view.labels(trials)
    implementations = sorted({label(trial) for trial in trials})
    ratios = view.ratios(trials, label if len(implementations) > 1 else None)
    return {
        "style": (HERE / "style.css").read_text(encoding="utf-8"),
        "files": files,
        "cuts": cut,
        "warnings": [warning for results in files for warning in results.warnings],
        "trials": trials,
        "counts": counts,
        "strict": view.strict_counts(trials),
        "headline": view.headline(trials, cut),
        "verdict_bar": figures.verdicts(counts, "Trials by verdict"),
        "failures": view.failures(trials),
        "strict_failures": view.strict_failures(trials),
        "skips": view.skips(trials, label),
        "few_ids": view.few,
        "coverage": {name: coverage([one for one in trials if label(one) == name]) for name in implementations},
        "masks": view.grouped(view.pictured(trials)),
        "budgets": figures.budgets(ratios, "Error over budget, by tensor and dtype") if ratios else "",
        "groups": view.grouped(trials),
        "implementations": implementations,
        "several": len(implementations) > 1,
        "label": label,
        "columns": [one for one in metrics.COLUMNS if one.always or any(one.of(trial) is not None for trial in trials)],
        "metrics": metrics,
        "layout": view.layout,
        "figures_of": figures_of,
        "few": len(trials) <= OPEN_UP_TO,
    }


def coverage(trials: list[Trial]) -> dict[str, Any]:
    """The counted tables of one implementation."""
    return {"group": view.by_world(trials, view.groups_of), "requirement": view.by_world(trials, view.requirements_of)}


def figures_of(trial: Trial) -> dict[str, str]:
    """The figures of one mask card."""
    work, name = trial.get("work") or {}, trial["case"].get("name")
    area, between = work.get("area_by_rank"), work.get("area_by_hop")
    return {
        "mask": figures.mask(trial["picture"], f"Mask of {name}: who may attend whom, by owner of the query"),
        "bars": figures.bars(area, f"Allowed pairs of each rank over the mean, {name}") if area else "",
        "hops": figures.hops(between, f"Share of pairs by rank and owner of the key, {name}")
        if between and len(between) > 1
        else "",
    }


def number(value: float | None, form: str = ".2f") -> str:
    """A figure of the page; an en dash where there is none."""
    return format(value, form) if isinstance(value, (int, float)) else "–"


def size(count: float) -> str:
    """Bytes in words: KiB below one MiB."""
    return f"{count / 1024:.3g} KiB" if count < 1000 * 1024 else f"{count / 2**20:.3g} MiB"


def check(target: str | Path, results: str | Path) -> None:
    """Raises ValueError when no page of a results file that is yet to be written could be made at `target`."""
    if importlib.util.find_spec("jinja2") is None:
        raise ValueError("the report needs jinja2: pip install 'ringcheck[report]'")
    if os.path.exists(results) and not os.path.isfile(results):
        raise ValueError(f"report {target} cannot be made of {results}, which is no file")
    keep.check_page(target, [results])


def write(paths: Iterable[str | Path], target: str | Path) -> str:
    """Builds the report of these results files at `target` and returns its headline.

    Raises ValueError for a file that cannot be read and for a target that cannot be written.
    """
    paths = list(paths)
    keep.check_page(target, paths)
    files = [read(path) for path in paths]
    text = page(files)
    try:
        keep.write_whole(Path(target), text)
    except OSError as error:
        raise ValueError(f"report {target} cannot be written: {error.strerror or error}") from error
    return view.headline(view.latest(files), view.cuts(files))


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="ringcheck build", description="Results files -> one self-contained HTML page."
    )
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE.html")
    options = parser.parse_args(arguments)
    try:
        print(f"# {write(options.results, options.output)}: {options.output}")
    except ValueError as error:
        print(f"ringcheck build: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
