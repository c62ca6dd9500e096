"""Layouts beside each other: `python benchmarks/balance.py [WORLD ...]` prints what contiguous, zigzag and balanced ask
of 2, 4 and 8 ranks for packs of real documents. It computes on the CPU and moves nothing.

imbalance  most area of a rank over the mean; tokens of the longest rank
moved      MiB of keys and values that all ranks together, and the busiest one, receive in a forward of one layer
calls      bands that flash-attention kernels run (ringcp/segments.py) and hops with work, on the busiest rank
made       CPU seconds to make the layout, of a mask that nobody has looked at yet
"""

import sys
import time

from cases import real
from cases.mask import Mask as Rules
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.vision import Vision
from cases.rules.window import Window
from ringcp import Layout, Mask, balanced_layout, make_layout
from ringcp.balance import burden
from ringcp.balance.burden import geometry
from ringcp.plan import make_plan
from ringcp.segments import layers

KV_HEADS, HEAD_DIM, BYTES = 8, 128, 2
PACKS = (("code", 8192, None), ("prose", 8192, None), ("image_text", 8192, 1024), ("code", 32768, None),
         ("prose", 32768, None), ("image_text", 32768, 1024), ("code", 65536, None), ("prose", 65536, None),
         ("image_text", 65536, 1024), ("image_text", 65536, None), ("code", 131072, None), ("prose", 131072, None))
COLUMNS = ("pack", "ranks", "layout", "imbalance", "tokens", "moved MiB", "busiest", "bands", "hops", "CPU s")


def main(worlds: list[int]) -> None:
    print(f"# keys and values of {KV_HEADS} heads of {HEAD_DIM} in {BYTES} bytes")
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for kind, tokens, window in PACKS:
        mask = packed(kind, tokens, window)
        name = f"{kind.replace('_', '+')} {tokens // 1024}k" + (f", window {window}" if window else "")
        for world in worlds:
            for layout in ("contiguous", "zigzag", "balanced"):
                print(f"| {name} | {world} | {layout} | {' | '.join(row(mask, world, layout))} |", flush=True)


def packed(kind: str, tokens: int, window: int | None) -> Mask:
    lengths, types = real.pack(kind, tokens)
    rules = [Causal(), Documents.packed(*lengths)]
    rules += [Vision(tuple(types))] if kind == "image_text" else []
    rules += [Window(window)] if window else []
    rows = Rules(tuple(rules)).rows(1, tokens, 1)
    return Mask(tokens=tokens, window=window, documents=rows.documents, token_types=rows.token_types)


def row(mask: Mask, world: int, name: str) -> list[str]:
    geometry.cache_clear()
    begun = time.process_time()
    layout = balanced_layout(mask, world) if name == "balanced" else make_layout(name, mask.tokens, world)
    seconds = time.process_time() - begun
    found, (bands, hops) = burden(mask, layout.positions), calls(mask, layout)
    total, most = (keys * 2 * HEAD_DIM * KV_HEADS * BYTES / 2**20 for keys in (sum(found.keys), max(found.keys)))
    return [f"{found.imbalance:.3f}", str(max(found.tokens)), f"{total:.1f}", f"{most:.1f}", str(bands), str(hops),
            f"{seconds:.2f}"]


def calls(mask: Mask, layout: Layout) -> tuple[int, int]:
    """Bands and hops with work of the rank that has most of each."""
    bands, hops = [], []
    for rank in range(layout.world):
        works = [hop.work for hop in make_plan.__wrapped__(mask, layout, rank).hops if hop.work]
        every = [band for work in works for layer in layers(work.spans, work.keys) for band in layer]
        bands.append(sum(len(band.query) for band in every))
        hops.append(len(works))
    return max(bands), max(hops)


if __name__ == "__main__":
    main([int(given) for given in sys.argv[1:]] or [2, 4, 8])
