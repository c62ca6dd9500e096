"""The twin: right to the precision it claims, independent of blocks, sound on dead rows."""

import math

import pytest
import torch

from cases.mask import Mask
from cases.rules.causal import Causal
from reference.dense import truth
from reference.twin import twin

NAMES = ("out", "dq", "dk", "dv")


@pytest.mark.parametrize("dtype, step", [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.float16, 4e-3),
                                         (torch.bfloat16, 3e-2)])
def test_error_is_that_of_its_dtype(draw, make_mask, dtype, step):
    tokens = 130
    mask = make_mask(tokens)
    inputs = draw(tokens, heads=6, dim=16, value_dim=24, dtype=dtype)
    rows = mask.rows(1, tokens, 2)
    exact, low = truth(*inputs, mask, rows, -0.4), twin(*inputs, mask, rows, -0.4)
    for name in NAMES:
        found, expected = getattr(low, name), getattr(exact, name)
        error = (found.double() - expected).norm() / expected.norm()
        assert found.dtype == dtype and error < step, name
        assert dtype == torch.float64 or error > step / 1e3, name
    assert low.lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(low.lse == -math.inf, ~exact.live)
    assert all((getattr(low, name)[~exact.live] == 0).all() for name in ("out", "dq"))
    assert all((getattr(low, name)[~exact.seen] == 0).all() for name in ("dk", "dv"))


@pytest.mark.parametrize("poison", [math.nan, 1e4])
def test_poison_changes_no_bit(draw, make_mask, poison):
    tokens = 100
    mask = make_mask(tokens)
    q, k, v, dout = draw(tokens, dtype=torch.float16)
    rows = mask.rows(1, tokens, 2)
    exact, clean = truth(q, k, v, dout, mask, rows), twin(q, k, v, dout, mask, rows)
    q, dout = (x.masked_fill(~exact.live[..., None], poison) for x in (q, dout))
    k, v = (x.masked_fill(~exact.seen[..., None], poison) for x in (k, v))
    found = twin(q, k, v, dout, mask, rows)
    assert all(torch.equal(getattr(found, name), getattr(clean, name)) for name in (*NAMES, "lse"))


def test_key_gradients_of_many_heads_and_rows_are_rounded_once(draw):
    """A sum of 16 heads and 512 rows: rounding every addend to bf16 would lose more than one rounding at the end."""
    inputs = draw(512, heads=16, kv_heads=1, dim=8, dtype=torch.bfloat16)
    mask = Mask((Causal(),))
    rows = mask.rows(1, 512, 1)
    exact, low = truth(*inputs, mask, rows), twin(*inputs, mask, rows)
    assert (low.dv.double() - exact.dv).norm() < 2 ** -8 * exact.dv.norm()
