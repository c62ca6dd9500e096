"""Probes against the truth, correct rings and wrong masks; excerpts against the truth."""

import math

import pytest
import torch

from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.window import Window
from reference import excerpt
from reference.dense import truth
from reference.probes import check, probe, questions
from tests.reference.simulated import Ring

NAMES = ("out", "lse", "dq", "dk", "dv")


def asked_of(found, rows):
    return questions(rows, found.heads, found.dim, found.mean.shape[3], found.dtype, found.first)


def answer_of(found, mask, rows, scale=None, **other):
    asked = dict(zip(("q", "k", "v", "dout"), asked_of(found, rows), strict=True)) | other
    exact = truth(*asked.values(), mask, rows, scale, terms=False)
    return {name: getattr(exact, name) for name in NAMES}


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("scale", [None, -0.5])
def test_probe_is_the_truth(make_mask, first, scale):
    tokens = 90
    mask = make_mask(tokens)
    rows = mask.rows(1, tokens, 2)
    found = probe(mask, rows, heads=6, dim=16, value_dim=24, dtype=torch.float64, scale=scale, first=first)
    exact = truth(*asked_of(found, rows), mask, rows, scale)
    tensors = [(getattr(found, name), getattr(exact, name)) for name in ("out", "lse", "dk", "dv")]
    torch.testing.assert_close(*zip(*tensors, strict=True), rtol=1e-12, atol=1e-12)
    assert (exact.dq == 0).all() and (found.lse == -math.inf).equal(~exact.live)
    assert check(found, answer_of(found, mask, rows, scale)) is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("ring", [Ring(2), Ring(3, "dtype", "dtype"), Ring(8, "exp2")], ids=str)
def test_correct_rings_pass(make_mask, dtype, ring):
    tokens = 200
    mask = make_mask(tokens)
    rows = mask.rows(1, tokens, 2)
    found = probe(mask, rows, heads=4, dim=32, dtype=dtype)
    assert check(found, ring(*asked_of(found, rows), mask, rows)) is None


def wrong_documents(tokens, kind):
    cut = {"right": (100, 60), "moved": (101, 59), "merged": (160,)}[kind]
    return Documents.packed([*cut, tokens - sum(cut)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("wrong, tensor", [
    (Mask((Causal(), Window(31), wrong_documents(200, "right"))), "lse"),
    (Mask((Causal(), Window(33), wrong_documents(200, "right"))), "lse"),
    (Mask((Causal(), Window(32), wrong_documents(200, "moved"))), "lse"),
    (Mask((Causal(), Window(32), wrong_documents(200, "merged"))), "lse"),
])
def test_wrong_masks_are_seen_in_every_tensor_that_shows_them(dtype, wrong, tensor):
    mask = Mask((Causal(), Window(32), wrong_documents(200, "right")))
    rows = mask.rows(1, 200, 2)
    found = probe(mask, rows, heads=4, dim=64, dtype=dtype)
    answer = answer_of(found, wrong, wrong.rows(1, 200, 2))
    assert check(found, answer).tensor == tensor
    first = 0
    while check(found, {"dv": answer["dv"]}) is None or check(found, {"dk": answer["dk"]}) is None:
        first += 1
        found = probe(mask, rows, heads=4, dim=64, dtype=dtype, first=first)
        answer = answer_of(found, wrong, wrong.rows(1, 200, 2))
        assert first < 8, "probes of every shown query see nothing"
    seen = check(found, {"dk": answer["dk"]})
    assert seen.query is not None and f"query head {seen.query[0]}, query {seen.query[1]}" in str(seen)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_same_number_of_keys_elsewhere_is_seen(dtype):
    """A window that is shifted by one: lse is right and out, dk, dv are not."""
    mask = Mask((Causal(), Window(8)))
    rows = mask.rows(1, 128, 2)
    found = probe(mask, rows, heads=4, dim=32, dtype=dtype)
    answer = answer_of(found, mask, rows)
    for name in ("out", "dk", "dv"):
        shifted = answer[name].roll(1, 2)
        assert check(found, {name: shifted}).tensor == name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_wrong_head_batch_and_hop(dtype):
    mask = Mask((Causal(),))
    rows = mask.rows(2, 96, 4)
    found = probe(mask, rows, heads=8, dim=32, dtype=dtype)
    assert check(found, answer_of(found, mask, rows)) is None
    v = asked_of(found, rows)[2]
    for other in (v.flip(1), v[:, [0, 2, 1, 3]], v.flip(0)):
        assert check(found, answer_of(found, mask, rows, v=other)).tensor == "out"
    local = Mask((Causal(), Documents.packed([48, 48], [48, 48])))
    missing = check(found, answer_of(found, local, local.rows(2, 96, 4)))
    assert missing.tensor == "lse" and missing.index == (0, 0, 48)
    swapped = answer_of(found, mask, rows)
    assert check(found, {"dk": swapped["dv"]}).tensor == "dk"
    assert check(found, {"dv": swapped["dv"].roll(48, 2)}).tensor == "dv"
    assert check(found, {"dq": torch.full_like(swapped["dq"], math.nan)}).tensor == "dq"


def test_counts_are_exact_in_long_rows():
    tokens = 1 << 16
    mask = Mask((Causal(),))
    found = probe(mask, mask.rows(1, tokens, 1), heads=1, dim=8, dtype=torch.bfloat16)
    lse = found.lse.float()
    assert check(found, {"lse": lse}) is None
    lse[0, 0, -1] = torch.tensor(tokens - 1.0).log()
    seen = check(found, {"lse": lse})
    assert seen.index == (0, 0, tokens - 1) and seen.expected == pytest.approx(math.log(tokens))


def test_all_shown_queries_appear_in_turn():
    mask = Mask((Causal(),))
    rows = mask.rows(1, 40, 2)
    shown = set()
    for first in range(10):
        found = probe(mask, rows, heads=4, dim=8, first=first)
        shown |= set(zip(found.head.flatten().tolist(), found.query.flatten().tolist(), strict=True))
    assert shown == {(head, query) for head in range(4) for query in range(40)}


def test_value_dim_too_small():
    mask = Mask((Causal(),))
    with pytest.raises(ValueError, match="at least 8, got 4"):
        probe(mask, mask.rows(1, 16, 1), heads=1, dim=16, value_dim=4)


@pytest.mark.parametrize("scale", [None, -0.4])
def test_excerpts_are_the_truth(draw, make_mask, scale):
    tokens = 150
    mask = make_mask(tokens)
    q, k, v, dout = draw(tokens, dim=16, value_dim=24, dtype=torch.bfloat16)
    rows = mask.rows(1, tokens, 2)
    whole = truth(q, k, v, dout, mask, rows, scale, terms=False)
    q, dout = (x.masked_fill(~whole.live[..., None], math.nan) for x in (q, dout))
    k, v = (x.masked_fill(~whole.seen[..., None], math.nan) for x in (k, v))
    chosen = torch.tensor([0, 1, 51, 52, 77, 149])
    found = excerpt.of_queries(q, k, v, dout, mask, rows, chosen, scale)
    for x, expected in zip(found, (whole.out, whole.lse, whole.dq), strict=True):
        torch.testing.assert_close(x, expected[:, :, chosen], rtol=1e-12, atol=1e-13)
    found = excerpt.of_keys(q, k, v, dout, mask, rows, chosen, scale)
    for x, expected in zip(found, (whole.dk, whole.dv), strict=True):
        torch.testing.assert_close(x, expected[:, :, chosen], rtol=1e-12, atol=1e-13)
