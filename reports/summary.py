"""`python -m reports.summary results/*.jsonl`: counts, worst ratios and slowest trials in a few lines, or Markdown
and annotations for a CI job."""

import argparse
import sys
from collections.abc import Callable

from reports import metrics, stdout, view, visible
from reports.annotations import annotations, grouped
from reports.markdown import LIMIT, markdown
from reports.metrics import Trial
from reports.record import Results, read_all
from reports.visible import line

LONG = 400
FULL = 20


def summary(files: list[Results], count: int = 5) -> str:
    """A few lines about all trials of these files; `count` limits each list, and a line says how much more there is.
    Text of records stays in its line (see reports.visible)."""
    trials = view.latest(files)
    counts, strict = view.counts(trials), view.strict_counts(trials)
    label, cut = view.labels(trials), view.cuts(files)
    several = len({label(trial) for trial in trials}) > 1

    def named(trial: Trial) -> str:
        return line(trial["case"]["id"], LONG) + (f"  {line(label(trial), LONG)}" if several else "")

    lines = [f"# {view.summed(files)}",
             "# " + "  ".join(f"{verdict} {number}" for verdict, number in counts.items())
             + f"  strict {strict['PASS']}/{strict['PASS'] + strict['FAIL']}"]
    lines += few([f"# {one.path}  {one}" for one in cut], count, "cut run")
    lines += few([f"# left out {words}" for words in view.left_out(files)], count, "line or field", "lines or fields")
    lines += few(by_implementation(trials, label), FULL, "implementation") if several else []
    lines += wrong(trials, label, named, count)
    lines += speeds(trials, named, count)
    lines.append("# largest error/budget")
    lines += [f"{deviation['ratio']:>10.3g}  {deviation.get('tensor') or '?':<4} {named(trial)}"
              for trial, deviation in view.furthest(trials, count)]
    lines.append("# slowest trials (s)")
    lines += [f"{trial.get('seconds') or 0:>10.2f}  {named(trial)}" for trial in view.slowest(trials, count)]
    lines += few([f"# skipped {len(ids)}: {name + ': ' if several else ''}{reason}"
                  for name, reason, ids in view.skips(trials, label)], count, "reason to skip", "reasons to skip")
    return "\n".join(visible.columns(one) for one in lines)


def few(lines: list[str], count: int, thing: str, things: str = "") -> list[str]:
    """At most `count` lines, and one that counts those behind them."""
    rest = len(lines) - count
    name = thing if rest == 1 else things or f"{thing}s"
    return lines if rest <= 0 else [*lines[:count], f"#   and {rest} more {name}"]


def by_implementation(trials: list[Trial], label: Callable[[Trial], str]) -> list[str]:
    """Counts of each implementation."""
    names = list(dict.fromkeys(map(label, trials)))
    counted = {name: view.counts(trial for trial in trials if label(trial) == name) for name in names}
    width = max(map(len, names))
    return [
        f"#   {name:<{width}}  " + "  ".join(f"{verdict} {number}" for verdict, number in counts.items())
        for name, counts in counted.items()
    ]


def speeds(trials: list[Trial], named: Callable[[Trial], str], count: int) -> list[str]:
    """Trials that passed and were timed in turns or beside their bound, with their figures."""
    asked = ("beside", "bound_step_s", "silent_step_s")
    timed = [trial for trial in trials
             if trial["verdict"] == "PASS" and any((trial.get("measurement") or {}).get(name) for name in asked)]
    figures = (metrics.tflops_forward, metrics.tflops_step, metrics.share_forward, metrics.share_step,
               metrics.exposed_ms, metrics.extra_gib)

    def cells(trial: Trial) -> str:
        values = [view.value(figure, trial) for figure in figures]
        return " ".join(f"{'-' if value is None else format(value, '.3g'):>9}" for value in values)

    head = "#   fwd both TFLOP/s a rank, share of the bound fwd both, exposed ms, extra GiB"
    told = [f"{cells(trial)}  {named(trial)}" for trial in timed]
    return [head, *few(told, count, "timed trial")] if timed else []


def wrong(trials: list[Trial], label: Callable[[Trial], str], named: Callable[[Trial], str], count: int) -> list[str]:
    """Failures and errors; those of one implementation that are told alike are one line."""
    told = [f"{verdict:<6}{view.few([named(one) for one in alike])}  {words}"
            for (_, verdict, words), alike in grouped(trials, label).items()]
    return few(told, count, "kind of failure", "kinds of failure")


def told(files: list[Results], options: argparse.Namespace) -> str:
    """The results in the form that was asked for."""
    if options.markdown:
        return markdown(files, options.limit)
    return "\n".join(annotations(files)) if options.annotations else summary(files, options.top)


@stdout.guarded("ringcheck summary")
def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, also where something could not be read, which is told; or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="ringcheck summary", description="Results files in a few lines.")
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="lines of each list")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true",
                      help="Markdown, failures first: ringcheck summary FILE --markdown >> $GITHUB_STEP_SUMMARY")
    form.add_argument("--annotations", action="store_true",
                      help="GitHub workflow commands: ten kinds of failure as annotations, what is behind them counted")
    parser.add_argument("--limit", type=int, default=LIMIT, metavar="BYTES",
                        help="size of the Markdown, cut by whole rows (default %(default)s, what GitHub takes)")
    options = parser.parse_args(arguments)
    try:
        text = told(read_all(options.results), options)
    except ValueError as error:
        print(f"ringcheck summary: {line(error)}", file=sys.stderr)
        return 2
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    stdout.say(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
