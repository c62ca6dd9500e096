"""The band-shaped form of kernels, with a kernel made of loops, against the eager one."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ringcp.kernels.banded import Banded
from ringcp.kernels.eager import Eager
from ringcp.kernels.shape import heads_first
from ringcp.merge import Merged, Total
from ringcp.plan import make_plan
from tests.ringcp.ring_masks import layouts, masks
from tests.ringcp.ring_ranks import draw


class Loops(Banded):
    """Every segment by itself, from the definition of a band, with gradients by autograd."""

    name = "loops"

    def dense(self, q, k, v, call, scale):
        parts = [self.segment(*row, call, scale) for row in zip(q, k, v, strict=True)]
        return torch.stack([out for out, _ in parts]), torch.stack([lse for _, lse in parts])

    def dense_backward(self, dout, q, k, v, out, lse, call, scale):
        parts = [self.segment_backward(*row, call, scale) for row in zip(dout, q, k, v, out, lse, strict=True)]
        return tuple(torch.stack(grads) for grads in zip(*parts, strict=True))

    def ragged(self, q, k, v, call, scale):
        parts = [self.segment(*row, call, scale) for row in zip(*self.cut(call, q, k, k=v), strict=True)]
        return torch.cat([out for out, _ in parts]), torch.cat([lse for _, lse in parts], 1)

    def ragged_backward(self, dout, q, k, v, out, lse, call, scale):
        sizes = call.starts[0].diff().tolist(), call.starts[1].diff().tolist()
        rows = zip(dout.split(sizes[0]), q.split(sizes[0]), k.split(sizes[1]), v.split(sizes[1]), out.split(sizes[0]),
                   lse.split(sizes[0], 1), strict=True)
        parts = [self.segment_backward(*row, call, scale) for row in rows]
        return tuple(torch.cat(grads) for grads in zip(*parts, strict=True))

    def cut(self, call, q, *keys, **more):
        sizes = call.starts[0].diff().tolist(), call.starts[1].diff().tolist()
        return q.split(sizes[0]), *(x.split(sizes[1]) for x in (*keys, *more.values()))

    def scores(self, q, k, call, scale):
        n, m, ratio = len(q), len(k), q.shape[1] // k.shape[1]
        t, j = torch.arange(n)[:, None] + m - n, torch.arange(m)
        inside = ((call.left < 0) | (j >= t - call.left)) & ((call.right < 0) | (j <= t + call.right))
        scores = q.transpose(0, 1) @ k.repeat_interleave(ratio, 1).permute(1, 2, 0) * scale
        return scores.masked_fill(~inside, -torch.inf)

    def segment(self, q, k, v, call, scale):
        scores = self.scores(q, k, call, scale)
        values = v.repeat_interleave(q.shape[1] // v.shape[1], 1).transpose(0, 1)
        return (scores.softmax(-1) @ values).transpose(0, 1), scores.logsumexp(-1)

    def segment_backward(self, dout, q, k, v, out, lse, call, scale):
        q, k, v = (x.detach().clone().requires_grad_() for x in (q, k, v))
        with torch.enable_grad():
            weights = (self.scores(q, k, call, scale) - lse[..., None]).exp()
            values = v.repeat_interleave(q.shape[1] // v.shape[1], 1).transpose(0, 1)
            delta = (dout * out).sum(-1).T[..., None]
            total = ((weights @ values).transpose(0, 1) * dout).sum() - (weights * delta).sum()
        return torch.autograd.grad(total, (q, k, v))


@settings(max_examples=60, deadline=None)
@given(st.data(), masks(), st.integers(1, 3), st.sampled_from([0.5, 0.0, -1.0]))
def test_bands_give_what_tiles_give(data, mask, world, scale):
    layout = data.draw(layouts(mask.tokens, world))
    q, k, v, dout = draw(mask, value_dim=4, dtype=torch.float32)
    for rank in range(world):
        for hop in make_plan(mask, layout, rank).hops:
            if hop.work is None or mask.groups > 1:
                continue
            mine, keys = layout.shard(q, rank), torch.randn(mask.batch, 2, hop.work.keys, 8)
            values, local = torch.randn(mask.batch, 2, hop.work.keys, 4), layout.shard(dout, rank)
            wanted, found = (forward(kind, mine, keys, values, hop.work, scale) for kind in (Eager(), Loops()))
            for a, b in zip(wanted, found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            parts = local, mine, keys, values, *whole_results(wanted, mine), hop.work, scale
            wanted, found = (backward(kind, *parts) for kind in (Eager(), Loops()))
            for a, b in zip(wanted, found, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def forward(kernel, q, k, v, work, scale):
    """out `[T, H, Dv]` and lse `[H, T]`."""
    merged = Merged(q.shape[0] * q.shape[2], q.shape[1], v.shape[3], torch.float32, torch.float32, q.device)
    kernel.forward(q, k, v, work, scale, merged)
    return merged.result()


def whole_results(results, q):
    """The results of one hop taken for those of all hops, as a backward gets them."""
    out, lse = results
    lse = lse.masked_fill(lse.isneginf(), 0.0).unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return heads_first(out, q.shape[0]), lse


def backward(kernel, dout, q, k, v, out, lse, work, scale):
    totals = [Total((x.shape[0] * x.shape[2], x.shape[1], x.shape[3]), x.dtype, x.dtype, x.device) for x in (q, k, v)]
    kernel.backward(dout, q, k, v, out, lse, work, scale, *totals)
    return [total.result() for total in totals]
