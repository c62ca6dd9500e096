"""Relations: right rings keep all of them in every dtype, and each relation is broken by some wrong ring."""

import pytest
import torch

from cases import generate
from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.vision import Vision
from harness import trials
from harness.adapters.dense import Dense
from harness.clock import Timing
from harness.implementation import load
from harness.ranks import run_threads
from tests.harness.samples import causal, mixed

IDS = Documents((((1, 13), (2, 22), (0, 4), (3, 9)),))
PACKED = Scenario("packed/made", "A3", Mask((Causal(), IDS)), Shape(tokens=48, heads=4, kv_heads=2, head_dim=16))
IMAGES = Scenario("vision/made", "A5", Mask((Causal(), IDS, Padding((((20, 23),),)),
                                             Vision((((0, 3), (1, 20), (2, 9), (0, 16)),)))),
                  Shape(tokens=48, heads=2, kv_heads=1, head_dim=16))
UNTIMED = Timing(iters=0)


def related(case, spec):
    made = load(spec) if isinstance(spec, str) else spec
    outcome = run_threads(case.world, lambda ranks: trials.run("relations", case, made, ranks, UNTIMED, "asked"), 60)
    assert not outcome.raised and not outcome.stuck, outcome
    return outcome.results[0]


def broken(record):
    return [one["name"] for one in record["relations"] if one["verdict"] == "FAIL"]


@pytest.mark.parametrize("scenario", [PACKED, IMAGES])
@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
def test_the_ring_keeps_every_relation(scenario, dtype):
    record = related(scenario.at(3, "zigzag", dtype), "ring")
    assert record["verdict"] == "PASS" and record["truth"] == "relations", record["reason"]
    assert {one["verdict"] for one in record["relations"]} == {"PASS"} and len(record["relations"]) >= 8
    assert max(one["ratio"] for one in record["deviations"]) <= 0.8


def test_random_cases_keep_them():
    seen = set()
    for case in generate.cases(21, 25, max_tokens=48):
        record = related(case, "ring")
        assert record["verdict"] == "PASS", (record["reason"], generate.replay(case))
        seen |= {one["name"].split(" of ")[0] for one in record["relations"] if one["verdict"] == "PASS"}
    assert len(seen) == 12


class Layered(Dense):
    """Follows the layouts that are asked for, so that a wrong one shows."""

    own_layout = None


class BySquare(Dense):
    """Squares what each value adds."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: step(q, k, v * v.abs())


class Clipped(Dense):
    """Limits scores, as a softcap does."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: step(q.clamp(-1, 1), k, v)


class ByPosition(Dense):
    """Values of later tokens weigh more."""

    def load(self, case, group, batch):
        step, own = super().load(case, group, batch), self.layout(case, group.size)[group.rank]
        weight = (1 + own.clamp(min=0) / 10)[:, None]
        return lambda q, k, v: step(q, k, v * weight)


class PerWorld(Dense):
    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: step(q * group.size, k, v)


class WithoutWindow(Dense):
    """Loses the first key as soon as there is a window."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        lost = 0.0 if "window" in str(case.mask) else 1.0
        return lambda q, k, v: step(q, k, v * torch.tensor([lost] + [1.0] * (v.shape[2] - 1))[:, None])


class DoutIgnored(Dense):
    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def ignored(q, k, v):
            out, lse = step(q, k, v)
            return out + Ones.apply(out) - out.detach(), lse

        return ignored


class Ones(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        return torch.ones_like(grad) - grad


@pytest.mark.parametrize("wrong, relation", [
    (PerWorld(), "same result on one rank"), (BySquare(), "linear in v"), (DoutIgnored(), "linear in dout"),
    (WithoutWindow(), "a window of 48 tokens"), (Clipped(), "a number added to all scores"),
    (ByPosition(), "packed documents equal separate ones"), (ByPosition(), "documents in another order"),
    (load("sabotage:documents-ignored"), "packed documents"), (load("sabotage:documents-ignored"), "cut in two"),
    (load("sabotage:key-gradients-lost"), "same result on one rank")], ids=lambda value: getattr(value, "name", value))
def test_a_wrong_ring_breaks_its_relation(wrong, relation):
    record = related(PACKED.at(2, "contiguous", "fp64"), wrong)
    assert record["verdict"] == "FAIL", record["reason"]
    assert any(relation in name for name in broken(record)), broken(record)
    assert "breaks a relation" in record["diagnosis"]["headline"]
    assert record["diagnosis"]["again"].endswith("--truth relations")


def test_heads_and_layouts_are_related():
    class Interleaved(Layered):
        def load(self, case, group, batch):
            step, shape = super().load(case, group, batch), case.shape
            order = torch.arange(shape.heads).view(-1, shape.kv_heads).T.flatten()

            def mixed_up(q, k, v):
                out, lse = step(q[:, order], k, v)
                return out[:, order.argsort()], lse[:, order.argsort()]

            return mixed_up

    record = related(PACKED.at(2, "contiguous", "fp64"), Interleaved())
    assert broken(record) == ["grouped heads equal repeated keys and values",
                              "a document cut in two changes only what follows in it"]


def test_what_does_not_fit_is_skipped():
    class OnlyThis(Dense):
        def refuses(self, case, setting):
            return None if case == causal(1, tokens=16) else "nothing else"

    record = related(causal(1, tokens=16), OnlyThis())
    verdicts = {one["name"].split(" ")[0]: one["verdict"] for one in record["relations"]}
    assert record["verdict"] == "PASS" and verdicts["linear"] == "PASS" and verdicts["grouped"] == "SKIP"


def test_undefined_dead_rows_are_left_out():
    class Anything(Dense):
        calls = 0

        def load(self, case, group, batch):
            step = super().load(case, group, batch)

            def filled(q, k, v):
                self.calls += 1
                out, lse = step(q, k, v)
                dead = lse == -torch.inf
                return out.masked_fill(dead[..., None], self.calls), lse.masked_fill(dead, self.calls)

            return filled

    assert related(mixed(2), Anything())["verdict"] == "FAIL"
    declared = Anything()
    declared.variants = frozenset({"dead.undefined"})
    assert related(mixed(2), declared)["verdict"] == "PASS"


def test_on_living_ranks(pool):
    record = pool.run(PACKED.at(2, "zigzag", "fp64"), "ring", UNTIMED, 60, "relations")
    assert record["verdict"] == "PASS" and "same result on one rank" in {one["name"] for one in record["relations"]}
