"""The surrogate kernel against autograd through a dense softmax, with the conventions of flash-attn."""

import pytest
import torch

from harness.adapters import surrogate


def numbers(rows=5, keys=7, heads=4, kv_heads=2, dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = ((rows, heads), (keys, kv_heads), (keys, kv_heads), (rows, heads))
    return [torch.randn(2, tokens, count, dim, generator=generator) for tokens, count in sizes]


def exact(q, k, v, scale, causal):
    """out `[B, n, Hq, D]` and lse `[B, Hq, n]`, differentiable."""
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * scale
    i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
    scores = scores.masked_fill(causal & (j > i + k.shape[1] - q.shape[1]), -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v), scores.logsumexp(-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [5, 7])
def test_it_is_attention_aligned_at_the_bottom_right(rows, causal):
    *inputs, dout = numbers(rows)
    inputs = [x.requires_grad_() for x in inputs]
    out, lse = exact(*inputs, 0.3, causal)
    grads = torch.autograd.grad(out, inputs, dout)
    found = surrogate.forward(*inputs, 0.3, causal)
    torch.testing.assert_close(found, (out, lse))
    torch.testing.assert_close(surrogate.backward(dout, *inputs, out, lse, 0.3, causal), grads)


def test_rows_without_keys_are_zero_with_lse_plus_infinity():
    q, k, v, dout = numbers(rows=9, keys=4)
    out, lse = surrogate.forward(q, k, v, 1.0, True)
    assert not out[:, :5].any() and bool((lse[..., :5] == torch.inf).all()) and bool(lse[..., 5:].isfinite().all())
    assert not surrogate.backward(dout, q, k, v, out, lse, 1.0, True)[0][:, :5].any()


def test_segments_are_attended_one_by_one():
    q, k, v, dout = (x[0] for x in numbers(rows=9, keys=12))
    starts = torch.tensor([0, 2, 2, 9]), torch.tensor([0, 5, 5, 12])
    out, lse = surrogate.forward_varlen(q, k, v, starts, 0.5, True)
    grads = surrogate.backward_varlen(dout, q, k, v, out, lse, starts, 0.5, True)
    assert lse.shape == (4, 9)
    for rows, keys in ((slice(0, 2), slice(0, 5)), (slice(2, 9), slice(5, 12))):
        part = surrogate.forward(q[None, rows], k[None, keys], v[None, keys], 0.5, True)
        torch.testing.assert_close((out[None, rows], lse[None, :, rows]), part)
        alone = surrogate.backward(dout[None, rows], q[None, rows], k[None, keys], v[None, keys], *part, 0.5, True)
        torch.testing.assert_close((grads[0][None, rows], grads[1][None, keys], grads[2][None, keys]), alone)


def test_lse_is_read_by_address_as_the_kernel_does():
    *inputs, dout = numbers(rows=7)
    out, lse = surrogate.forward(*inputs, 0.3, True)
    right = surrogate.backward(dout, *inputs, out, lse, 0.3, True)
    strided = lse.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(strided, lse)
    assert not torch.allclose(surrogate.backward(dout, *inputs, out, strided, 0.3, True)[0], right[0])
