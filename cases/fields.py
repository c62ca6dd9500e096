"""Fields of a captured batch: from what a trainer holds (ids, cu_seqlens, masks) to runs and spans, with checks."""

import math
import reprlib
from itertools import pairwise

from cases import runs
from cases.runs import Runs

MOST = 2**31 - 1
WORDS = reprlib.Repr()
WORDS.maxlevel, WORDS.maxstring, WORDS.maxother = 4, 60, 60
PAIRS = ("documents", "token_types", "padding")


class BadField(ValueError):
    """A field of a captured batch that cannot be used; the text is "FIELD: what is wrong"."""

    def __init__(self, field: str, problem: str):
        super().__init__(f"{field}: {problem}")


def shown(value) -> str:
    """A value as one line that is never long, however large or deep the value is."""
    try:
        return WORDS.repr(value).replace("\n", " ")
    except ValueError:
        return f"{type(value).__name__} of very many digits"


def shown_name(name: str) -> str:
    """A field's name as it is, or quoted when it is no plain word."""
    return name if name.isidentifier() and len(name) < WORDS.maxstring else shown(name)


def plain(value):
    """Tensors and arrays as nested lists, anything else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def size(line: dict, field: str, default: int | None) -> int | None:
    value = line.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadField(field, f"must be a whole number of at least 1, got {shown(value)}")
    if value > MOST:
        raise BadField(field, f"must be at most {MOST}, got {shown(value)}")
    return value


def number(line: dict, field: str) -> float | None:
    value = line.get(field)
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise BadField(field, f"must be a finite number, got {shown(value)}")


def sentence(line: dict, field: str) -> str | None:
    value = line.get(field)
    if value is not None and (not isinstance(value, str) or value.splitlines() not in ([], [value])):
        raise BadField(field, f"must be a sentence on one line, got {shown(value)}")
    return value


def only_one(line: dict, names: tuple[str, ...]) -> str | None:
    given = [name for name in names if name in line]
    if len(given) > 1:
        raise BadField(given[1], f"says the same as {given[0]}; give one of them")
    return given[0] if given else None


def whole_rows(field: str, value, depth: int) -> list:
    """`value` as a list of batch rows, each `depth` - 1 lists of integers deep; one row may stand without its list."""
    if not isinstance(value, list):
        raise BadField(field, f"must be a list, got {type(value).__name__}")
    if _depth(value) == depth - 1:
        value = [value]
    for row_number, row in enumerate(value):
        _check_integers(f"{field}[{row_number}]", field, row, depth - 1)
    return value


def extent(field: str, value) -> tuple[int, int]:
    """(batch rows, tokens) that a field shows; 0 tokens where it does not say (padding spans)."""
    rows = whole_rows(field, value, 3 if field in PAIRS else 2)
    if not rows:
        raise BadField(field, "is empty")
    if field in ("documents", "token_types"):
        return len(rows), max(sum(length for _, length in row) for row in rows)
    if field == "document_lengths":
        return len(rows), max(map(sum, rows))
    if field == "cu_seqlens":
        return len(rows), max((row[-1] for row in rows if row), default=0)
    return len(rows), 0 if field == "padding" else max(map(len, rows))


def documents(field: str, value, batch: int, tokens: int) -> tuple[Runs, ...]:
    """Any of the five descriptions as (id, length) runs a row; what no document covers is padding, id 0."""
    if field in ("documents", "document_ids"):
        return runs_of(field, value, batch, tokens)
    rows = whole_rows(field, value, 2)
    _check_rows(field, rows, batch)
    lengths = {"document_lengths": lambda row: row, "cu_seqlens": _from_cu_seqlens,
               "position_ids": lambda row: _from_position_ids(row, tokens)}[field]
    found = []
    for row in rows:
        own = lengths(row)
        rest = tokens - sum(own)
        if min(own, default=0) < 0 or rest < 0:
            raise BadField(field, f"documents of {sum(own)} tokens do not fit a row of {tokens}"
                           if rest < 0 else f"a document has a negative length ({min(own)})")
        found.append(tuple(enumerate(own, 1)) + (((0, rest),) if rest else ()))
    return tuple(found)


def padding(field: str, value, batch: int, tokens: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Spans a row, from spans or from an attention mask (1 for a real token, 0 for padding)."""
    if field == "padding":
        rows = whole_rows(field, value, 3)
        _check_rows(field, rows, batch)
        for start, end in (span for row in rows for span in row):
            if not 0 <= start <= end <= tokens:
                raise BadField(field, f"span {start}..{end} is outside 0..{tokens}")
        return runs.frozen(rows)
    masks = runs_of(field, value, batch, tokens)
    check_values(field, masks, (0, 1))
    found = []
    for row in masks:
        ends = [0]
        for _, length in row:
            ends.append(ends[-1] + length)
        found.append(tuple(edge for (kept, _), edge in zip(row, pairwise(ends)) if not kept))
    return tuple(found)


def runs_of(field: str, value, batch: int, tokens: int) -> tuple[Runs, ...]:
    """(value, length) runs a row, given as such ("documents", "token_types") or one value a token."""
    written = field in ("documents", "token_types")
    rows = whole_rows(field, value, 3 if written else 2)
    _check_rows(field, rows, batch)
    found = tuple(runs.frozen(row) if written else runs.of(row) for row in rows)
    for row_number, row in enumerate(found):
        if min((length for _, length in row), default=0) < 0:
            raise BadField(field, f"row {row_number} has a run of negative length")
        if (total := sum(length for _, length in row)) != tokens:
            raise BadField(field, f"row {row_number} has {total} tokens, not {tokens}")
    return found


def check_values(field: str, rows: tuple[Runs, ...], known: tuple[int, ...]) -> None:
    for value in (value for row in rows for value, _ in row):
        if value not in known:
            raise BadField(field, f"must hold {', '.join(map(str, known))}, got {value}")


def compact(line: dict) -> dict:
    """One value a token becomes runs, so that a line of the file stays short."""
    shorter = {"document_ids": "documents", "token_type_ids": "token_types"}
    found = {}
    for field, value in line.items():
        if field in shorter:
            found[shorter[field]] = [list(map(list, runs.of(row))) for row in whole_rows(field, value, 2)]
        elif field == "attention_mask":
            rows = _truths(field, value)
            found["tokens"] = line.get("tokens", len(rows[0]))
            found["padding"] = [list(map(list, row)) for row in padding(field, rows, len(rows), len(rows[0]))]
        else:
            found[field] = value
    return found


def _truths(field: str, value) -> list[list[int]]:
    """Rows of an attention mask of integers, truths or floats as rows of 0 and 1."""
    if not isinstance(value, list):
        raise BadField(field, f"must be a list, got {type(value).__name__}")
    if not value:
        raise BadField(field, "is empty")
    rows = value if isinstance(value[0], list) else [value]
    for row in rows:
        wrong = [kept for kept in row if kept not in (0, 1)] if isinstance(row, list) else [row]
        if wrong:
            raise BadField(field, f"must hold 0, 1, got {shown(wrong[0])}")
    return [list(map(int, row)) for row in rows]


def _from_cu_seqlens(row: list[int]) -> list[int]:
    if row[:1] != [0] or any(one > other for one, other in pairwise(row)):
        raise BadField("cu_seqlens", "must begin with 0 and never fall")
    return [other - one for one, other in pairwise(row)]


def _from_position_ids(row: list[int], tokens: int) -> list[int]:
    """A document begins wherever a position does not follow the one before it."""
    if len(row) != tokens:
        raise BadField("position_ids", f"a row has {len(row)} tokens, not {tokens}")
    starts = [0] + [place for place in range(1, tokens) if row[place] != row[place - 1] + 1] + [tokens]
    return [other - one for one, other in pairwise(starts)]


def _check_rows(field: str, rows: list, batch: int) -> None:
    if len(rows) != batch:
        raise BadField(field, f"describes {len(rows)} rows, the batch has {batch}")


def _check_integers(place: str, field: str, value, depth: int) -> None:
    if depth == 0:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadField(field, f"{place} must be a whole number, got {shown(value)}")
        if not -2**63 <= value < 2**63:
            raise BadField(field, f"{place} must be a whole number of 64 bits, got {shown(value)}")
        return
    pair = depth == 1 and field in PAIRS
    if not isinstance(value, list) or pair and len(value) != 2:
        raise BadField(field, f"{place} must be a {'pair' if pair else 'list'} of whole numbers, got {shown(value)}")
    for index, item in enumerate(value):
        _check_integers(f"{place}[{index}]", field, item, depth - 1)


def _depth(value) -> int:
    """How many lists deep the first element stands; an empty list counts as one."""
    depth = 0
    while isinstance(value, list):
        depth, value = depth + 1, value[0] if value else None
    return depth
