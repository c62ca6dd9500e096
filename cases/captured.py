"""Batches captured from a trainer: JSON lines, one batch a line. The format is documented in docs/captured.md."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cases import fields
from cases.case import Scenario, Shape
from cases.fields import BadField
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.vision import Vision
from cases.rules.window import Window

DOCUMENTS = ("documents", "document_ids", "document_lengths", "cu_seqlens", "position_ids")
PADS = ("padding", "attention_mask")
TYPES = ("token_types", "token_type_ids")
SIZES = {"batch": 1, "tokens": None, "heads": 4, "kv_heads": None, "head_dim": 32, "value_dim": None, "window": None}
OTHERS = ("name", "note", "causal", "scale", "variants")


def read(path: str | Path) -> list[Scenario]:
    """The batches of a captured file as scenarios "captured/NAME", in order; blank lines are skipped.

    Raises ValueError "FILE:LINE: FIELD: what is wrong" for the first bad line, and for a file without a batch.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from error
    found: list[Scenario] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            found.append(_read_line(line, f"{path}:{number}", f"{path.stem}-{number}", {one.name for one in found}))
    if not found:
        raise ValueError(f"{path}: no captured batch in it")
    return found


def record(path: str | Path, *, rank: int | None = None, **batch) -> bool:
    """Appends one batch to a captured file; call it in a training loop, on every rank.

    Fields are those of the file (docs/captured.md), as lists, numbers or tensors of any device; tensors and lists
    describe whole rows, not shards. Only rank 0 writes: `rank`, or the rank in torch.distributed when it is up.
    Returns whether this rank wrote. Raises ValueError "FIELD: what is wrong" before anything is written.
    """
    if (_rank() if rank is None else rank) != 0:
        return False
    line = {name: fields.plain(value) for name, value in batch.items() if value is not None}
    line = fields.compact(line)
    try:
        scenario(line, "batch")
    except BadField as error:
        raise ValueError(str(error)) from error
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")
    return True


def sliced(scenario: Scenario, tokens: int) -> Scenario:
    """The leading `tokens` of a measured scenario, its own when it has no more; the note says so."""
    return scenario.resized(min(tokens, scenario.shape.tokens))


def scenario(line: dict, default_name: str) -> Scenario:
    """The scenario of one parsed line. Raises BadField."""
    known = (*DOCUMENTS, *PADS, *TYPES, *SIZES, *OTHERS)
    for name in line:
        if name not in known:
            raise BadField(name, f"no such field; fields are {', '.join(known)}")
    if not isinstance(line.get("causal", True), bool):
        raise BadField("causal", f"must be true or false, got {line['causal']!r}")
    grid = _grid(line)
    rules = _rules(line, grid)
    shape = _shape(line, grid)
    mask = _pinned(Mask(tuple(rules)), line.get("variants", []))
    name = line.get("name", default_name)
    if not isinstance(name, str) or not name or set(name) & set("/,*? '\"[]{}"):
        raise BadField("name", f"must be a word without / , * ? or quotes, got {name!r}")
    requirements = " ".join(sorted({rule.requirement for rule in rules}))
    return Scenario(f"captured/{name}", requirements, mask, shape, fields.number(line, "scale"),
                    note=str(line.get("note", "captured batch")), measured=True)


@dataclass(frozen=True)
class Grid:
    """Batch rows and tokens a row."""

    batch: int
    tokens: int


def _grid(line: dict) -> Grid:
    """Sizes as given, else as the first metadata field shows them."""
    batch, tokens = fields.size(line, "batch", 0), fields.size(line, "tokens", 0)
    described = [name for name in (*DOCUMENTS, *PADS, *TYPES) if name in line]
    for name in described:
        rows, length = fields.extent(name, line[name])
        batch, tokens = batch or rows, tokens or length
    if not tokens:
        raise BadField("tokens", "is missing, and no field shows how many there are")
    return Grid(batch or 1, tokens)


def _rules(line: dict, grid: Grid) -> list:
    rules = [Causal()] if line.get("causal", True) else []
    window = fields.size(line, "window", 0)
    if window:
        rules.append(Window(window))
    given = fields.only_one(line, DOCUMENTS)
    if given:
        rules.append(Documents(fields.documents(given, line[given], grid.batch, grid.tokens)))
    given = fields.only_one(line, PADS)
    if given:
        rules.append(Padding(fields.padding(given, line[given], grid.batch, grid.tokens)))
    given = fields.only_one(line, TYPES)
    if given:
        types = fields.runs_of(given, line[given], grid.batch, grid.tokens)
        fields.check_values(given, types, (0, 1, 2))
        rules.append(Vision(types))
    return rules


def _shape(line: dict, grid: Grid) -> Shape:
    heads = fields.size(line, "heads", SIZES["heads"])
    kv_heads = fields.size(line, "kv_heads", heads)
    if heads % kv_heads:
        raise BadField("kv_heads", f"{kv_heads} does not divide heads {heads}")
    return Shape(grid.batch, grid.tokens, heads, kv_heads, fields.size(line, "head_dim", SIZES["head_dim"]),
                 fields.size(line, "value_dim", None))


def _pinned(mask: Mask, variants: Sequence[str]) -> Mask:
    """The mask with the variants that the trainer's model follows ("vision.bounded") pinned."""
    known = [f"{rule.name}.{variant}" for rule in mask.rules for variant in rule.variants]
    if not isinstance(variants, list):
        raise BadField("variants", f"must be a list of names, got {variants!r}")
    for variant in variants:
        if variant not in known:
            raise BadField("variants", f"{variant!r} is no variant of this batch's rules: {', '.join(known) or 'none'}")
    return mask.under(frozenset(variants))


def _read_line(line: str, place: str, name: str, taken: set[str]) -> Scenario:
    try:
        parsed = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{place}: not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(parsed, dict):
        raise ValueError(f"{place}: a line must be a JSON object, got {type(parsed).__name__}")
    try:
        made = scenario(parsed, name)
    except BadField as error:
        raise ValueError(f"{place}: {error}") from error
    if made.name in taken:
        raise ValueError(f"{place}: name: {parsed.get('name', name)!r} stands on an earlier line too")
    return made


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
