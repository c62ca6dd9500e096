"""What DESIGN's contract asks of an implementation beside right numbers: layouts, shapes, dtypes, untouched inputs."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Implementation
from harness.inputs import DTYPES, Numbers

BLOCK = 64
PLAIN = torch.Tensor, torch.nn.Parameter
METADATA = ("documents", "padding", "token_types", "token_regions", "selected")


@dataclass(frozen=True)
class Breach:
    """A broken promise: the SPEC id it breaks, what was promised and what came, and the rank where it showed. A light
    one is named only where nothing else is wrong."""

    requirement: str
    headline: str
    expected: str
    actual: str
    rank: int | None = None
    level: str = "required"
    light: bool = False


def positions_of(layout: list[Tensor], batch: int) -> list[Tensor]:
    """Every rank's positions as `[batch, L]`."""
    return [part.expand(batch, -1) if part.dim() == 1 else part for part in layout]


def layout_breach(layout: list[Tensor], case: Case, world: int, implementation: Implementation) -> Breach | None:
    """A layout holds each position exactly once, over all ranks, and no rank holds much more than its share."""
    batch, tokens = case.shape.batch, case.shape.tokens
    wanted = f"{world} int64 tensors [L] or [{batch}, L]"
    if len(layout) != world or any(not _is_index(part, batch) for part in layout):
        shapes = ", ".join(f"{tuple(part.shape)} {part.dtype}" for part in layout)
        return Breach("D1", "the layout does not have the shape that the contract asks for", wanted, shapes)
    together = torch.cat(positions_of(layout, batch), 1)
    real = together.masked_fill(together < 0, tokens)
    if bool((together < -1).any()) or bool((together >= tokens).any()):
        return Breach("D1", "the layout names positions outside the row", f"-1..{tokens - 1}",
                      f"{int(together.min())}..{int(together.max())}")
    for row, held in enumerate(real):
        times = torch.bincount(held, minlength=tokens + 1)[:tokens]
        if bool((times != 1).any()):
            position = int((times != 1).nonzero()[0])
            return Breach("D1", "the layout does not hold every position exactly once", "each position once",
                          f"position {position} of row {row} is held {int(times[position])} times")
    return _uneven(layout, tokens, world, implementation)


def _uneven(layout: list[Tensor], tokens: int, world: int, implementation: Implementation) -> Breach | None:
    most = max(range(world), key=lambda rank: layout[rank].shape[-1])
    share, held = -(-tokens // world), layout[most].shape[-1]
    if held <= share + 2 * BLOCK or implementation.uneven:
        return None
    allowed = f"at most {share} + {2 * BLOCK}"
    return Breach("D1", f"rank {most} holds more than its share of tokens", allowed, str(held), most)


def layout_digest(layout: list[Tensor]) -> str:
    """Equal on ranks that computed the same layout."""
    digest = hashlib.sha256()
    for part in layout:
        digest.update(repr(tuple(part.shape)).encode() + part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def forward_breaches(out: object, lse: object, local: Numbers, case: Case, rank: int) -> list[Breach]:
    """Type, shape and dtype of what a step returned."""
    batch, heads, length, _ = local.q.shape
    lse_dtype = torch.float64 if case.dtype == "fp64" else torch.float32
    device, width = local.q.device, case.shape.v_dim
    found = [_unlike("out", out, (batch, heads, length, width), DTYPES[case.dtype], device, "B1", "B6", rank)]
    if lse is not None:
        found.append(_unlike("lse", lse, (batch, heads, length), lse_dtype, device, "B2", "B2", rank))
    return [breach for breach in found if breach] or shared("out", out, local, rank)


def gradient_breaches(grads: dict[str, Tensor], wanted: dict[str, Tensor], rank: int) -> list[Breach]:
    """Shape and dtype of gradients, by the name of what they belong to."""
    found = [_unlike(f"d{name}", grads[name], tuple(x.shape), x.dtype, x.device, "B4", "B6", rank)
             for name, x in wanted.items()]
    return [breach for breach in found if breach]


def unfinished(results: dict[str, Tensor], positions: Tensor, rank: int) -> list[Breach]:
    """Filler slots hold numbers: a NaN there spreads to every weight of a model in its next product. positions
    `[B, L]`, results `[B, H, L, D]`."""
    filler = (positions < 0)[:, None, :, None]
    if not bool(filler.any()):
        return []
    bad = [name for name, x in results.items() if bool((~x.isfinite() & filler.to(x.device)).any())]
    return [Breach("B3", f"{name} of a filler slot is not finite on rank {rank}", "a number", "NaN or infinity", rank)
            for name in bad]


def shared(name: str, x: Tensor, local: Numbers, rank: int) -> list[Breach]:
    """Results have memory of their own: whoever writes to them would modify an input."""
    given = zip(("q", "k", "v", "dout"), local.tensors(), strict=True)
    whose = [other for other, y in given if x.numel() and x.data_ptr() and _memory(x) == _memory(y)]
    return [Breach("B7", f"{name} shares memory with {other} on rank {rank}", "its own", f"that of {other}", rank)
            for other in whose]


def unasked(local: Numbers, wanted: Iterable[str], filled: Iterable[str], rank: int) -> list[Breach]:
    """requires_grad stays as it was given, and `.grad` is set only by the backward that the harness runs (`filled`)."""
    found = []
    for name, x in zip(("q", "k", "v", "dout"), local.tensors(), strict=True):
        if x.requires_grad != (name in wanted):
            found.append(Breach("B8", f"{name}.requires_grad was changed on rank {rank}", str(name in wanted),
                                str(x.requires_grad), rank))
        elif x.grad is not None and name not in filled:
            found.append(Breach("B8", f"{name}.grad was filled on rank {rank}, which nobody asked for", "None",
                                "a tensor", rank))
    return found


def _memory(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


def _unlike(name: str, x: object, shape: tuple, dtype: torch.dtype, device: torch.device, shape_id: str, dtype_id: str,
            rank: int) -> Breach | None:
    whose = f"{name} of rank {rank}"
    if not isinstance(x, Tensor) or type(x) not in PLAIN:
        plain = "plain " * isinstance(x, Tensor)
        return Breach(shape_id, f"{whose} is no {plain}tensor", f"a tensor {list(shape)}", type(x).__name__, rank)
    if x.layout != torch.strided or x.device != device:
        return Breach(shape_id, f"{whose} is not a dense tensor on {device}", f"torch.strided on {device}",
                      f"{x.layout} on {x.device}", rank)
    if tuple(x.shape) != shape:
        return Breach(shape_id, f"{whose} has the wrong shape", str(list(shape)), str(list(x.shape)), rank)
    if x.dtype != dtype:
        return Breach(dtype_id, f"{whose} has the wrong dtype", str(dtype), str(x.dtype), rank)
    return None


def copied(rows: Rows) -> Rows:
    """Metadata in storage of its own, for an implementation to be given."""
    copies = {name: tensor.clone() for name, tensor in metadata(rows).items()}
    return rows.with_metadata(**copies)


def metadata(rows: Rows) -> dict[str, Tensor]:
    """The tensors of a batch's metadata, by name."""
    own = {name: getattr(rows, name) for name in METADATA if getattr(rows, name) is not None}
    return own | {name: value for name, value in (rows.extra or {}).items() if isinstance(value, Tensor)}


def refill(rows: Rows) -> None:
    """Overwrites a batch's metadata in place, as a data loader that recycles its buffers does (SPEC D3)."""
    for tensor in metadata(rows).values():
        tensor.logical_not_() if tensor.dtype == torch.bool else tensor.zero_()


def _is_index(part: object, batch: int) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.int64 and (part.dim() == 1 or part.shape[:-1] == (batch,))
