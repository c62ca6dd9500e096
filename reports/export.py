"""`python -m reports.export results/*.jsonl -o x.csv`: one flat row a trial, as CSV or, where pandas can, Parquet."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reports import flat, keep, view, visible
from reports.record import Results, read_all

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export(paths: Iterable[str | Path], target: str | Path,
           samples: bool = False) -> tuple[int, Path | None, list[str]]:
    """Writes the trials of results files to `target`, .csv or .parquet. Returns how many there are, the name that an
    earlier file of other content got, since nothing is written over, and what could not be read, one line each.

    Raises ValueError with one line for bad input, for a target that cannot be written and where Parquet is missing.
    """
    paths, target = list(paths), Path(target)
    makers = {".csv": as_csv, ".parquet": as_parquet}
    if target.suffix not in makers:
        raise ValueError(f"export {target} ends in neither {' nor '.join(makers)}")
    for given in paths:
        if keep.same(target, given):
            raise ValueError(f"export {target} would overwrite {given}, from which it is made")
    files = read_all(paths)
    data, count = makers[target.suffix](files, samples)
    return count, put(target, data), view.left_out(files)


def put(target: Path, data: bytes) -> Path | None:
    """Writes a file at once; one of other content that is there gets the first free name x.1.csv, x.2.csv, ..."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise ValueError(f"export {target} cannot be written: Is a directory")
        if target.is_file() and target.read_bytes() == data:
            return None
        part = target.with_name(f".{target.name[:200]}.part")
        try:
            part.write_bytes(data)
            aside = keep.put_aside(target) if target.is_file() or target.is_symlink() else None
            part.rename(target)
        finally:
            part.unlink(missing_ok=True)
        return aside
    except OSError as error:
        raise ValueError(f"export {target} cannot be written: {error.strerror or error}") from error


def as_csv(files: list[Results], samples: bool) -> tuple[bytes, int]:
    """UTF-8 with a line of names; missing is empty, lists are JSON. A text that a spreadsheet would take for a formula
    gets a `'` in front."""
    made = list(flat.rows(files, samples))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [one.name for one in flat.fields(samples)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in made)
    return stream.getvalue().encode(), len(made)


def cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def as_parquet(files: list[Results], samples: bool) -> tuple[bytes, int]:
    """The frame as pandas writes it."""
    stream = io.BytesIO()
    try:
        made = flat.framed(files, samples)
        made.to_parquet(stream, index=False)
    except ImportError as error:
        lack = "Parquet needs pandas and pyarrow: pip install 'ringcheck[frame]', or export to .csv"
        raise ValueError(lack) from error
    return stream.getvalue(), len(made)


def columns() -> str:
    """Every column with what it holds."""
    named = flat.fields(samples=True)
    width = max(len(one.name) for one in named)
    return "\n".join(f"{one.name:<{width}}  {one.kind.__name__:<5}  {one.about}" for one in named)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, with a line on stderr for whatever could not be read, or 2 with one line."""
    parser = argparse.ArgumentParser(prog="ringcheck export", description="Results files -> one flat row a trial.")
    parser.add_argument("results", nargs="*", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", metavar="FILE.csv|FILE.parquet")
    parser.add_argument("--samples", action="store_true", help="adds the raw figures of laps and ranks as lists")
    parser.add_argument("--columns", action="store_true", help="lists the columns with what they hold, and ends")
    options = parser.parse_args(arguments)
    if options.columns:
        print(columns())
        return 0
    if not options.results or not options.output:
        parser.error("name at least one results file, and the file to write behind -o")
    try:
        count, aside, left = export(options.results, options.output, options.samples)
    except ValueError as error:
        print(f"ringcheck export: {visible.line(error)}", file=sys.stderr)
        return 2
    for words in left:
        print(f"ringcheck export: {visible.line(words)}", file=sys.stderr)
    if aside:
        print(f"# {options.output} held something else, kept as {aside}")
    print(f"# {view.some(count, 'trial')}: {visible.line(options.output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
