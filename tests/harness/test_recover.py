"""What is read back from a faulty ring: the matrix, the first wrong pair in words, the picture; and it never hurts."""

from dataclasses import replace

import pytest
import torch

from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window
from harness import reading
from harness.adapters.dense import Dense
from harness.implementation import load
from harness.problem import problem_of
from harness.ranks import run_threads
from harness.recover import matrices, recoverable, run_recovery
from harness.trial import agree
from tests.harness.samples import causal

PACKED = Mask((Causal(), Documents((((1, 15), (2, 17)),))))


def case_of(mask, world=2, dtype="fp64", tokens=32, scale=None, layout="contiguous", **shape):
    scenario = Scenario("packed/made", "A1 A3", mask, Shape(**{"tokens": tokens, "head_dim": 16, **shape}), scale)
    return scenario.at(world, layout, dtype)


def recovered(case, spec):
    made = load(spec) if isinstance(spec, str) else spec
    outcome = run_threads(case.world, lambda ranks: run_recovery(case, made, ranks), 60)
    assert not outcome.raised and not outcome.stuck, outcome
    assert outcome.results[0]["verdict"] == "DONE"
    return outcome.results[0]["recovered"]


MASKS = {
    "packed": PACKED, "window": Mask((Causal(), Window(5))), "full": Mask(),
    "symmetric": Mask((Window(4, variant="symmetric"),)), "padded": Mask((Causal(), Padding((((0, 3), (20, 32)),)))),
    "images": Mask((Causal(), Vision((((0, 9), (1, 12), (0, 11)),)))),
    "regions": Mask((Causal(), Regions.even(32, 8, Router(3, 2, 4)))),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype, scale", [("fp64", None), ("bf16", 0.4), ("fp64", -2.0), ("fp16", None),
                                          ("fp64", 0.0)])
def test_a_correct_ring_reads_back_right(name, dtype, scale):
    case = case_of(MASKS[name], 3, dtype, scale=scale, layout="zigzag", heads=4, kv_heads=2)
    assert recovered(case, "ring") is None


@pytest.mark.parametrize("world", [1, 3])
def test_the_matrices_are_the_attention(world):
    case = case_of(PACKED, world, heads=4, kv_heads=2, value_dim=24)
    problem = problem_of(case, ())

    def work(ranks):
        made = Dense()
        layout, _ = agree(case, made, ranks)
        return matrices(made.open(case, ranks.group), problem, layout, ranks)

    found = run_threads(world, work, 60).results[0]
    assert set(found) == {"out", "dv", "dq", "dk"}
    tokens = torch.arange(32)
    allowed = PACKED.allowed(problem.rows, tokens, tokens).expand(-1, 4, -1, -1)
    for matrix in found.values():
        torch.testing.assert_close(matrix.actual, matrix.expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(found["out"].actual > 0, allowed)
    torch.testing.assert_close(found["out"].expected.sum(-1), torch.ones(1, 4, 32, dtype=torch.float64))
    torch.testing.assert_close(found["dv"].expected, found["out"].expected)


@pytest.mark.parametrize("fault, mask, tensor, words", [
    ("documents-ignored", PACKED, "out",
     "query 15 (rank 0, document 2) sees key 14 (rank 0, document 1): crosses a document, inside a shard"),
    ("window-too-wide", Mask((Causal(), Window(5))), "out",
     "query 5 (rank 0) sees key 0 (rank 0): the key is 5 away and the window holds 5, inside a shard"),
    ("window-too-narrow", Mask((Causal(), Window(5))), "out", "never sees key 0 (rank 0), which it may"),
    ("causal-dropped", PACKED, "out", "the key is later, inside a shard"),
    ("padding-ignored", Mask((Causal(), Padding((((0, 3),),)))), "out", "the key is padding"),
    ("key-gradients-lost", PACKED, "dv", "query 16 (rank 1, document 2) never passes its dout to key 16"),
    ("query-gradient-off", PACKED, "dq", "gradients of scores in dq are off: that of query 16"),
    ("scale-ignored", PACKED, "out", "but weights are off"),
])
def test_what_is_wrong_is_said_and_drawn(fault, mask, tensor, words):
    case = case_of(mask, scale=1.5 if fault == "scale-ignored" else None)
    found = recovered(case, f"sabotage:{fault}")
    assert found["tensor"] == tensor and words in found["sentence"], found["sentence"]
    marks = set("".join(found["grid"]))
    assert len(found["grid"]) == 32 == len(found["ranks"]) and marks & set("Xow")
    drawn = reading.picture(found)
    assert len(drawn) == 34 and drawn[1].startswith("0 ") and drawn[-2].startswith("1 ")


def test_the_picture_shows_each_pair():
    found = recovered(case_of(Mask((Causal(), Window(2))), 1, tokens=5), "sabotage:window-too-wide")
    assert found["grid"] == ["#....", "##...", "X##..", ".X##.", "..X##"]
    assert "all 2 tokens apart" in found["sentence"] and found["counts"]["extra"] == 3 * 4


class OneHeadOneHop(Dense):
    """Head 1 of rank 1 never sees the keys of rank 0."""

    def load(self, case, group, batch):
        whole, local = super().load(case, group, batch), super().load(case, group, _local(batch, case, group, self))

        def step(q, k, v):
            (out, lse), (other, less) = whole(q, k, v), local(q, k, v)
            pick = torch.zeros(1, case.shape.heads, 1, dtype=torch.bool)
            pick[:, 1] = group.rank == 1
            return torch.where(pick[..., None], other, out), torch.where(pick, less, lse)

        return step


def _local(batch, case, group, implementation):
    own = implementation.layout(case, group.size)[group.rank]
    documents = torch.zeros_like(batch.documents)
    documents[:, own] = batch.documents[:, own]
    return replace(batch, documents=documents)


def test_a_missing_hop_of_one_head_is_named():
    found = recovered(case_of(Mask((Causal(), Documents((((1, 32),),)))), heads=2, kv_heads=1), OneHeadOneHop())
    assert found["head"] == 1 and "only in head 1" in found["sentence"]
    assert "all of queries of rank 1 and keys of rank 0" in found["sentence"] and found["counts"]["missing"] == 16 * 16


def test_only_small_cases_are_read_back():
    assert recoverable(causal()) and not recoverable(causal(tokens=512))
    assert not recoverable(case_of(PACKED, heads=32, kv_heads=1, head_dim=8, tokens=128))
