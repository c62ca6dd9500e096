"""`python -m reports.summary results/*.jsonl`: counts, worst ratios and slowest trials in a few lines, or Markdown
and annotations for a CI job."""

import argparse
import sys
from collections.abc import Callable

from reports import metrics, view
from reports.annotations import annotations
from reports.markdown import LIMIT, markdown
from reports.metrics import Trial
from reports.record import Results, read


def summary(files: list[Results], count: int = 5) -> str:
    """A few lines about all trials of these files; `count` limits each list."""
    trials = view.latest(files)
    counts, strict = view.counts(trials), view.strict_counts(trials)
    label, cut = view.labels(trials), view.cuts(files)
    several = len({label(trial) for trial in trials}) > 1

    def named(trial: Trial) -> str:
        return trial["case"]["id"] + (f"  {label(trial)}" if several else "")

    lines = [
        f"# {view.headline(trials, cut)}",
        "# "
        + "  ".join(f"{verdict} {number}" for verdict, number in counts.items())
        + f"  strict {strict['PASS']}/{strict['PASS'] + strict['FAIL']}",
    ]
    lines += [f"# {one.path}  {one}" for one in cut]
    lines += by_implementation(trials, label) if several else []
    lines += wrong(trials, named, count)
    lines += speeds(trials, named)
    lines.append("# largest error/budget")
    lines += [
        f"{deviation['ratio']:>10.3g}  {deviation['tensor']:<4} {named(trial)}"
        for trial, deviation in view.furthest(trials, count)
    ]
    lines.append("# slowest trials (s)")
    lines += [f"{trial.get('seconds') or 0:>10.2f}  {named(trial)}" for trial in view.slowest(trials, count)]
    lines += [
        f"# skipped {len(ids)}: {name + ': ' if several else ''}{reason}"
        for name, reason, ids in view.skips(trials, label)[:count]
    ]
    lines += [f"# warning {warning}" for results in files for warning in results.warnings]
    return "\n".join(lines)


def by_implementation(trials: list[Trial], label: Callable[[Trial], str]) -> list[str]:
    """Counts of each implementation."""
    names = list(dict.fromkeys(map(label, trials)))
    counted = {name: view.counts(trial for trial in trials if label(trial) == name) for name in names}
    width = max(map(len, names))
    return [
        f"#   {name:<{width}}  " + "  ".join(f"{verdict} {number}" for verdict, number in counts.items())
        for name, counts in counted.items()
    ]


def speeds(trials: list[Trial], named: Callable[[Trial], str]) -> list[str]:
    """Trials that passed and were timed in turns or beside their bound, with their figures."""
    asked = ("beside", "bound_step_s", "silent_step_s")
    timed = [trial for trial in trials
             if trial["verdict"] == "PASS" and any((trial.get("measurement") or {}).get(name) for name in asked)]
    figures = (metrics.tflops_forward, metrics.tflops_step, metrics.share_forward, metrics.share_step,
               metrics.exposed_ms, metrics.extra_gib)

    def cells(trial: Trial) -> str:
        values = [figure(trial) for figure in figures]
        return " ".join(f"{'-' if value is None else format(value, '.3g'):>9}" for value in values)

    head = "#   fwd both TFLOP/s a rank, share of the bound fwd both, exposed ms, extra GiB"
    return [head, *(f"{cells(trial)}  {named(trial)}" for trial in timed)] if timed else []


def wrong(trials: list[Trial], named: Callable[[Trial], str], count: int) -> list[str]:
    """Failures and errors, equal ones as one line."""
    found: dict[tuple[str, str], list[str]] = {}
    for trial in view.failures(trials):
        told = (trial.get("diagnosis") or {}).get("headline") or trial.get("reason") or ""
        found.setdefault((trial["verdict"], told.split("\n")[0]), []).append(named(trial))
    return [f"{verdict:<6}{view.few(ids)}  {told}" for (verdict, told), ids in list(found.items())[:count]]


def told(files: list[Results], options: argparse.Namespace) -> str:
    """The results in the form that was asked for."""
    if options.markdown:
        return markdown(files, options.limit)
    return "\n".join(annotations(files)) if options.annotations else summary(files, options.top)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="ringcheck summary", description="Results files in a few lines.")
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="lines of each list")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true",
                      help="Markdown, failures first: ringcheck summary FILE --markdown >> $GITHUB_STEP_SUMMARY")
    form.add_argument("--annotations", action="store_true",
                      help="GitHub workflow commands, ten failures as annotations and the rest counted")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="BYTES",
                        help="size of the Markdown, cut by whole rows (default %(default)s, what GitHub takes)")
    options = parser.parse_args(arguments)
    try:
        text = told([read(path) for path in options.results], options)
    except ValueError as error:
        print(f"ringcheck summary: {error}", file=sys.stderr)
        return 2
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    print(text, end="" if text.endswith("\n") or not text else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
