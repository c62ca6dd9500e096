"""Results files: JSON lines written one flushed line at a time. `reports.reading` reads them back."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from reports import keep
from reports.non_finite import plain
from reports.reading import SCHEMA
from reports.reading import Damage as Damage
from reports.reading import Results as Results
from reports.reading import Run as Run
from reports.reading import read as read
from reports.reading import read_all as read_all


class Unwritable(ValueError):
    """One line about a results file that cannot be written, or no further."""


class Writer:
    """Writes a results file, alone. Every call puts one complete line on disk before it returns, or none of it.

    Without `append`, results that are there already are put aside first; `aside` is their new name. Non-finite floats
    become the strings "inf", "-inf" and "nan", so that an infinite ratio stays apart from null (not compared).
    Raises Unwritable, also for a file of something else and while another run writes the file.
    """

    def __init__(self, path: str | Path, append: bool = False):
        self.path, self.aside = Path(path), None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
            self.regular = self.path.is_file()
            if self.regular and self.path.stat().st_size:
                self._take_over(append)
        except OSError as error:
            raise self._unwritable(error) from error

    def run(self, record: dict[str, Any]) -> None:
        """The header: argv, settings, environment."""
        self._line("run", record)

    def trial(self, record: dict[str, Any]) -> None:
        """One trial, in the schema of docs/design.md."""
        self._line("trial", record)

    def end(self, record: dict[str, Any]) -> None:
        """Counts, seconds and the exit code of a run that was not cut."""
        self._line("end", record)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _opened(self) -> BinaryIO:
        file = open(self.path, "ab", buffering=0)
        try:
            if self.path.is_file():
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise Unwritable(f"results file {self.path} is being written by another run") from error
        return file

    def _take_over(self, append: bool) -> None:
        """Begins behind, or in the place of, a file that holds something."""
        if not keep.holds_results(self.path):
            self.close()
            raise Unwritable(f"{self.path} is there already and is no results file of ringcheck; it is left as it is")
        if not append:
            self.aside = keep.put_aside(self.path)
            self.close()
            self._file = self._opened()
        else:
            self._mend_end()

    def _mend_end(self) -> None:
        """A last line without an end gets one; what a cut left of a line is no record and goes."""
        *_, last = self.path.read_bytes().split(b"\n")
        try:
            json.loads(last or b"0")
        except ValueError:
            self._file.truncate(self.path.stat().st_size - len(last))
            return
        if last:
            self._put(b"\n")

    def _line(self, kind: str, record: dict[str, Any]) -> None:
        stamped = {
            "kind": kind,
            "schema": SCHEMA,
            **{key: record[key] for key in record if key not in ("kind", "schema")},
        }
        line = json.dumps(plain(stamped), allow_nan=False, separators=(",", ":"))
        start = self._file.seek(0, os.SEEK_END) if self.regular else 0
        try:
            self._put(line.encode() + b"\n")
        except OSError as error:
            if self.regular:
                self._file.truncate(start)
            raise self._unwritable(error) from error

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left):]

    def _unwritable(self, error: OSError) -> Unwritable:
        return Unwritable(f"results file {self.path} cannot be written: {error.strerror or error}")
