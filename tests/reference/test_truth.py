"""The truth against loops over (i, j), finite differences and torch's own attention."""

import math
import subprocess
import sys

import pytest
import torch

from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from reference.dense import truth

GRADIENTS = ("out", "dq", "dk", "dv")


def by_loops(q, k, v, dout, mask, rows, scale, fp32=False):
    """Everything in Truth, one pair of tokens at a time."""
    shapes = {"out": dout, "lse": dout[..., 0], "dq": q, "dk": k, "dv": v}
    found = {name: torch.zeros_like(x) for name, x in shapes.items()}
    found["lse"].fill_(-math.inf)
    found |= {f"terms_{name}": torch.zeros_like(x) for name, x in shapes.items()}
    tokens, ratio = q.shape[2], q.shape[1] // k.shape[1]
    every = torch.arange(tokens)
    allowed = mask.allowed(rows, every, every).expand(q.shape[0], k.shape[1], tokens, tokens)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h // ratio
            for i in range(tokens):
                keys = [j for j in range(tokens) if allowed[b, g, i, j]]
                if keys:
                    row_by_loops(found, (b, h, g, i), keys, q, k, v, dout, scale, fp32)
    for name in GRADIENTS:
        squares = found[f"terms_{name}"] + found.pop(f"own_{name}", found[name] ** 2)
        found[f"terms_{name}"] = (squares + found.pop(f"alike_{name}", torch.zeros(())) ** 2).sqrt()
    found["terms_lse"] = found["terms_lse"].sqrt()
    return found


def row_by_loops(found, where, keys, q, k, v, dout, scale, fp32):
    b, h, g, i = where
    scores = {j: scale * math.fsum((q[b, h, i] * k[b, g, j]).tolist()) for j in keys}
    total = sum(math.exp(score) for score in scores.values())
    p = {j: math.exp(score) / total for j, score in scores.items()}
    lse = math.log(total)
    found["lse"][b, h, i] = lse
    found["out"][b, h, i] = sum(p[j] * v[b, g, j] for j in keys)
    do, own = dout[b, h, i], found["out"][b, h, i]
    delta = (own * do).sum()
    dim = q.shape[-1]
    sums = 1 + dim if fp32 else 1
    squares = {j: sum((scale * q[b, h, i, d] * k[b, g, j, d]) ** 2 for d in range(dim)) for j in keys}
    row = 1 + lse ** 2 + sums * sum(p[j] * squares[j] for j in keys) if fp32 else 1
    mean = sum(p[j] * k[b, g, j] for j in keys)
    products = sum(p[j] ** 2 * squares[j] for j in keys)
    found["terms_lse"][b, h, i] = sums * (products + ((scale * q[b, h, i] * mean) ** 2).sum())
    for j in keys:
        dp = (do * v[b, g, j]).sum()
        ds = scale * p[j] * (dp - delta)
        found["dq"][b, h, i] += ds * k[b, g, j]
        found["dk"][b, g, j] += ds * q[b, h, i]
        found["dv"][b, g, j] += p[j] * do
        weight = scale ** 2 * p[j] ** 2 * (dp ** 2 + delta ** 2 + (do ** 2 * v[b, g, j] ** 2).sum())
        found["terms_out"][b, h, i] += row * p[j] ** 2 * v[b, g, j] ** 2
        found["terms_dq"][b, h, i] += row * weight * k[b, g, j] ** 2
        found["terms_dk"][b, g, j] += row * weight * q[b, h, i] ** 2
        found["terms_dv"][b, g, j] += row * p[j] ** 2 * do ** 2
        if fp32:
            for name, term in (("dk", ds * q[b, h, i]), ("dv", p[j] * do)):
                alike = found.setdefault(f"alike_{name}", torch.zeros_like(found[name]))
                alike[b, g, j] += math.sqrt(row) * term
    for name in ("out", "dq"):
        found.setdefault(f"own_{name}", torch.zeros_like(found[name]))[b, h, i] = row * found[name][b, h, i] ** 2


@pytest.mark.parametrize("fp32", [False, True])
def test_every_number_is_what_loops_give(draw, make_mask, fp32):
    tokens = 13
    mask = make_mask(tokens)
    q, k, v, dout = draw(tokens, dim=3, value_dim=5, dtype=torch.float32 if fp32 else torch.bfloat16)
    rows = mask.rows(1, tokens, 2)
    found = truth(q, k, v, dout, mask, rows, scale=-0.7)
    wide = [x.double() for x in (q, k, v, dout)]
    expected = by_loops(*wide, mask, rows, -0.7, fp32)
    torch.testing.assert_close({name: getattr(found, name) for name in expected}, expected, rtol=1e-11, atol=1e-13)


def test_gradients_are_finite_differences(draw, make_mask):
    tokens, step = 11, 1e-5
    mask = make_mask(tokens)
    inputs = draw(tokens, dim=4, value_dim=6, batch=1)
    rows = mask.rows(1, tokens, 2)
    found = truth(*inputs, mask, rows)

    def loss() -> float:
        return float((truth(*inputs, mask, rows, terms=False).out * inputs[3]).sum())

    for x, name in zip(inputs[:3], ("dq", "dk", "dv"), strict=True):
        for index in range(0, x.numel(), 7):
            flat, kept = x.view(-1), x.view(-1)[index].item()
            flat[index] = kept + step
            above = loss()
            flat[index] = kept - step
            slope = (above - loss()) / (2 * step)
            flat[index] = kept
            written = getattr(found, name).view(-1)[index].item()
            assert slope == pytest.approx(written, rel=1e-6, abs=1e-8), (name, index)


@pytest.mark.parametrize("scale", [None, 0.0, -0.3])
def test_agrees_with_sdpa(draw, make_mask, scale):
    tokens = 203
    mask = make_mask(tokens)
    q, k, v, dout = draw(tokens, heads=6, kv_heads=2, dim=16)
    rows = mask.rows(1, tokens, 2)
    found = truth(q, k, v, dout, mask, rows, scale)
    every = torch.arange(tokens)
    allowed = mask.allowed(rows, every, every).expand(1, 2, tokens, tokens).repeat_interleave(3, 1)
    live = allowed.any(-1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    sdpa = torch.nn.functional.scaled_dot_product_attention
    out = sdpa(q, k, v, allowed | ~live[..., None], scale=scale, enable_gqa=True)
    gradients = torch.autograd.grad(out, leaves, dout * live[..., None])
    expected = dict(zip(GRADIENTS, (out.detach() * live[..., None], *gradients), strict=True))
    torch.testing.assert_close({name: getattr(found, name) for name in GRADIENTS}, expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(found.live, live)
    assert torch.equal(found.seen, allowed.unflatten(1, (2, 3)).any(3).any(2))
    assert torch.equal(found.lse == -math.inf, ~live)


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e15])
def test_poison_in_dead_rows_and_unseen_keys_changes_no_bit(draw, make_mask, poison):
    tokens = 120
    mask = make_mask(tokens)
    q, k, v, dout = draw(tokens, dtype=torch.float32)
    rows = mask.rows(1, tokens, 2)
    clean = truth(q, k, v, dout, mask, rows)
    q, dout = (x.masked_fill(~clean.live[..., None], poison) for x in (q, dout))
    k, v = (x.masked_fill(~clean.seen[..., None], poison) for x in (k, v))
    found = truth(q, k, v, dout, mask, rows)
    for name, expected in vars(clean).items():
        assert torch.equal(getattr(found, name), expected), name


def test_dead_rows_are_zero_and_minus_infinity(draw):
    mask = Mask((Causal(), Padding((((0, 40),),))))
    found = truth(*draw(40), mask, mask.rows(1, 40, 2))
    assert not found.live.any() and not found.seen.any()
    assert (found.lse == -math.inf).all()
    assert all((getattr(found, name) == 0).all() for name in GRADIENTS)


def test_batch_rows_are_independent(draw):
    mask = Mask((Causal(), Documents.packed([10, 20, 3], [30, 3])))
    inputs = draw(33, batch=2)
    both = truth(*inputs, mask, mask.rows(2, 33, 2))
    for b, lengths in enumerate(([10, 20, 3], [30, 3])):
        alone = Mask((Causal(), Documents.packed(lengths)))
        found = truth(*(x[b:b + 1] for x in inputs), alone, alone.rows(1, 33, 2))
        for name, expected in vars(found).items():
            torch.testing.assert_close(getattr(both, name)[b:b + 1], expected, rtol=1e-12, atol=1e-14)


def test_visible_tokens_must_be_finite(draw):
    q, k, v, dout = draw(9)
    v[0, 0, 3, 1] = math.nan
    mask = Mask((Causal(),))
    with pytest.raises(ValueError, match="visible tokens are not finite"):
        truth(q, k, v, dout, mask, mask.rows(1, 9, 2))


PEAK = """
import pathlib, re, torch
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from reference.dense import truth
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) / 1024
q, k, v, dout = (torch.randn(1, 4, {tokens}, {dim}).bfloat16() for _ in range(4))
mask = Mask((Causal(),))
truth(*(x[:, :, :64] for x in (q, k, v, dout)), mask, mask.rows(1, 64, 4))
before = peak()
truth(q, k, v, dout, mask, mask.rows(1, {tokens}, 4))
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss of a child starts at its parent's")
def test_memory_does_not_grow_with_the_square_of_tokens():
    tokens, dim = 3072, 16
    script = PEAK.format(tokens=tokens, dim=dim)
    grown = float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout)
    one_score_matrix = 4 * tokens ** 2 * 8 / 2 ** 20
    assert 0 < grown < one_score_matrix / 2
