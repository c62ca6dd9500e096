"""The numbers of a case: drawn for the whole row, then laid out in memory as one rank is given them."""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cases.case import Case
from cases.mask import Mask
from cases.rows import Rows
from cases.work import dead_keys

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
HUGE = {"fp64": 1e15, "fp32": 1e15, "bf16": 1e15, "fp16": 1e4}
BESIDE = float("nan")
TAIL = 5
UNLIKE = {"q": "dense", "k": "transposed", "v": "unbind", "dout": "interleaved"}


@dataclass(frozen=True)
class Numbers:
    """q `[B, Hq, S, D]`, k `[B, Hkv, S, D]`, v `[B, Hkv, S, Dv]`, dout `[B, Hq, S, Dv]`: whole rows, or one rank's."""

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v, self.dout


def draw(case: Case, seed: int | None = None) -> Numbers:
    """Whole rows in the case's dtype. Drawn in fp64 from the case's name and seed alone, so that every world,
    layout and dtype of a scenario sees the same numbers."""
    shape, inputs, dtype = case.shape, case.inputs, DTYPES[case.dtype]
    seed = case.seed if seed is None else seed
    key = hashlib.sha256(f"{case.name} {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(key[:7], "little"))

    def normal(heads: int, tokens: int, dim: int) -> Tensor:
        return torch.randn(shape.batch, heads, tokens, dim, generator=generator, dtype=torch.float64)

    q = normal(shape.heads, shape.tokens, shape.head_dim) * inputs.spread
    kv_heads = 1 if inputs.strides == "expanded-keys" else shape.kv_heads
    k = normal(kv_heads, shape.tokens, shape.head_dim)
    v = normal(kv_heads, shape.tokens, shape.v_dim)
    heads, tokens = (1 if inputs.dout == kind else size
                     for kind, size in (("expanded-heads", shape.heads), ("expanded", shape.tokens)))
    dout = normal(heads, tokens, shape.v_dim)
    dout = torch.ones_like(dout) if inputs.dout in ("ones", "sum") else dout
    if inputs.dout == "prompt":
        dout[:, :, :shape.tokens // 2] = 0
    if inputs.outliers != 1:
        most = min(inputs.outliers, torch.finfo(dtype).max ** 0.3)  # dq grows with its 2.5th power
        for x, factor in ((k, most ** 0.5), (v, most), (dout, most)):
            x[:, :, 3::7] *= factor
    k, v = (x.to(dtype).expand(-1, shape.kv_heads, -1, -1) for x in (k, v))
    return Numbers(q.to(dtype), k, v, dout.to(dtype).expand(-1, shape.heads, shape.tokens, -1))


def poisoned(numbers: Numbers, case: Case, mask: Mask, rows: Rows) -> Numbers:
    """SPEC B5: q, k, v and dout of padded tokens and k, v of keys that nobody may see hold poison."""
    if case.inputs.poison is None:
        return numbers
    value = poison_value(case)
    padded = rows.padded[:, None, :, None]
    padded, unseen = (x.to(numbers.q.device) for x in (padded, padded | dead_keys(mask, rows)[..., None]))
    q, dout = (x.masked_fill(padded, value) for x in (numbers.q, numbers.dout))
    k, v = (x.masked_fill(unseen, value) for x in (numbers.k, numbers.v))
    return Numbers(q, k, v, dout)


def poison_value(case: Case) -> float:
    """What filler slots, padded tokens and unseen keys hold; 0 without poison."""
    return {None: 0.0, "huge": HUGE[case.dtype], "nan": math.nan, "inf": math.inf}[case.inputs.poison]


def shard(whole: Numbers, positions: Tensor, case: Case, device: str | torch.device = "cpu") -> Numbers:
    """One rank's part in the memory layout of `case.inputs`: positions `[B, L]`, -1 a filler slot (dout 0)."""
    fill = poison_value(case)
    q, k, v = _together([_part(name, getattr(whole, name), positions, fill, case, device) for name in "qkv"], case)
    one = whole.dout[0, 0, 0, 0]
    if case.inputs.dout == "sum" and bool((positions >= 0).all()) and bool((whole.dout == one).all()):
        return Numbers(q, k, v, one.to(device).clone().expand(*q.shape[:3], whole.dout.shape[3]))
    if _stands(whole.dout, 2) and bool((positions >= 0).all()):
        row = whole.dout[:, :, :1].clone().to(device)
        return Numbers(q, k, v, row.expand(-1, -1, positions.shape[1], -1))
    return Numbers(q, k, v, _part("dout", whole.dout, positions, 0.0, case, device))


def _together(parts: list[Tensor], case: Case) -> list[Tensor]:
    """q, k and v as heads of one tensor `[B, L, Hq + 2 Hkv, D]` where a case asks for it, else as they are."""
    if case.inputs.strides != "fused" or case.shape.v_dim != case.shape.head_dim:
        return parts
    fused = torch.cat(parts, 1).transpose(1, 2).contiguous()
    return [part.transpose(1, 2) for part in fused.split([part.shape[1] for part in parts], 2)]


def _part(name: str, whole: Tensor, positions: Tensor, fill: float, case: Case, device: str | torch.device) -> Tensor:
    """One tensor of a rank, in its strides; one that is the same in all heads stays so."""
    if _stands(whole, 1):
        one = take(whole[:, :1], positions, fill)
        return _strided(one, _strides(name, case), device).expand(-1, whole.shape[1], -1, -1)
    return _strided(take(whole, positions, fill), _strides(name, case), device)


def _strides(name: str, case: Case) -> str:
    return UNLIKE[name] if case.inputs.strides == "unlike" else case.inputs.strides


def _stands(x: Tensor, dim: int) -> bool:
    return x.stride(dim) == 0 and x.shape[dim] > 1


def take(whole: Tensor, positions: Tensor, fill: float = 0.0) -> Tensor:
    """`[B, H, S, ...]` at positions `[B, L]` -> `[B, H, L, ...]`; filler slots hold `fill`."""
    index = positions.clamp(min=0).to(whole.device)
    batch = torch.arange(whole.shape[0], device=whole.device)[:, None]
    part = whole.transpose(1, 2)[batch, index].transpose(1, 2)
    filler = (positions < 0)[:, None].reshape(positions.shape[0], 1, -1, *[1] * (whole.dim() - 3))
    return part.masked_fill(filler.to(whole.device), fill) if bool((positions < 0).any()) else part.contiguous()


def put(parts: list[Tensor], layout: list[Tensor], tokens: int) -> Tensor:
    """The inverse of `take` over all ranks: local `[B, H, L, ...]` a rank -> whole `[B, H, S, ...]`."""
    first = parts[0]
    whole = first.new_zeros(first.shape[0], tokens, first.shape[1], *first.shape[3:])
    for part, positions in zip(parts, layout, strict=True):
        batch, slot = (positions >= 0).nonzero(as_tuple=True)
        whole[batch, positions[batch, slot]] = part.transpose(1, 2)[batch, slot]
    return whole.transpose(1, 2)


def another(local: Numbers, case: Case, number: int) -> Numbers:
    """Tensors in the same memory layout, all of them `number`, for timed iterations that rotate input sets and write
    new values into each."""
    def like(name: str, x: Tensor) -> Tensor:
        values = torch.full(x.shape, float(number), dtype=x.dtype, device=x.device)
        return _strided(values, _strides(name, case), x.device)

    q, k, v, dout = (like(name, x) for name, x in vars(local).items())
    return Numbers(*_together([q, k, v], case), dout)


def written(numbers: Numbers, used: Numbers) -> Numbers:
    """The same values in tensors that were used before; a dout of stride 0 stays as it is."""
    with torch.no_grad():
        kept = [old.copy_(new) for old, new in zip(used.tensors()[:3], numbers.tensors()[:3], strict=True)]
        dense = 0 not in numbers.dout.stride()
        return Numbers(*kept, used.dout.copy_(numbers.dout) if dense else numbers.dout)


def renewed(numbers: Numbers, generator: torch.Generator) -> None:
    """Other values in the same tensors: what was answered before answers nothing of them. They are drawn dense and in
    fp32, which takes a seventh of the time of drawing into strided ones."""
    with torch.no_grad():
        for x in numbers.tensors():
            x.copy_(torch.randn(x.shape, generator=generator, device=x.device))


def _strided(x: Tensor, strides: str, device: str | torch.device) -> Tensor:
    """The same values as a view with other strides. What lies beside a view is NaN: nobody may read it."""
    if strides == "unbind":
        fused = torch.full((*x.shape[:-1], 3, x.shape[-1]), BESIDE, dtype=x.dtype, device=device)
        view = fused.unbind(-2)[1]
        view.copy_(x)
        return view
    if strides == "interleaved":
        wider = torch.full((*x.shape[:-1], 2 * x.shape[-1]), BESIDE, dtype=x.dtype, device=device)
        view = wider[..., ::2]
        view.copy_(x)
        return view
    if strides == "tail":
        longer = torch.full((*x.shape[:2], x.shape[2] + TAIL, x.shape[3]), BESIDE, dtype=x.dtype, device=device)
        view = longer[:, :, :x.shape[2]]
        view.copy_(x)
        return view
    if strides == "transposed":
        return x.transpose(1, 2).contiguous().to(device).transpose(1, 2)
    return x.contiguous().to(device)
