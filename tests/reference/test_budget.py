"""The budgets from both sides: correct rings stay below 0.8, wrong answers are far above 1 and named where they are."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from reference.budget import blocks, judge
from reference.dense import truth
from reference.twin import twin
from tests.reference.simulated import Ring

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
CORRECT = 0.8
WRONG = 3.0
RINGS = (Ring(2), Ring(3, "dtype", "dtype"), Ring(4, "prescaled", "dtype"), Ring(8, "exp2"), Ring(8, partial="dtype"))
PACKED = Mask((Causal(), Documents.packed([1] * 20 + [3, 9, 14, 2, 21, 5, 30, 152])))
INTERLEAVED = Mask((Causal(), Documents((tuple((n % 3 + 1, 1) for n in range(256)),))))


class Judged:
    """A problem with its truth and twin, and what a ring answers."""

    def __init__(self, inputs, mask, scale=None, ring=None):
        q, k, _, _ = inputs
        self.mask, self.inputs, self.dtype, self.scale = mask, inputs, q.dtype, scale
        self.rows = mask.rows(q.shape[0], q.shape[2], k.shape[1])
        self.truth = truth(*inputs, mask, self.rows, scale, terms=q.dtype != torch.float64)
        self.twin = None if q.dtype == torch.float64 else twin(*inputs, mask, self.rows, scale)
        self.answer = self.by(ring or Ring(4))

    def by(self, ring):
        if self.dtype == torch.float64:
            return {name: getattr(self.truth, name).clone() for name in ("out", "lse", "dq", "dk", "dv")}
        return ring(*self.inputs, self.mask, self.rows, self.scale)

    def deviations(self, compare=None, **changed):
        return judge(self.answer | changed, self.truth, self.twin, self.dtype, self.rows.documents, compare)

    def ratios(self, **changed):
        return {name: found.ratio for name, found in self.deviations(**changed).items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mask", [Mask((Causal(),)), PACKED, INTERLEAVED], ids=["causal", "packed", "interleaved"])
@pytest.mark.parametrize("options", [{}, {"spread": 6.0}, {"spread": 20.0, "scale": 1.0}, {"scale": 0.0},
                                     {"scale": -0.3}, {"dim": 128, "heads": 2},
                                     {"dim": 24, "value_dim": 40, "kv_heads": 1}], ids=str)
def test_correct_rings_are_accepted(draw, dtype, mask, options):
    spread, scale = options.get("spread", 1.0), options.get("scale")
    shape = {name: options[name] for name in options if name not in ("spread", "scale")}
    q, k, v, dout = draw(256, dtype=dtype, **shape)
    judged = Judged([q * spread, k, v, dout], mask, scale)
    for ring in RINGS:
        ratios = judged.ratios(**judged.by(ring))
        assert max(ratios.values()) <= CORRECT, (ring, ratios)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10 ** 6), dtype=st.sampled_from(DTYPES), chunks=st.sampled_from((2, 3, 4, 8)),
       lengths=st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_correct_rings_are_accepted_for_any_documents(seed, dtype, chunks, lengths):
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(1, h, sum(lengths), 16, generator=generator).to(dtype) for h in (4, 2, 2, 4)]
    judged = Judged(inputs, Mask((Causal(), Documents.packed(lengths))), ring=Ring(chunks))
    assert max(judged.ratios().values()) <= CORRECT


def rows_off(x, first, count, factor):
    changed = x.clone()
    changed[:, :, first:first + count] *= factor
    return changed


@pytest.mark.parametrize("dtype", DTYPES + (torch.float64,))
@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
@pytest.mark.parametrize("first", [0, 37, 192])
def test_27_percent_off_in_64_rows(draw, dtype, name, first):
    judged = Judged(draw(256, dtype=dtype), PACKED)
    for factor in (0.73, 1.27):
        found = judged.deviations(**{name: rows_off(judged.answer[name], first, 64, factor)})[name]
        assert found.ratio > WRONG
        assert first <= found.token < first + 64


@pytest.mark.parametrize("dtype", DTYPES + (torch.float64,))
def test_27_percent_off_in_the_last_rows_of_a_long_document(draw, dtype):
    judged = Judged(draw(2048, heads=2, kv_heads=1, dtype=dtype), Mask((Causal(),)), ring=Ring(2))
    for name in ("out", "dq", "dk", "dv"):
        assert judged.ratios(**{name: rows_off(judged.answer[name], 2048 - 64, 64, 1.27)})[name] > WRONG
        assert judged.ratios(**{name: rows_off(judged.answer[name], 1536, 512, 0.0)})[name] > WRONG


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
def test_one_row_that_is_another_token_s(draw, dtype, name):
    judged = Judged(draw(256, dtype=dtype), Mask((Causal(),)))
    wrong = judged.answer[name].clone()
    wrong[0, 1, 130] = wrong[0, 1, 77]
    found = judged.deviations(**{name: wrong})[name]
    assert found.ratio > 1 and (found.batch, found.head, found.token) == (0, 1, 130)
    assert found.tokens == (128, 192)
    assert found.actual == wrong[0, 1, 130, found.dim]
    assert found.expected == getattr(judged.truth, name)[0, 1, 130, found.dim]


@pytest.mark.parametrize("dtype", DTYPES)
def test_faults_of_a_ring(draw, dtype):
    q, k, v, dout = draw(256, dtype=dtype)
    judged = Judged([q, k, v, dout], Mask((Causal(),)))
    ring, problem = Ring(4), (judged.mask, judged.rows)
    ignored = ring(q, k, v, torch.ones_like(dout), *problem)
    assert all(ratio > WRONG for name, ratio in judged.ratios(**ignored).items() if name.startswith("d"))
    swapped = ring(q, k.flip(1), v.flip(1), dout, *problem)
    assert judged.ratios(**swapped)["out"] > WRONG
    factor = 1.04 if dtype == torch.bfloat16 else 1.02
    scaled = {name: judged.answer[name] * factor for name in ("out", "dq", "dk", "dv")}
    for name, ratio in judged.ratios(**scaled).items():
        assert name == "lse" or ratio > 1
    for name, ratio in judged.ratios(**{name: torch.zeros_like(x) for name, x in judged.answer.items()}).items():
        assert ratio > WRONG, name


@pytest.mark.parametrize("dtype", DTYPES + (torch.float64,))
def test_wrong_lse(draw, dtype):
    judged = Judged(draw(256, dtype=dtype), Mask((Causal(),)))
    lse = judged.answer["lse"]
    for wrong in (lse / math.log(2), lse + 0.1, lse.roll(1, -1), rows_off(lse, 64, 64, 0.73)):
        assert judged.ratios(lse=wrong)["lse"] > WRONG
    one = lse.clone()
    one[0, 2, 200] = -math.inf
    found = judged.deviations(lse=one)["lse"]
    assert found.exact and found.ratio == math.inf and (found.head, found.token, found.dim) == (2, 200, None)


@pytest.mark.parametrize("dtype", DTYPES + (torch.float64,))
@pytest.mark.parametrize("name", ["out", "dq", "dk", "dv"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_infinitely_far(draw, dtype, name, value):
    judged = Judged(draw(256, dtype=dtype), PACKED)
    wrong = judged.answer[name].clone()
    wrong[0, 1, 99, 5] = value
    found = judged.deviations(**{name: wrong})[name]
    assert found.ratio == math.inf and (found.head, found.token, found.dim) == (1, 99, 5)


@pytest.mark.parametrize("dtype", DTYPES + (torch.float64,))
def test_zeros_are_exact(draw, dtype):
    judged = Judged(draw(96, dtype=dtype), Mask((Causal(), Padding((((0, 4), (50, 55)),)))))
    assert max(judged.ratios().values()) <= CORRECT
    tiny = torch.finfo(dtype).tiny
    for name in ("out", "dq", "dk", "dv"):
        wrong = judged.answer[name].clone()
        wrong[0, 1, 52, 3] = tiny
        found = judged.deviations(**{name: wrong})[name]
        assert found.exact and found.ratio == math.inf and (found.token, found.dim) == (52, 3)
    lse = judged.answer["lse"].clone()
    lse[0, 0, 52] = 0
    assert judged.deviations(lse=lse)["lse"].exact


def test_rows_that_are_not_compared(draw):
    judged = Judged(draw(96, dtype=torch.bfloat16), Mask((Causal(), Padding((((50, 55),),)))))
    changed = {name: judged.answer[name].clone() for name in ("out", "lse", "dq", "dk")}
    for x in changed.values():
        x[:, :, 52] = math.nan
    ratios = {name: found.ratio for name, found in judged.deviations(judged.truth.live, **changed).items()}
    assert ratios.pop("dk") == math.inf
    assert max(ratios.values()) <= CORRECT


def test_fp64_line_is_1e_10(draw):
    judged = Judged(draw(64), Mask((Causal(),)))
    out = judged.answer["out"].clone()
    line = 1e-10 * max(1.0, out.abs().max().item())
    for factor in (0.9, 1.1):
        off = out.clone()
        off[0, 3, 40, 2] += factor * line
        found = judged.deviations(out=off)["out"]
        assert found.ratio == pytest.approx(factor, rel=1e-3) and (found.head, found.token, found.dim) == (3, 40, 2)


def test_absent_tensors_are_not_compared_and_wrong_shapes_refused(draw):
    judged = Judged(draw(64), Mask((Causal(),)))
    assert set(judged.deviations(lse=None)) == {"out", "dq", "dk", "dv"}
    with pytest.raises(ValueError, match=r"out has shape \[1, 4, 63, 32\], expected \[1, 4, 64, 32\]"):
        judged.deviations(out=judged.answer["out"][:, :, 1:])
    with pytest.raises(ValueError, match="needs the twin"):
        judge(judged.answer, judged.truth, None, torch.bfloat16)


@given(st.lists(st.lists(st.integers(0, 3), min_size=150, max_size=150), min_size=1, max_size=2))
@settings(max_examples=30, deadline=None)
def test_blocks_hold_at_most_64_tokens_of_one_document(ids):
    documents = torch.tensor(ids)
    for row, block in zip(documents, blocks(*documents.shape, documents), strict=True):
        for number in block.unique():
            inside = (block == number).nonzero()[:, 0]
            assert len(inside) <= 64 and len(row[inside].unique()) == 1
        assert len(block.unique()) == sum(-(-int((row == each).sum()) // 64) for each in row.unique())
    assert blocks(1, 130).tolist() == [[0] * 64 + [1] * 64 + [2] * 2]


@pytest.mark.parametrize("dtype", (torch.float64, *DTYPES))
def test_every_row_over_budget_is_told(draw, dtype):
    judged = Judged(draw(256, dtype=dtype), PACKED)
    assert all(found.off is None for found in judged.deviations().values())
    wrong = judged.answer["dk"].clone()
    wrong[0, 1, 40:43] *= 3
    wrong[0, 0, 200] *= 2
    found = judged.deviations(dk=wrong)["dk"].off
    assert found.shape == wrong.shape[:3] and found.nonzero()[:, 1:].tolist() == [[0, 200], [1, 40], [1, 41], [1, 42]]
    lse = judged.answer["lse"].clone()
    lse[0, 0, 7] = -math.inf
    assert judged.deviations(lse=lse)["lse"].off.nonzero()[:, 1:].tolist() == [[0, 7]]
