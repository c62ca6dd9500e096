"""`python -m reports.build results/*.jsonl -o report.html`: results files -> one self-contained page."""

import argparse
import base64
import hashlib
import importlib.util
import math
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from reports import changes, figures, keep, rows, stdout, view, visible
from reports.figure import Figure
from reports.gallery import gallery
from reports.masks import masks
from reports.record import Results, read_all

HERE = Path(__file__).parent
OPEN_UP_TO = 40
IN_FULL = 60
WORDED = 9
NUMERIC = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?$|[-–∞]$|nan$")
GLYPHS = {"PASS": "✓", "FAIL": "✗", "ERROR": "!", "SKIP": "–"}
LEFT_OUT = 20

Change = Mapping[str, Any]


def page(files: list[Results], regressions: Iterable[Change] | None = None, against: Sequence[str] = (),
         allowed: Collection[str] = ()) -> str:
    """HTML text of the report. Identical records give identical bytes, wherever their files lie and in whatever order.

    `regressions` are rows of a comparison (see reports.changes), `against` sentences on what was compared and how,
    the sum first, `allowed` states that are no regression here; without rows the page has no such section.
    Raises ValueError when jinja2, the extra `report`, is not installed.
    """
    text = templates().get_template("page.html.jinja").render(
        {**contents(files, regressions, allowed), "against": against})
    return visible.page(text)


@cache
def templates() -> Any:
    """The templates of the page, compiled once a process."""
    try:
        from jinja2 import ChainableUndefined, Environment, FileSystemLoader
    except ModuleNotFoundError as error:
        raise ValueError("the report needs jinja2: pip install 'ringcheck[report]'") from error
    environment = Environment(
        loader=FileSystemLoader(HERE / "page"),
        autoescape=True,
        undefined=ChainableUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, command=shlex.join, clip=view.clip, worded=worded)
    return environment


def contents(files: list[Results], regressions: Iterable[Change] | None = None,
             allowed: Collection[str] = ()) -> dict[str, Any]:
    """What the templates show: values by section, figures as SVG text."""
    files = view.shortened(view.named(files))
    trials, cut, unread = view.latest(files), view.cuts(files), view.unread(files)
    counts, label = view.counts(trials), view.labels(trials)
    implementations = sorted({label(trial) for trial in trials})
    several = len(implementations) > 1
    failures, anchors = view.failures(trials), rows.anchors(trials)
    compared = None if regressions is None else changes.changes(regressions, set(anchors.values()), allowed)
    wrong = bool(failures or compared and compared["worse"])
    ratios = view.ratios(trials, label if several else None)
    return {
        **dressing(),
        "GLYPHS": GLYPHS,
        "files": files,
        "cuts": cut,
        "running": any(one.running for one in cut),
        "unread": unread,
        "left_out": view.few_lines(view.left_out(files), LEFT_OUT),
        "trials": trials,
        "counts": counts,
        "strict": view.strict_counts(trials),
        "headline": view.headline(trials, cut, unread),
        "state": "bad" if wrong else "good" if counts["PASS"] and not cut and not unread else "idle",
        "verdict_bar": figures.verdicts(counts, "Trials by verdict"),
        "changes": compared,
        "failures": failures,
        "full": IN_FULL,
        "unlike": view.unlike(failures),
        "strict_failures": view.strict_failures(trials),
        "skips": view.skips(trials, label),
        "few_ids": view.few,
        "coverage": {name: view.by_world([one for one in trials if label(one) == name]) for name in implementations},
        "masks": masks(trials),
        "budgets": bool(ratios),
        "figures": [*([errors(ratios)] if ratios else []), *gallery(trials, files)],
        "table": rows.table(trials, label, several, {id(trial) for trial in failures[:IN_FULL]}),
        "anchor": lambda trial: anchors[id(trial)],
        "implementations": implementations,
        "several": several,
        "label": label,
        "id": id,
        "environments": environments(files),
        "told": told,
        "few": len(trials) <= OPEN_UP_TO,
    }


def dressing() -> dict[str, str]:
    """Style, script and the policy that lets exactly these two in: no network, no inline attribute, no other script."""
    sheets = [*sorted(HERE.glob("*.css")), *sorted(HERE.glob("*/*.css"))]
    style = "".join(path.read_text(encoding="utf-8") for path in sheets)
    script = (HERE / "page" / "page.js").read_text(encoding="utf-8")
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (style, script)]
    policy = (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": style, "script": script, "policy": policy}


def errors(ratios: dict[str, list[float]]) -> Figure:
    """Error over budget of all comparisons."""
    def row(name: str, values: Sequence[float]) -> tuple[str, ...]:
        known = [value for value in values if not math.isnan(value)]
        shown = [number(median(known) if known else None, ".3g"), number(max(known, default=None), ".3g")]
        return view.clip(name, 200), str(len(values)), *shown, str(sum(not value <= 1 for value in values))

    return Figure(
        anchor="budgets",
        title="Errors in budgets",
        svg=figures.budgets(ratios, "Error over budget, by tensor and dtype"),
        caption="Error over budget of every tensor compared, each trial once; lower is better. The line at 1 separates "
        "right from wrong, and what is beyond it has an outline; a bar's height is the square root of its count.",
        head=("tensor and dtype", "compared", "median", "worst", "beyond 1"),
        rows=tuple(row(name, values) for name, values in ratios.items()),
        metric="Error over budget",
    )


def environments(files: Iterable[Results]) -> list[dict[str, Any]]:
    """Every run with its settings and environment; None where one is that of the run before."""
    found: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for results in files:
        for run in results.runs:
            facts = {name: run.header.get(name) for name in ("settings", "environment") if run.header.get(name)}
            told = {name: None if before.get(name) == facts[name] else facts[name] for name in facts}
            found.append({"path": results.path, "facts": told, "argv": run.header.get("argv"), "end": run.end,
                          "done": view.some(len(run.trials), "trial"),
                          "running": results.running and run is results.runs[-1]})
            before = facts
    return found


def told(value: Any) -> str:
    """A setting as text."""
    if isinstance(value, dict):
        return " ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)


def number(value: float | None, form: str = ".2f") -> str:
    """A figure of the page; an en dash where there is none."""
    return format(value, form) if isinstance(value, (int, float)) else "–"


def worded(rows: Sequence[Sequence[str]]) -> str:
    """Classes of a number table that name its columns of words, c1 the first: words begin at the left."""
    columns = [place for place, cells in enumerate(zip(*rows), 1) if not all(map(NUMERIC.match, cells))]
    return " ".join(f"c{place}" for place in columns if 1 < place <= WORDED)


def check(target: str | Path, results: str | Path) -> None:
    """Raises ValueError when no page of a results file that is yet to be written could be made at `target`."""
    if importlib.util.find_spec("jinja2") is None:
        raise ValueError("the report needs jinja2: pip install 'ringcheck[report]'")
    if os.path.exists(results) and not os.path.isfile(results):
        raise ValueError(f"report {target} cannot be made of {results}, which is no file")
    keep.check_page(target, [results])


def write(paths: Iterable[str | Path], target: str | Path, regressions: Iterable[Change] | None = None) -> str:
    """Builds the report of these results files, with a comparison's rows where given, and returns its headline, which
    says how much could not be read.

    Raises ValueError for a file that cannot be opened, where no file holds a record, and for a target that cannot be
    written.
    """
    return view.summed(made(paths, target, regressions))


def made(paths: Iterable[str | Path], target: str | Path, regressions: Iterable[Change] | None = None) -> list[Results]:
    """As `write`; returns what was read."""
    paths = list(paths)
    keep.check_page(target, paths)
    files = read_all(paths)
    text = page(files, regressions)
    try:
        keep.write_whole(Path(target), text)
    except OSError as error:
        raise ValueError(f"report {target} cannot be written: {error.strerror or error}") from error
    return files


@stdout.guarded("ringcheck build")
def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, with a line on stderr for whatever could not be read and is left out; or 2 with one line on stderr
    where nothing could."""
    parser = argparse.ArgumentParser(
        prog="ringcheck build", description="Results files -> one self-contained HTML page."
    )
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE.html")
    options = parser.parse_args(arguments)
    try:
        files = made(options.results, options.output)
    except ValueError as error:
        print(f"ringcheck build: {visible.line(error)}", file=sys.stderr)
        return 2
    for words in view.left_out(files):
        print(f"ringcheck build: {visible.line(words)}", file=sys.stderr)
    stdout.say(f"# {view.summed(files)}: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
