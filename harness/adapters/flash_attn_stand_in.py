"""Stand-in for flash_attn.flash_attn_interface: the functions that rings import from it, over kernels that are here.

On cuda these are torch's own build of FlashAttention-2, on cpu the surrogate. Names, signatures, layouts and what is
written where are those of flash-attn 2.7 and 2.8. Windows, dropout, softcap and alibi are not offered.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from cases.case import Case
from harness.adapters import surrogate

INTERFACE = "flash_attn.flash_attn_interface"
_forward = torch.ops.aten._flash_attention_forward
_backward = torch.ops.aten._flash_attention_backward


def installed() -> bool:
    """Whether the real one is here; flash-attn-4 brings a package of the same name without it. Imports nothing."""
    package = find_spec("flash_attn")
    places = package.submodule_search_locations or () if package else ()
    return any((Path(place) / "flash_attn_interface.py").exists() for place in places)


def kernel(device: str) -> str:
    """What runs on this device, for the record."""
    if device != "cuda":
        return "surrogate"
    return "fa2 of flash-attn" if installed() else "fa2 of torch"


def refuses(case: Case, device: str) -> str | None:
    """A reason why the kernel cannot run this case. The surrogate could take more, but rings rely on 16 bits: what they
    copy by `.to(torch.float32)` would be no copy of an fp32 tensor."""
    shape = case.shape
    if device != "cuda" and installed():
        return "flash_attn is installed, which runs on cuda only; without it a surrogate runs on cpu"
    if case.dtype not in ("bf16", "fp16"):
        return f"flash-attn takes bf16 and fp16, not {case.dtype}"
    if shape.v_dim != shape.head_dim:
        return "the value head_dim must be that of the query"
    if shape.head_dim % 8 or shape.head_dim > 256:
        return f"head_dim must be a multiple of 8 up to 256, not {shape.head_dim}"
    return None


@contextmanager
def standing_in() -> Iterator[None]:
    """`from flash_attn.flash_attn_interface import ...` finds the real functions, or those of this module."""
    if installed():
        yield
        return
    modules = {} if find_spec("flash_attn") else {"flash_attn": ModuleType("flash_attn")}
    modules[INTERFACE] = sys.modules[__name__]
    with instead(modules):
        yield


@contextmanager
def instead(modules: dict[str, ModuleType]) -> Iterator[None]:
    """These modules under these names, as long as it lasts."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
                        alibi_slopes, return_softmax):
    """q `[B, n, Hq, D]` -> out, lse `[B, Hq, n]`, and two things that only dropout uses."""
    _plain(dropout_p, (window_size_left, window_size_right), softcap, alibi_slopes)
    given, most = tuple(map(_rows, (q, k, v))), (q.shape[1], k.shape[1])
    if q.is_cuda:
        out, lse = _forward(*given, None, None, *most, 0.0, causal, False, scale=softmax_scale)[:2]
    else:
        out, lse = surrogate.forward(*given, softmax_scale, causal)
    return out, lse, None, None


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal,
                         window_size_left, window_size_right, softcap, alibi_slopes, deterministic, rng_state=None):
    """Writes to dq, dk and dv."""
    _plain(dropout_p, (window_size_left, window_size_right), softcap, alibi_slopes)
    given = (*map(_rows, (dout, q, k, v, out)), softmax_lse)
    if q.is_cuda:
        found = _of_torch(given, (None, None), (q.shape[1], k.shape[1]), softmax_scale, causal)
    else:
        found = surrogate.backward(*given, softmax_scale, causal)
    _write((dq, dk, dv), found)


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                               softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                               alibi_slopes=None, return_softmax=False, block_table=None, leftpad_k=None,
                               seqused_k=None, zero_tensors=False):
    """q `[T, Hq, D]` -> out, lse `[Hq, T]`, and two things that only dropout uses."""
    _plain(dropout_p, (window_size_left, window_size_right), softcap, alibi_slopes)
    given, starts = tuple(map(_rows, (q, k, v))), (cu_seqlens_q, cu_seqlens_k)
    if q.is_cuda:
        most = max_seqlen_q, max_seqlen_k
        out, lse = _forward(*given, *starts, *most, 0.0, causal, False, scale=softmax_scale)[:2]
    else:
        out, lse = surrogate.forward_varlen(*given, starts, softmax_scale, causal)
    return out, lse, None, None


def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left=-1,
                                window_size_right=-1, softcap=0.0, alibi_slopes=None, deterministic=False,
                                rng_state=None, zero_tensors=False):
    """Writes to dq, dk and dv."""
    _plain(dropout_p, (window_size_left, window_size_right), softcap, alibi_slopes)
    given, starts = (*map(_rows, (dout, q, k, v, out)), softmax_lse), (cu_seqlens_q, cu_seqlens_k)
    if q.is_cuda:
        found = _of_torch(given, starts, (max_seqlen_q, max_seqlen_k), softmax_scale, causal)
    else:
        found = surrogate.backward_varlen(*given, starts, softmax_scale, causal)
    _write((dq, dk, dv), found)


def _of_torch(given: tuple[Tensor, ...], starts: tuple, most: tuple[int, int], scale: float,
              causal: bool) -> tuple[Tensor, Tensor, Tensor]:
    unused = torch.empty(2, dtype=torch.uint64, device=given[0].device)
    return _backward(*given, *starts, *most, 0.0, causal, unused, unused, scale=scale)


def _write(buffers: tuple[Tensor, ...], found: tuple[Tensor, ...]) -> None:
    for buffer, grad in zip(buffers, found, strict=True):
        buffer.copy_(grad)


def _rows(x: Tensor) -> Tensor:
    """The kernels take any strides but that of the last dimension."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _plain(dropout: float, window: tuple[int, int], softcap: float, alibi: Tensor | None) -> None:
    if dropout or window != (-1, -1) or softcap or alibi is not None:
        raise NotImplementedError("no dropout, window, softcap or alibi")
