"""`python -m reports.merge A.jsonl B.jsonl -o C.jsonl`: results files of several nodes as one, line for line."""

import argparse
import codecs
import fcntl
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reports import keep, reading, view, visible

Block = tuple[bytes, ...]


@dataclass
class Shard:
    """A results file in lines as they are: runs as blocks (header, trials, end), trials whose header is lost apart;
    what is `wrong` with it and left out, and `odd` records whose lines are carried along, each with its place."""

    path: str
    runs: list[Block] = field(default_factory=list)
    loose: list[bytes] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)


def shard(path: str | Path) -> Shard:
    """The lines of a results file. Raises ValueError when it cannot be read."""
    try:
        lines = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    except OSError as error:
        raise ValueError(f"results file {path} cannot be read: {error.strerror or error}") from error
    found, blocks = Shard(str(path)), []
    for number, line in enumerate(map(bytes.strip, lines), 1):
        if not line:
            continue
        try:
            kind = kind_of(line)
        except ValueError as error:
            found.wrong.append(f"{path}:{number}: {error}")
            continue
        found.odd += [f"{path}:{number}: {words}" for words in reading.mended(json.loads(line))]
        if kind == "run":
            blocks.append([line])
        else:
            (blocks[-1] if blocks else found.loose).append(line)
    found.runs = list(map(tuple, blocks))
    if not found.runs and not found.loose:
        found.wrong.append(f"{path}: holds no record of a run or trial")
    return found


def kind_of(line: bytes) -> str:
    """Kind of a whole line. Raises ValueError with what is wrong with it; a record with a damaged field is carried
    along as it is, and told by whoever shows it."""
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        raise ValueError("not JSON, or cut") from None
    reading.mended(record)
    return record["kind"]


def merged(shards: Iterable[Shard]) -> list[Block]:
    """All runs of these files once, by their time, whatever the order of files is.

    A run that another file has further (the same header, and trials that go on from the same) is there once, as the
    longer one. Trials whose header is lost, and which no run has, come first, so that no other run takes them for its
    own.
    """
    shards = list(shards)
    runs = {run for one in shards for run in one.runs}
    loose = {line for one in shards for line in one.loose}.difference(*runs)
    whole = [run for run in runs if not any(begins(run, other) for other in runs)]
    first = [tuple(sorted(loose, key=lambda line: (kind_of(line) == "end", line)))] if loose else []
    return first + sorted(whole, key=lambda run: (str(json.loads(run[0]).get("time") or ""), run))


def begins(run: Block, other: Block) -> bool:
    """Whether `run`, some trials at least, is an earlier state of `other`."""
    return 1 < len(run) < len(other) and other[: len(run)] == run


def merge(paths: Iterable[str | Path], target: str | Path, damaged: bool = False) -> tuple[list[Block], list[str]]:
    """Writes the runs of results files to `target`. Returns them, and in words what is left out of damaged files and
    which damaged fields are carried along as they are.

    Raises ValueError for damaged input unless `damaged` lets its readable lines be taken, for a target that holds
    anything which these files do not, for one that a run still writes, and where it cannot be written.
    """
    paths, target = list(paths), Path(target)
    for path in paths:
        if keep.same(path, target):
            raise ValueError(f"merge {target} would overwrite {path}, from which it is made")
    shards = [shard(path) for path in paths]
    wrong = [words for one in shards for words in (*one.wrong, *one.odd)]
    if wrong and not damaged:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(f"{wrong[0]}{more}; --damaged takes what can be read")
    runs = merged(shards)
    if not runs:
        raise ValueError("nothing to merge: no file holds a record")
    put(target, runs)
    odd = {words for one in shards for words in one.odd}
    return runs, [f"{'kept as it is' if words in odd else 'left out'}: {words}" for words in wrong]


def put(target: Path, runs: list[Block]) -> None:
    """Writes runs at once, where nothing is or nothing but runs of these."""
    try:
        if target.is_dir():
            raise ValueError(f"merge {target} cannot be written: Is a directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        with held(target):
            if target.is_file():
                check_same_runs(target, runs)
            keep.write_whole(target, "".join(f"{line.decode()}\n" for run in runs for line in run))
    except OSError as error:
        raise ValueError(f"merge {target} cannot be written: {error.strerror or error}") from error


@contextmanager
def held(target: Path) -> Iterator[None]:
    """Holds the lock of a results file that is there, so that no run begins to write what is about to be replaced.
    Raises ValueError while one does."""
    if not target.is_file():
        yield
        return
    with open(target, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"merge {target} is a results file that a run still writes") from None
        yield


def check_same_runs(target: Path, runs: list[Block]) -> None:
    """Raises ValueError when a file holds what these runs do not."""
    there = shard(target)
    lines = {line for run in runs for line in run}
    known = all(run in runs or any(begins(run, other) for other in runs) for run in there.runs)
    if target.stat().st_size and (there.wrong or not known or not lines.issuperset(there.loose)):
        raise ValueError(f"{target} is there already and holds what these files do not: name another target, or "
                         "merge it too")


def told(runs: list[Block], files: int, target: str) -> Iterator[str]:
    """What was made, in lines."""
    headed = [run for run in runs if kind_of(run[0]) == "run"]
    ended = [run for run in runs if kind_of(run[-1]) == "end"]
    for run in headed:
        if run not in ended:
            yield f"# a run of {json.loads(run[0]).get('time')} has no end: it was cut, or goes on"
    loose = [line for run in runs if run not in headed for line in run]
    trials = sum(map(len, headed)) - len(headed) - sum(run in headed for run in ended)
    trials += sum(kind_of(line) == "trial" for line in loose)
    counts = f"{view.some(trials, 'trial')}, {view.some(len(headed), 'run')} of {view.some(files, 'file')}"
    yield f"# {counts}: {visible.line(target)}"


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0, or 2 with one line on stderr."""
    parser = argparse.ArgumentParser(
        prog="ringcheck merge",
        description="Results files of several nodes as one: every run and trial once, by time, whatever the order.")
    parser.add_argument("results", nargs="+", metavar="FILE.jsonl")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.jsonl")
    parser.add_argument("--damaged", action="store_true",
                        help="takes the lines of damaged files that say which trial they are of, and names what is "
                             "left out")
    options = parser.parse_args(arguments)
    try:
        runs, wrong = merge(options.results, options.output, options.damaged)
    except ValueError as error:
        print(f"ringcheck merge: {visible.line(error)}", file=sys.stderr)
        return 2
    for words in wrong:
        print(f"ringcheck merge: {visible.line(words)}", file=sys.stderr)
    print("\n".join(told(runs, len(options.results), options.output)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
