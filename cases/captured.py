"""Batches captured from a trainer: JSON lines, one batch a line. The format is documented in docs/captured.md."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cases import fields, json_lines
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
WORD = re.compile(r"""[^\s/,*?'"\[\]{}]{1,100}""")
OTHERS = ("name", "note", "causal", "scale", "variants")


def read(path: str | Path) -> list[Scenario]:
    """The batches of a captured file as scenarios "captured/NAME", in order; blank lines are skipped.

    Raises ValueError "FILE:LINE: FIELD: what is wrong" for the first bad line, and for a file without a batch.
    """
    path = Path(path)
    found: dict[str, Scenario] = {}
    for number, line in json_lines.lines(path):
        try:
            made = scenario(json_lines.parsed(line), _default_name(path, number))
            if made.name in found:
                raise BadField("name", f"{_word(made)!r} stands on an earlier line too")
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        found[made.name] = made
    if not found:
        raise ValueError(f"{path}: no captured batch in it")
    return list(found.values())


def record(path: str | Path, *, rank: int | None = None, **batch) -> bool:
    """Appends one batch to a captured file; call it in a training loop, on every rank.

    Fields are those of the file (docs/captured.md), as lists, numbers or tensors of any device; tensors and lists
    describe whole rows, not shards. Only rank 0 writes: `rank`, or the rank in torch.distributed when it is up.
    Returns whether this rank wrote. Raises ValueError "FIELD: what is wrong" before anything is written, also for a
    name that stands in the file already.
    """
    if (_rank() if rank is None else rank) != 0:
        return False
    line = {name: fields.plain(value) for name, value in batch.items() if value is not None}
    line = fields.compact(line)
    path = Path(path)
    earlier = path.read_bytes().decode("utf-8", "replace").split("\n") if path.exists() else [""]
    number = len(earlier) + bool(earlier[-1])
    name = _word(scenario(line, _default_name(path, number)))
    if any(_may_be(name, old, _default_name(path, at)) for at, old in enumerate(earlier, 1)):
        raise BadField("name", f"{name!r} stands in {path} already")
    json_lines.append(path, line)
    return True


def scenario(line: dict, default_name: str) -> Scenario:
    """The scenario of one parsed line. Raises BadField."""
    known = (*DOCUMENTS, *PADS, *TYPES, *SIZES, *OTHERS)
    for name in line:
        if name not in known:
            raise BadField(fields.shown_name(name), f"no such field; fields are {', '.join(known)}")
    if not isinstance(line.get("causal", True), bool):
        raise BadField("causal", f"must be true or false, got {fields.shown(line['causal'])}")
    grid = _grid(line)
    rules = _rules(line, grid)
    shape = _shape(line, grid)
    mask = _pinned(Mask(tuple(rules)), line.get("variants", []))
    name = line.get("name", default_name)
    if not isinstance(name, str) or not WORD.fullmatch(name) or not name.isprintable():
        raise BadField("name", "must be a word of at most 100 letters without / , * ? or quotes, got "
                               f"{fields.shown(name)}")
    requirements = " ".join(sorted({rule.requirement for rule in rules}))
    return Scenario(f"captured/{name}", requirements, mask, shape, fields.number(line, "scale"),
                    note=fields.sentence(line, "note") or "captured batch", measured=True)


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
        if length > fields.MOST:
            raise BadField(name, f"shows {length} tokens a row, at most {fields.MOST} are possible")
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
        raise BadField("variants", f"must be a list of names, got {fields.shown(variants)}")
    said: dict[str, str] = {}
    for variant in variants:
        if variant not in known:
            names = f"which have {', '.join(known)}" if known else "which have no variants"
            raise BadField("variants", f"{fields.shown(variant)} is no variant of this batch's rules, {names}")
        other = said.setdefault(variant.partition(".")[0], variant)
        if other != variant and "vision.none" not in (other, variant):
            raise BadField("variants", f"{other} and {variant} are two readings of one rule")
    return mask.under(frozenset(variants))


def _default_name(path: Path, number: int) -> str:
    """What an unnamed batch of a file is called: FILE-LINE, with a dash for whatever no name may hold."""
    stem = "".join(sign if WORD.fullmatch(sign) and sign.isprintable() else "-" for sign in path.stem)
    return f"{stem[-80:]}-{number}"


def _word(made: Scenario) -> str:
    return made.name.partition("/")[2]


def _may_be(name: str, line: str, default: str) -> bool:
    """Whether a line, perhaps not a good one, is called `name`."""
    if name not in line and json.dumps(name)[1:-1] not in line and name != default:
        return False
    try:
        return bool(line.strip()) and json_lines.parsed(line).get("name", default) == name
    except ValueError:
        return False


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
