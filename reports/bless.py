"""`ringcheck bless NEW.jsonl`: makes NEW the baseline that later results of its environment are compared with."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reports import keep, record, stdout, view, visible
from reports.compare import baselines, comparison, counts, environment, sides, times, told
from reports.compare.comparison import Rule
from reports.compare.environment import Key
from reports.record import Results

WRONG = ("FAIL", "ERROR")


@stdout.guarded("ringcheck bless")
def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr, and nothing is written."""
    parser = argparse.ArgumentParser(
        prog="ringcheck bless", description="Makes results the baseline of their environment. Version control keeps "
        "the one before; to keep trials that NEW lacks, bless the old baseline and NEW together.")
    parser.add_argument("results", nargs="+", metavar="NEW.jsonl")
    parser.add_argument("--baselines", default=str(baselines.HERE), metavar="DIR")
    parser.add_argument("--with-failures", action="store_true", help="also bless trials that failed")
    parser.add_argument("--drop", action="store_true", help="also let go of trials of the baseline that NEW lacks")
    options = parser.parse_args(arguments)
    try:
        lines = bless(options.results, Path(options.baselines), options.with_failures, options.drop)
    except ValueError as error:
        print(f"ringcheck bless: {visible.line(error)}", file=sys.stderr)
        return 2
    stdout.say("\n".join(map(visible.line, lines)))
    return 0


def bless(paths: Sequence[str | Path], where: Path, failures: bool = False, drop: bool = False) -> list[str]:
    """Writes the baseline of each environment of these files; returns what changed against those before.

    Raises ValueError, and writes nothing, for a run that was cut, for a file of which anything could not be read, for a
    pass with numbers that are none, for failures without `failures`, and, without `drop`, for a baseline whose trials
    the files lack or that is damaged.
    """
    files = sides.files(paths)
    check(files, failures)
    texts = baselines.blessed(files)
    for key, text in texts.items():
        _check_readable(key, text)
    befores = {key: _before(key, where, drop) for key in texts}
    for key, before in befores.items():
        if before and not drop:
            _check_kept(before, files, key)
    lines = []
    for key, text in texts.items():
        lines += _write(key, text, befores[key], where)
    return lines


def check(files: Sequence[Results], failures: bool) -> None:
    """Raises ValueError for what nothing should be held to."""
    for words in view.left_out(files):
        raise ValueError(f"{words}: nothing is held to a damaged file")
    for cut in view.cuts(files):
        raise ValueError(f"{cut.path} is not whole ({cut}): finish it with --resume")
    trials = sides.taken(files)
    wrong = [one.name[0] for one in trials if one.trial["verdict"] in WRONG]
    if wrong and not failures:
        failed = view.some(len(wrong), "trial")
        raise ValueError(f"{failed} failed ({view.few(wrong)}): repair them, or bless --with-failures")
    for one in trials:
        if one.trial["verdict"] == "PASS" and (words := [*times.unusable(one.trial), *counts.unusable(one.trial)]):
            raise ValueError(f"{one.name[0]}: {words[0]}: nothing can be held to that")
    if not any(one.trial["verdict"] in ("PASS", *WRONG) for one in trials):
        raise ValueError("nothing ran: there is nothing to bless")


def _before(key: Key, where: Path, drop: bool) -> Results | None:
    """The baseline that is there. One that is damaged is let go of with `drop` alone."""
    path = baselines.place(key, where)
    try:
        return record.read(path, strict=True) if path.exists() else None
    except ValueError as error:
        if drop:
            return None
        raise ValueError(f"the baseline before is damaged, --drop lets go of it: {error}") from error


def _check_readable(key: Key, text: str) -> None:
    """Raises ValueError where the very bytes, written and read back, are not the same baseline."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / baselines.NAME
        path.write_text(text, encoding="utf-8")
        again = baselines.blessed([record.read(path, strict=True)])
    if again != {key: text}:
        raise ValueError("the baseline would read back as another one; nothing is written")


def _check_kept(before: Results, files: Sequence[Results], key: Key) -> None:
    kept = {(one.name, one.kind) for one in sides.taken(files) if one.key == key}
    lost = [one.name[0] for one in sides.taken([before]) if (one.name, one.kind) not in kept]
    if lost:
        raise ValueError(f"{view.some(len(lost), 'trial')} of {before.path} not in NEW ({view.few(lost)}): bless both "
                         f"files together, or --drop them")


def _write(key: Key, text: str, before: Results | None, where: Path) -> list[str]:
    path = baselines.place(key, where)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        keep.write_whole(path, text)
    except OSError as error:
        raise ValueError(f"baseline {path} cannot be written: {error.strerror or error}") from error
    after = record.read(path)
    head = f"# {path}: {view.some(len(after.trials), 'trial')} of {environment.words(key)}"
    if not before:
        return [head, "# the first baseline of this environment"]
    try:
        found = comparison.compare([before], [after], Rule())
    except ValueError:
        return [head, "# no trial of the baseline before is in it"]
    return [head, *told.text(found).split("\n")]


if __name__ == "__main__":
    sys.exit(main())
