"""The results files of a folder as served pages: an index with counts, and a page a file that follows a run that goes
on."""

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from pathlib import Path
from urllib.parse import quote

from reports import build, view
from reports.record import Results, read
from reports.visible import line

REFRESH_S, SHARE = 5.0, 10
LOCKS = Path("/proc/locks")
FRESH_S = 300.0
STYLE = """:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%}td.n{text-align:right}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid GrayText;overflow-wrap:anywhere}"""
DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (f"default-src 'none'; style-src 'sha256-{DIGEST}'; base-uri 'none'; form-action 'none'; "
          "frame-ancestors 'none'")


@dataclass
class Made:
    """What was made of a state of a file, and how long that took."""

    state: tuple
    value: object
    seconds: float


class Folder:
    """The results files under one folder, by their path in it. Nothing else is ever opened."""

    def __init__(self, root: str | Path):
        self.root = Path(root).resolve()
        self._made: dict[tuple[str, str], Made] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Results files whose real place is in the folder, sorted."""
        found = [path for path in self.root.rglob("*.jsonl") if path.is_file() and self._inside(path)]
        return sorted(path.relative_to(self.root).as_posix() for path in found)

    def _inside(self, path: Path) -> bool:
        hidden = any(part.startswith(".") for part in path.relative_to(self.root).parts)
        return path.resolve().is_relative_to(self.root) and not hidden

    def index(self) -> str:
        """HTML of all files with their counts."""
        rows, going = [], False
        for name in self.names():
            try:
                results = self._kept(name, "counts", counted)
                running = running_of(self.root / name, results)
                rows.append(index_row(name, results, running))
                going = going or running
            except ValueError as error:
                rows.append(f"<tr><th scope=row>{escape(line(name))}</th><td colspan=7>{escape(line(error))}</td></tr>")
        return index_page(self.root.name, rows, REFRESH_S if going else None)

    def page(self, name: str) -> str:
        """HTML of one file. Raises KeyError for a name that is none of `names`, ValueError for one that is not
        readable."""
        if name not in self.names():
            raise KeyError(name)
        running = running_of(self.root / name, self._kept(name, "counts", counted))
        text, results = self._kept(name, "page", lambda path: self._built(path, name, running), running)
        return followed(text, results, max(REFRESH_S, SHARE * self.seconds(name))) if running else text

    def seconds(self, name: str) -> float:
        """How long the last page of a file took to make."""
        return self._made[name, "page"].seconds

    def _built(self, path: Path, name: str, running: bool) -> tuple[str, "Counted"]:
        """The page and the numbers of one state of a file, read once, so that both say the same."""
        results = read(path)
        results.path, results.running = name, running and results.runs[-1].end is None
        return build.page([results]), counted_of(results, path)

    def _kept(self, name: str, what: str, make: Callable, running: bool = False) -> object:
        """What `make` makes of a file, made again where the file or `running` is another."""
        path = self.root / name
        try:
            status = path.stat()
        except OSError as error:
            raise ValueError(f"{name} cannot be read: {error.strerror}") from error
        state = status.st_mtime_ns, status.st_size, status.st_ino, running
        with self._lock:
            if (name, what) not in self._made or self._made[name, what].state != state:
                started = time.perf_counter()
                self._made[name, what] = Made(state, make(path), time.perf_counter() - started)
            return self._made[name, what].value


@dataclass(frozen=True)
class Counted:
    """A file in numbers."""

    counts: dict[str, int]
    cuts: tuple[view.Cut, ...]
    time: str
    ended: bool
    left_out: str
    left_s: float | None = None


def counted(path: Path) -> Counted:
    return counted_of(read(path), path)


def counted_of(results: Results, path: Path) -> Counted:
    ended = results.runs[-1].end is not None
    return Counted(view.counts(view.latest([results])), tuple(view.cuts([results])),
                   str(results.header.get("time") or ""), ended, view.unread([results]), left_s(results, path))


def left_s(results: Results, path: Path) -> float | None:
    """Seconds that the last run still takes at its pace so far, from its start to when the file last grew; None where
    nothing is done yet or the file does not say how much was asked."""
    run, last = results.runs[-1], [cut for cut in view.cuts([results]) if not cut.ended][-1:]
    try:
        spent = path.stat().st_mtime - datetime.fromisoformat(str(run.header.get("time"))).timestamp()
    except (OSError, ValueError, OverflowError):
        return None
    done = len(run.trials) + run.lost
    if not last or not last[0].asked or not done or spent <= 0:
        return None
    return spent / done * max(last[0].asked - last[0].done, 0)


def running_of(path: Path, results: Counted) -> bool:
    """Whether a run still writes a file: one that has not ended and is locked, as its writer does. Where the system
    does not say which files are locked, one that changed within five minutes. No lock is taken to find out: a run that
    starts at that moment would be refused."""
    if results.ended:
        return False
    status = path.stat()
    try:
        locks = LOCKS.read_text()
    except OSError:
        return time.time() - status.st_mtime < FRESH_S
    return re.search(rf":{status.st_ino} ", locks) is not None


def index_row(name: str, results: Counted, running: bool) -> str:
    state = "; ".join(map(str, results.cuts)) or "whole"
    if running:
        state = progress(results)
    if results.left_out:
        state += f"; {results.left_out}"
    cells = "".join(f"<td class=n>{number}</td>" for number in results.counts.values())
    return (f'<tr><th scope=row><a href="/page/{quote(name)}">{escape(line(name))}</a></th>{cells}'
            f"<td>{escape(line(state))}</td><td>{escape(line(results.time, 40))}</td></tr>")


def progress(results: Counted) -> str:
    """How far a run that goes on is."""
    last = results.cuts[-1] if results.cuts else None
    told = str(replace(last, running=True)) if last else "goes on"
    return told if results.left_s is None else f"{told}, about {duration(results.left_s)} left at this pace"


def duration(seconds: float) -> str:
    """Seconds in words, as coarse as an estimate is."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def index_page(title: str, rows: list[str], refresh: float | None) -> str:
    again = f'<meta http-equiv="refresh" content="{refresh:.0f}">' if refresh else ""
    heads = "".join(f"<th scope=col>{head}</th>" for head in ("file", *view.VERDICTS, "state", "last run"))
    table = (f"<table><caption>Results files, trials by verdict</caption><thead><tr>{heads}</tr></thead>"
             f"<tbody>{''.join(rows)}</tbody></table>" if rows else "<p>No results file (*.jsonl) in this folder.</p>")
    return (f'<!doctype html><html lang=en><head><meta charset="utf-8">{again}<title>ringcheck: {escape(line(title))}'
            f"</title><style>{STYLE}</style></head><body><main><h1>{escape(line(title))}</h1>{table}</main></body></html>")


def followed(text: str, results: Counted, refresh: float) -> str:
    """A page that asks for itself again and says first how far its run is."""
    seconds = f"{refresh:.0f}"
    told = (f'<p role="status">The run {escape(progress(results))}. This page comes anew every {seconds} s. '
            '<a href="/">All results</a></p>')
    text = re.sub(r"<head>", f'<head><meta http-equiv="refresh" content="{seconds}">', text, count=1)
    return re.sub(r"<body[^>]*>", lambda found: found[0] + told, text, count=1)
