"""`ringcheck compare OLD NEW`: arguments -> what changed -> exit code."""

import argparse
import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from reports import build, keep, stdout, view, visible
from reports.compare import baselines, comparison, told
from reports.compare.comparison import Comparison, Rule
from reports.compare.states import ABSENT, ALLOWED, MEANING, OTHERS, REGRESSIONS
from reports.record import Results

JSON = b'{\n "kind": "comparison"'


@stdout.guarded("ringcheck compare")
def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: nothing regressed, 1: something did, 2 with one line on stderr: bad usage, an unreadable file,
    nothing to compare; or, after all is told, that something of either side had to be left out or that less than half
    of it could be compared; 3: what was found could not be said."""
    options = parsed(arguments)
    try:
        old, new = _sides(options)
        _check_targets(options, [one.path for one in old + new])
        found = comparison.compare(old, new, _rule(options))
        _write(options, found)
    except ValueError as error:
        print(f"ringcheck compare: {visible.line(error)}", file=sys.stderr)
        return 2
    stdout.say(told.text(found, options.all))
    if found.code == 2:
        why = "; ".join(filter(None, [found.damaged, found.doubt]))
        print(f"ringcheck compare: not to be relied on: {visible.line(why)}", file=sys.stderr)
    return found.code


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(
        prog="ringcheck compare", description="What changed between two results: what broke, what is slower or faster "
        "beyond doubt, what sends more. Exit code 1 when something regressed, 2 when the comparison is not to be "
        "relied on: damaged input, or less than half of it compared.",
        formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_states(),
        usage="ringcheck compare OLD NEW | --old FILE... --new FILE... | --baseline NEW...")
    add = parser.add_argument
    add("paths", nargs="*", metavar="OLD NEW", help="results files, or folders of them; the latest record counts")
    add("--old", nargs="+", default=[], metavar="FILE", help="several files of one side")
    add("--new", nargs="+", default=[], metavar="FILE")
    add("--baseline", action="store_true", help="OLD is the blessed baseline of NEW's environment")
    add("--baselines", default=str(baselines.HERE), metavar="DIR", help="where they are")
    add("--threshold", type=_share, default=0.05, metavar="SHARE", help="least change of a time, 0.05 or 5%%")
    add("--confidence", type=float, default=0.95, metavar="SHARE",
        help="1 less the share of false alarms among the times told slower or faster")
    add("--memory-threshold", type=_share, default=0.0, metavar="SHARE", help="by how much memory may grow")
    add("--allow", action="append", default=[], choices=ALLOWED, metavar="STATE",
        help=f"tell it, but exit 0: {', '.join(ALLOWED)}; new: a new failure, incomparable: too little compared")
    add("--allow-missing", action="store_true", help=f"the same as --allow {' --allow '.join(ABSENT)}")
    add("--all", action="store_true", help="also rows that say that nothing changed")
    add("--json", metavar="FILE", help="every row as JSON")
    add("--markdown", metavar="FILE", help="for a job summary")
    add("--report", metavar="FILE.html", help="the page of NEW with these regressions")
    options = parser.parse_args(arguments)
    _check(options, parser.error)
    return options


def _states() -> str:
    """Every state in words: what ends in exit code 1 first."""
    def lines(names: Sequence[str]) -> str:
        return "\n".join(f"  {name:<15}{MEANING[name]}" for name in names)

    return f"exit code 1:\n{lines(REGRESSIONS)}\ntold only:\n{lines(OTHERS)}"


def _check(options: argparse.Namespace, fail: Callable[[str], None]) -> None:
    """Names the first option that does not fit."""
    if not 0 < options.confidence < 1:
        fail(f"--confidence {options.confidence} is not between 0 and 1")
    if options.baseline:
        if options.old or bool(options.paths) == bool(options.new):
            fail("--baseline takes NEW alone")
    elif options.old or options.new:
        if options.paths or not (options.old and options.new):
            fail("--old and --new go together, and take the place of OLD NEW")
    elif len(options.paths) != 2:
        fail("name OLD and NEW, or --baseline and NEW; several files of one side go behind --old and --new")


def _share(word: str) -> float:
    value = float(word[:-1]) / 100 if word.endswith("%") else float(word)
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(word)
    return value


_share.__name__ = "share"


def _sides(options: argparse.Namespace) -> tuple[list[Results], list[Results]]:
    if options.baseline:
        new = comparison.read(options.new or options.paths)
        return baselines.of(new, Path(options.baselines)), new
    old, new = (options.old, options.new) if options.old else ([options.paths[0]], [options.paths[1]])
    return comparison.read(old), comparison.read(new)


def _rule(options: argparse.Namespace) -> Rule:
    allowed = {*options.allow, *(ABSENT if options.allow_missing else ())}
    return Rule(options.threshold, options.confidence, options.memory_threshold, frozenset(allowed))


def _check_targets(options: argparse.Namespace, inputs: list[str]) -> None:
    """Raises ValueError for a place where something else lies than an earlier comparison, or that is named twice."""
    wanted = [one for one in (options.json, options.markdown, options.report) if one]
    for one, other in combinations(wanted, 2):
        if keep.same(one, other):
            raise ValueError(f"{one} and {other} are one file, named for two outputs")
    for target, begins in ((options.json, JSON), (options.markdown, told.MARK.encode())):
        if not target:
            continue
        path = Path(target)
        if any(keep.same(path, one) for one in inputs):
            raise ValueError(f"{target} would overwrite a file that is compared")
        try:
            head = path.read_bytes()[:len(begins)] if path.is_file() else b""
        except OSError as error:
            raise ValueError(f"{target} cannot be read: {error.strerror or error}") from error
        if head.strip() and head != begins:
            raise ValueError(f"{target} would overwrite a file that is no comparison")
    if options.report:
        keep.check_page(options.report, inputs)


def _write(options: argparse.Namespace, found: Comparison) -> None:
    """What is written says of a file its name and not where it lies: equal records give equal bytes."""
    makers = ((options.json, told.as_json), (options.markdown, told.markdown), (options.report, _page))
    files = [*found.old, *found.new]
    shown = [replace(one, path=name) for one, name in zip(files, view.names(files), strict=True)]
    named = replace(found, old=shown[:len(found.old)], new=shown[len(found.old):])
    for target, make in makers:
        if target:
            try:
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                keep.write_whole(Path(target), make(named))
            except OSError as error:
                raise ValueError(f"{target} cannot be written: {error.strerror or error}") from error


def _page(found: Comparison) -> str:
    told_first = [found.total, *told.preface(found), *view.few_lines(told.warnings(found), told.WARNED)]
    sides = [part for name, files in (("--old", found.old), ("--new", found.new))
             for part in (name, *(one.path for one in files))]
    words = ["ringcheck", "compare", *sides, *_rule_words(found.rule), "--report", "report.html"]
    command = f"again: {shlex.join(words)}"
    return build.page(found.new, regressions=comparison.shown(found), against=[*told_first, command],
                      allowed=found.rule.allowed)


def _rule_words(rule: Rule) -> list[str]:
    """The options of a rule, as far as they are none of the defaults."""
    plain, words = Rule(), []
    for flag, name in (("--threshold", "threshold"), ("--confidence", "confidence"), ("--memory-threshold", "memory")):
        if getattr(rule, name) != getattr(plain, name):
            words += [flag, f"{getattr(rule, name):g}"]
    return words + [word for state in sorted(rule.allowed) for word in ("--allow", state)]


if __name__ == "__main__":
    sys.exit(main())
