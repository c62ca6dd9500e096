"""Real documents packed into rows: group `real`.

data/real_documents.json holds token counts (o200k byte-pair encoding) of public files in random order: Python files,
Markdown and reStructuredText files, and documents with images, whose tokens a Gemma-4-style processor counts.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from cases import runs
from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.runs import Runs

DATA = Path(__file__).parent / "data" / "real_documents.json"
KINDS = ("code", "prose", "image_text")


@cache
def documents(kind: str) -> tuple[Runs, ...]:
    """The documents of a kind as (token type, length) runs: 0 text, 1 image."""
    loaded = json.loads(DATA.read_text())[kind]
    if kind == "image_text":
        return tuple(tuple((int(what == "image"), length) for what, length in one) for one in loaded)
    return tuple(((0, length),) for length in loaded)


def pack(kind: str, tokens: int, batch: int = 1) -> tuple[list[list[int]], list[Runs]]:
    """The first documents of a kind in `batch` rows of `tokens`: document lengths and token types of each row.

    A document that does not fit is split at the row's end, and each piece counts as a document. Raises ValueError
    when the kind has too few tokens.
    """
    lengths, types = [[]], [[]]
    left = tokens
    for document in documents(kind):
        fresh = True
        for value, length in document:
            while length:
                if not left:
                    if len(lengths) == batch:
                        return lengths, [runs.merged(row) for row in types]
                    lengths.append([])
                    types.append([])
                    left, fresh = tokens, True
                piece = min(left, length)
                if fresh:
                    lengths[-1].append(0)
                lengths[-1][-1] += piece
                types[-1].append((value, piece))
                left, length, fresh = left - piece, length - piece, False
    if left or len(lengths) < batch:
        raise ValueError(f"{kind} documents do not fill {batch} rows of {tokens} tokens")
    return lengths, [runs.merged(row) for row in types]


def _scenario(kind: str, name: str, tokens: int, batch: int = 1, window: int | None = None, **options) -> Scenario:
    lengths, types = pack(kind, tokens, batch)
    images = kind == "image_text"
    rules = [Causal(), Documents.packed(*lengths)] + [Vision(tuple(types))] * images
    rules += [Window(window)] if window else []
    shape = Shape(batch, tokens, heads=4, kv_heads=2, head_dim=64 if images else 32)
    requirements = " ".join(sorted({rule.requirement for rule in rules}))
    return Scenario(f"real/{name}", requirements, Mask(tuple(rules)), shape, measured=True, **options)


def _slice(kind: str, name: str, tokens: int, requirements: str, window: int | None = None) -> Scenario:
    """The head of the row of 8k; it may show fewer rules than the row, so its requirements are given."""
    whole = _scenario(kind, name, 8192, window=window, note=f"{kind} documents of a row of 8k")
    return replace(whole.resized(tokens), requirements=requirements)


CASES = (
    _slice("code", "code", 512, "A1 A3"),
    _slice("prose", "prose", 768, "A1 A3"),
    _slice("image_text", "images", 768, "A1 A2 A5", window=128),
    _scenario("code", "code-4k", 4096, tier="asked"),
    _scenario("code", "code-8k", 8192, tier="asked"),
    _scenario("code", "code-32k", 32768, tier="named"),
    _scenario("prose", "prose-4k", 4096, batch=2, tier="asked"),
    _scenario("prose", "prose-8k", 8192, tier="asked"),
    _scenario("prose", "prose-32k", 32768, tier="named"),
    _scenario("image_text", "images-4k", 4096, window=1024, tier="asked"),
    _scenario("image_text", "images-8k", 8192, window=1024, tier="asked"),
    _scenario("image_text", "images-32k", 32768, window=1024, tier="named"),
)
