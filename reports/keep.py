"""Nothing recorded is lost: what stands where a file is to be written is put aside or refused."""

import codecs
import json
import os
import re
import tempfile
from collections.abc import Iterable
from itertools import count
from pathlib import Path

KINDS = ("run", "trial", "end")
PAGE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.I | re.S)
HEAD = 1 << 12


def put_aside(path: Path) -> Path:
    """Renames x.jsonl to the first free one of x.1.jsonl, x.2.jsonl, ... and returns that name."""
    free = next(name for number in count(1) if not os.path.lexists(name := numbered(path, number)))
    return path.rename(free)


def numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def holds_results(path: Path) -> bool:
    """Whether some line of a file is a record, or the beginning of a run's first line that was cut."""
    with open(path, "rb") as file:
        return any(_recorded(line) for line in file)


def check_page(target: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raises ValueError when a page at `target` could not be written, or would take the place of one of `inputs` or
    of anything that is no page."""
    target = Path(target)
    try:
        for given in inputs:
            if same(target, given):
                raise ValueError(f"report {target} would overwrite {given}, from which it is made")
        if target.is_dir():
            raise ValueError(f"report {target} cannot be written: Is a directory")
        if target.is_file() and not _replaceable(target):
            raise ValueError(f"report {target} would overwrite a file that is no HTML page")
        if target.is_file() and not os.access(target, os.W_OK):
            raise ValueError(f"report {target} cannot be written: Permission denied")
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_file() or not target.exists():
            tempfile.TemporaryFile(dir=target.parent).close()
    except OSError as error:
        raise ValueError(f"report {target} cannot be written: {error.strerror or error}") from error


def write_whole(target: Path, text: str) -> None:
    """Writes a file at once, so that a full disk leaves the one that was there. Raises OSError."""
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
    whole = target.resolve()
    part = whole.with_name(f".{whole.name[:200]}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)


def same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths name one file, be it there or not."""
    one, other = os.fspath(one), os.fspath(other)
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _recorded(line: bytes) -> bool:
    line = line.removeprefix(codecs.BOM_UTF8)
    if line.startswith(b'{"kind":"run",'):
        return True
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("kind") in KINDS


def _replaceable(target: Path) -> bool:
    with open(target, "rb") as file:
        head = file.read(HEAD)
    return not head.strip() or PAGE.match(head) is not None
