"""Kernels and the fused merge on a GPU, against plain operations there."""

import pytest
import torch

import ringcp
from ringcp import kernels
from ringcp.kernels.demand import Demand
from ringcp.kernels.eager import Eager
from ringcp.merge import Merged, merge_
from ringcp.plan import make_plan
from tests.ringcp.test_banded import backward, forward, whole_results

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

DOCUMENTS = torch.tensor([[1] * 300 + [2] * 37 + [3] * 175, [1] * 511 + [2]])
IMAGES = torch.zeros(2, 512, dtype=torch.int64)
IMAGES[0, 100:180] = 1
IMAGES[1, 400:] = 2
HOLES = torch.zeros(2, 512, dtype=torch.bool)
HOLES[:, 200:230] = HOLES[1, 60:64] = True
MASKS = {
    "causal": {}, "full": {"causal": False}, "documents": {"documents": DOCUMENTS}, "window": {"window": 100},
    "window-documents": {"window": 50, "documents": DOCUMENTS}, "images": {"window": 64, "token_types": IMAGES},
    "padding": {"padding": DOCUMENTS == 2},
    "window-holes": {"window": 64, "documents": DOCUMENTS, "padding": HOLES},
}
SIZES = (64, torch.bfloat16), (128, torch.bfloat16), (128, torch.float16), (256, torch.bfloat16), (512, torch.bfloat16)


@pytest.mark.parametrize("width", [24, 64, 80, 128, 256, 512])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [slice(3, 1040), slice(None), torch.randperm(2048)[:999]],
                         ids=["part", "all", "some"])
def test_the_fused_merge_agrees_with_plain_operations(dtype, place, width):
    wide = torch.promote_types(dtype, torch.float32)
    count = len(range(2048)[place]) if isinstance(place, slice) else len(place)
    out, part = (torch.randn(n, 3, width, dtype=dtype) for n in (2048, count))
    lse, part_lse = (torch.randn(3, n, dtype=wide) * 3 for n in (2048, count))
    lse[:, ::4], part_lse[0, ::2] = -torch.inf, -torch.inf
    out[::4] = 0
    wanted, found = [out.clone(), lse.clone()], [out.cuda(), lse.cuda()]
    merge_(*wanted, place, part, part_lse)
    merge_(*found, place if isinstance(place, slice) else place.cuda(), part.cuda(), part_lse.cuda())
    tolerance = {"rtol": 1e-12, "atol": 1e-13} if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-5}
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b.cpu(), **tolerance)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"d{size[0]}-{str(size[1])[6:]}")
@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("kernel", [kernel for kernel in kernels.TABLE if kernel.name not in ("eager", "torch-cpu")],
                         ids=lambda kernel: kernel.name)
def test_a_kernel_agrees_with_the_eager_one_on_every_hop(kernel, name, size):
    (width, dtype), mask = size, ringcp.Mask(tokens=512, batch=2, **MASKS[name])
    reason = kernel.refuses(Demand("cuda", dtype, width, width, 1, mask.rules, 512))
    if reason:
        pytest.skip(f"{kernel.name} {reason}")
    for hop in make_plan(mask, ringcp.make_layout("zigzag", 512, 2), 1, "cuda").hops:
        q, dout = (random(8, 256, width, dtype) for _ in range(2))
        k, v = (random(2, hop.work.keys, width, dtype) for _ in range(2))
        wide = forward(Eager(), *(x.float() for x in (q, k, v)), hop.work, 0.1)
        results = whole_results(wide, q)
        wanted = *wide, *backward(Eager(), *(x.float() for x in (dout, q, k, v)), *results, hop.work, 0.1)
        told = dout, q, k, v, results[0].to(dtype), results[1]
        merged = forward(kernel, q, k, v, hop.work, 0.1)
        for label, a, b in zip(("out", "lse", "dq", "dk", "dv"), wanted,
                               (*merged, *backward(kernel, *told, hop.work, 0.1)), strict=True):
            off = (a - b.float()).nan_to_num(0.0, 0.0, 0.0).abs().max() / a.nan_to_num(0.0, 0.0, 0.0).abs().max()
            assert torch.equal(a.isneginf(), b.isneginf()) and off < 0.03, f"{label} of hop {hop.distance}: {off:.3f}"


def test_a_masked_row_of_the_merge_stays_zero_without_keys():
    merged = Merged(4, 2, 16, torch.bfloat16, torch.float32, torch.device("cuda"))
    nothing = torch.full((2, 2), -torch.inf, device="cuda")
    merged.add(slice(0, 2), torch.zeros(2, 2, 16, device="cuda", dtype=torch.bfloat16), nothing)
    out, lse = merged.result()
    assert not out.any() and lse.isneginf().all()


def random(heads, tokens, width, dtype):
    return torch.randn(2, heads, tokens, width, device="cuda").to(dtype)
