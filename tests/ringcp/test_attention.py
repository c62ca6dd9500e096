"""ring_attention against dense attention over the rules as loops, in every form it can be called."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from tests.ringcp.ring_explicit import allowed, attention
from tests.ringcp.ring_masks import layouts, masks
from tests.ringcp.ring_ranks import draw, on_ranks, ring

NAMES = "out", "lse", "dq", "dk", "dv"


@settings(max_examples=120, deadline=None)
@given(st.data(), masks(), st.integers(1, 4), st.sampled_from([None, 0.5, 0.0, -1.0]),
       st.sampled_from(["torch-cpu", "eager"]))
def test_any_mask_layout_world_scale_and_kernel(data, mask, world, scale, kernel):
    layout = data.draw(layouts(mask.tokens, world))
    head_dim, value_dim = data.draw(st.sampled_from([(8, 8), (4, 8), (8, 3)]))
    tensors = draw(mask, head_dim=head_dim, value_dim=value_dim)
    truth = attention(*tensors, allowed(mask), head_dim**-0.5 if scale is None else scale)
    found = ring(*tensors, mask, layout, scale=scale, kernel=kernel)
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name), truth[name], rtol=1e-11, atol=1e-11,
                                   msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kernel", ["torch-cpu", "eager"])
@pytest.mark.parametrize("poison", [1e15, float("nan"), float("inf")])
def test_values_that_nobody_may_see_change_no_bit(kernel, poison):
    mask = ringcp.Mask(tokens=24, documents=torch.tensor([[0] * 3 + [1] * 9 + [2] * 8 + [0] * 4]),
                       padding=torch.arange(24)[None] % 7 == 5, token_regions=torch.arange(24)[None] // 6, regions=4,
                       selected=torch.tensor([0, 2, 4]).expand(1, 2, 24, 3))
    pairs = allowed(mask)
    q, k, v, dout = draw(mask)
    clean = ring(q, k, v, dout, mask, ringcp.make_layout("zigzag", 24, 3), kernel=kernel)
    dead_rows, dead_keys = (~pairs.any(axis).repeat_interleave(2, 1)[..., None] for axis in (3, 2))
    dead_keys = dead_keys[:, ::2]
    assert dead_rows.any() and dead_keys.any()
    dirty = [q.masked_fill(dead_rows, poison), *(x.masked_fill(dead_keys, poison) for x in (k, v)),
             dout.masked_fill(dead_rows, poison)]
    found = ring(*dirty, mask, ringcp.make_layout("zigzag", 24, 3), kernel=kernel)
    assert all(torch.equal(getattr(found, name), getattr(clean, name)) for name in NAMES)


@pytest.mark.parametrize("wanted", ["q", "k", "v", "qk", "kv", "qv"])
def test_gradients_of_a_subset_of_the_inputs(wanted):
    mask, layout = ringcp.Mask(tokens=16), ringcp.make_layout("zigzag", 16, 2)
    tensors = draw(mask)
    truth = attention(*tensors, allowed(mask), 8**-0.5)

    def work(exchange):
        local = {name: layout.shard(x, exchange.rank) for name, x in zip("qkv", tensors)}
        for name in wanted:
            local[name].requires_grad_()
        out, lse = ringcp.ring_attention(*local.values(), mask=mask, layout=layout, group=exchange)
        assert not lse.requires_grad
        out.backward(layout.shard(tensors[3], exchange.rank))
        return {name: x.grad for name, x in local.items()}

    parts = on_ranks(2, work)
    for name in "qkv":
        if name in wanted:
            torch.testing.assert_close(layout.unshard([part[name] for part in parts]), truth["d" + name])
        else:
            assert parts[0][name] is None


def test_no_graph_is_kept_without_gradients():
    mask = ringcp.Mask(tokens=8)
    q, k, v, _ = draw(mask)
    with torch.no_grad():
        out, _ = ringcp.ring_attention(q.requires_grad_(), k, v, mask=mask, layout="contiguous")
    assert out.grad_fn is None


@pytest.mark.parametrize("kernel", ["torch-cpu", "eager"])
def test_any_strides(kernel):
    mask = ringcp.Mask(tokens=12)
    q, k, v, _ = draw(mask, heads=2)
    dout = torch.randn(1, 2, 1, 1, dtype=torch.float64).expand(1, 2, 12, 8)
    truth = attention(q, k, v, dout, allowed(mask), 8**-0.5)
    shapes = ([x.mT.contiguous().mT for x in (q, k, v)],
              [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)],
              torch.stack([q, k, v], -1).unbind(-1), torch.stack([q, k, v]).unbind(0))
    for tensors in shapes:
        found = ring(*tensors, dout, mask, ringcp.make_layout("contiguous", 12, 1), kernel=kernel)
        assert all(torch.allclose(getattr(found, name), truth[name]) for name in NAMES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_results_keep_the_dtype_and_lse_is_fp32(dtype):
    mask = ringcp.Mask(tokens=64)
    tensors = draw(mask, dtype=dtype)
    found = ring(*tensors, mask, ringcp.make_layout("zigzag", 64, 4))
    truth = attention(*(x.double() for x in tensors), allowed(mask), 8**-0.5)
    assert {found.out.dtype, found.dq.dtype, found.dk.dtype, found.dv.dtype} == {dtype}
    assert found.lse.dtype == torch.float32
    for name in NAMES:
        torch.testing.assert_close(getattr(found, name).double(), truth[name], rtol=0, atol=32 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("kernel", ["torch-cpu", "eager"])
def test_autocast_around_it_changes_no_bit(kernel):
    mask, layout = ringcp.Mask(tokens=32), ringcp.make_layout("zigzag", 32, 1)
    tensors = draw(mask, dtype=torch.float32)
    plain = ring(*tensors, mask, layout, kernel=kernel)
    local = [tensor.clone().requires_grad_() for tensor in tensors[:3]]
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = ringcp.ring_attention(*local, mask=mask, layout=layout, kernel=kernel)
        out.backward(tensors[3])
    assert torch.equal(out, plain.out) and torch.equal(local[0].grad, plain.dq)


def test_two_runs_give_the_same_bits():
    mask = ringcp.Mask(tokens=96, window=20)
    tensors = draw(mask, dtype=torch.float32)
    one, two = (ring(*tensors, mask, ringcp.make_layout("striped", 96, 3)) for _ in range(2))
    assert all(torch.equal(getattr(one, name), getattr(two, name)) for name in NAMES)


@pytest.mark.parametrize(("change", "line"), [
    ({"q": torch.zeros(1, 4, 7, 8)}, r"q has shape \[1, 4, 7, 8\], mask and layout want \[1, 4, 8, 8\]"),
    ({"k": torch.zeros(1, 2, 8, 4)}, "k has shape"),
    ({"k": torch.zeros(1, 3, 8, 8), "v": torch.zeros(1, 3, 8, 8)}, "no multiple of 3"),
    ({"v": torch.zeros(1, 2, 8, 8).half()}, "v is torch.float16"),
    ({"layout": ringcp.make_layout("zigzag", 8, 2)}, "layout is for 2 ranks, the group has 1"),
    ({"layout": ringcp.make_layout("zigzag", 9, 1)}, "layout holds 9 tokens, mask 8"),
    ({"layout": "spiral"}, "unknown layout"),
    ({"scale": float("nan")}, "scale is a finite number or None, got nan"),
    ({"scale": "a"}, "scale is a finite number or None, got 'a'"),
    ({"kernel": "fa2"}, "kernel fa2 runs on cuda only, not on cpu"),
    ({"kernel": "magic"}, "unknown kernel 'magic': known are fa4, ffpa, cudnn, fa2, torch-cpu, flex, eager"),
])
def test_bad_arguments_are_refused_with_one_line(change, line):
    given_ = {"q": torch.zeros(1, 4, 8, 8), "k": torch.zeros(1, 2, 8, 8), "v": torch.zeros(1, 2, 8, 8),
              "mask": ringcp.Mask(tokens=8), "layout": "contiguous", **change}
    with pytest.raises(ValueError, match=line):
        ringcp.ring_attention(given_.pop("q"), given_.pop("k"), given_.pop("v"), **given_)
