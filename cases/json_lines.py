"""Files of one JSON object a line: every fault of a line is one sentence."""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from cases.fields import BadField


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not blank; only a newline ends a line. Raises ValueError."""
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}:{number}: not UTF-8 at byte {error.start + 1}") from error
        if text.strip():
            yield number, text


def parsed(line: str) -> dict:
    """The object of one line. Raises ValueError, of a field that stands twice BadField."""
    try:
        found = json.loads(line, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    except BadField:
        raise
    except ValueError as error:
        raise ValueError(f"not JSON that can be read: {str(error).partition(';')[0]}") from error
    except RecursionError as error:
        raise ValueError("not JSON that can be read: it is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError(f"a line must be a JSON object, got {type(found).__name__}")
    return found


def append(path: Path, line: dict) -> None:
    """Writes one more line, behind whatever the file ends with."""
    text = json.dumps(line, separators=(",", ":")) + "\n"
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            text = text if file.read() == b"\n" else "\n" + text
        file.write(text.encode())


def _once(pairs: list[tuple[str, object]]) -> dict:
    found = {}
    for name, value in pairs:
        if name in found:
            raise BadField(name, "stands twice in this line")
        found[name] = value
    return found
