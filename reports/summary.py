"""`python -m reports.summary results/*.jsonl`: counts, worst ratios and slowest trials in a few lines."""

import argparse
import sys

from reports import view
from reports.record import Results, read


def summary(files: list[Results], count: int = 5) -> str:
    """A few lines about all trials of these files; `count` limits each list."""
    trials = view.latest(files)
    counts, strict = view.counts(trials), view.strict_counts(trials)
    lines = [
        f"# {view.headline(trials)}",
        "# "
        + "  ".join(f"{verdict} {number}" for verdict, number in counts.items())
        + f"  strict {strict['PASS']}/{strict['PASS'] + strict['FAIL']}",
    ]
    for trial in view.failures(trials)[:count]:
        told = (trial.get("diagnosis") or {}).get("headline") or trial.get("reason") or ""
        lines.append(f"{trial['verdict']:<6}{trial['case']['id']}  {told.splitlines()[0] if told else ''}")
    lines.append("# largest error/budget")
    lines += [
        f"{deviation['ratio']:>10.3g}  {deviation['tensor']:<4} {trial['case']['id']}"
        for trial, deviation in view.furthest(trials, count)
    ]
    lines.append("# slowest trials (s)")
    lines += [f"{trial.get('seconds') or 0:>10.2f}  {trial['case']['id']}" for trial in view.slowest(trials, count)]
    lines += [f"# skipped {len(ids)}: {reason}" for reason, ids in view.skips(trials)[:count]]
    lines += [f"# warning {warning}" for results in files for warning in results.warnings]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="ringcheck summary", description="Results files in a few lines.")
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="lines of each list")
    options = parser.parse_args(arguments)
    try:
        print(summary([read(path) for path in options.results], options.top))
    except ValueError as error:
        print(f"ringcheck summary: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
