"""One trial at a time, its ranks as threads: honest rings pass, declared variants count, broken promises show."""

from dataclasses import replace

import pytest
import torch

from harness.adapters.dense import Dense
from harness.clock import Timing
from harness.ranks import run_threads
from harness.trial import UNTIMED, run_trial
from tests.harness.samples import causal, mixed


def trial(case, implementation, timing=UNTIMED):
    outcome = run_threads(case.world, lambda ranks: run_trial(case, implementation, ranks, timing), 90)
    assert not outcome.raised and not outcome.stuck, outcome
    assert all(outcome.results[rank] is None for rank in range(1, case.world))
    return outcome.results[0]


def ratios(record):
    return {deviation["tensor"]: deviation["ratio"] for deviation in record["deviations"]}


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16"])
def test_an_honest_ring_passes(world, dtype):
    record = trial(mixed(world, dtype), Dense())
    assert record["verdict"] == "PASS" and max(ratios(record).values()) < 0.8
    assert record["work"]["area"] == sum(record["work"]["area_by_rank"]) > 0
    assert len(record["picture"]["owner"]) == record["picture"]["size"]


@pytest.mark.parametrize("inputs", [{"strides": "unbind"}, {"strides": "transposed"}, {"dout": "expanded"},
                                    {"dout": "ones"}, {"grads": "q"}, {"grads": "kv"}, {"spread": 4.0}])
def test_every_form_of_inputs_passes(inputs):
    record = trial(causal(2, **inputs), Dense())
    assert record["verdict"] == "PASS"
    assert set(ratios(record)) == {"out", "lse", *(f"d{name}" for name in inputs.get("grads", "qkv"))}


@pytest.mark.parametrize("poison", ["huge", "nan"])
def test_poison_is_levelled(poison):
    case = replace(mixed(), inputs=replace(mixed().inputs, poison=poison))
    record = trial(case, Dense())
    assert record["verdict"] == "PASS"
    assert {deviation["level"] for deviation in record["deviations"]} == {"strict" if poison == "nan" else "required"}


class Silent(Dense):
    """Offers no lse."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: (step(q, k, v)[0], None)


def test_a_missing_lse_is_not_offered_and_not_passed():
    record = trial(causal(), Silent())
    assert record["verdict"] == "PASS" and ratios(record)["lse"] is None


class Undefined(Dense):
    """Leaves anything in dead rows."""

    def load(self, case, group, batch):
        step, padded = super().load(case, group, batch), batch.padded.clone()
        own = self.layout(case, group.size)[group.rank]

        def filled(q, k, v):
            out, lse = step(q, k, v)
            dead = padded[:, own][:, None]
            return out.masked_fill(dead[..., None], 5.0), lse.masked_fill(dead, 5.0)

        return filled


def test_dead_rows_are_left_out_only_when_declared():
    record = trial(mixed(), Undefined())
    assert record["verdict"] == "FAIL" and record["diagnosis"]["requirement"].startswith("B3")
    declared = Undefined()
    declared.variants = frozenset({"dead.undefined"})
    assert trial(mixed(), declared)["verdict"] == "PASS"


class Refusing(Dense):
    def __init__(self, reasons):
        self.reasons = list(reasons)

    def refuses(self, case, setting):
        return self.reasons.pop()


def test_a_refusal_is_a_skip_and_a_refusal_of_some_ranks_a_failure():
    record = trial(causal(), Refusing(["no causal masks"] * 2))
    assert (record["verdict"], record["reason"]) == ("SKIP", "no causal masks")
    record = trial(causal(), Refusing(["no causal masks", None]))
    assert record["verdict"] == "FAIL" and record["reason"].startswith("D7")


class Drifting(Dense):
    """Right until it was called five times."""

    calls = 0

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def drifting(q, k, v):
            self.calls += 1
            out, lse = step(q, k, v)
            return (out * 1.01 if self.calls > 5 else out), lse

        return drifting


def test_timing_measures_and_verifies_again():
    record = trial(causal(1), Dense(), Timing(warmup=1, iters=4))
    measured = record["measurement"]
    assert len(measured["forward_s"]) == len(measured["step_s"]) == 4 and min(measured["step_s"]) > 0
    assert trial(causal(1), Drifting())["verdict"] == "PASS"
    late = trial(causal(1), Drifting(), Timing(warmup=1, iters=4))
    assert late["verdict"] == "FAIL" and "1.01 times the truth" in late["diagnosis"]["headline"]


class Raising(Dense):
    def load(self, case, group, batch):
        if group.rank == 1:
            raise RuntimeError("no memory")
        return super().load(case, group, batch)


def test_an_exception_of_one_thread_ends_the_others():
    case = causal(3)
    outcome = run_threads(3, lambda ranks: run_trial(case, Raising(), ranks), 20)
    assert str(outcome.raised[1]) == "no memory" and not outcome.stuck and not outcome.results


def test_a_wholly_padded_row_may_answer_with_its_one_key():
    from cases.case import Scenario, Shape
    from cases.mask import Mask
    from cases.rules.padding import Padding

    scenario = Scenario("padding/row", "A4", Mask((Padding((((0, 16),), ())),)), Shape(batch=2, tokens=16))
    declared = Singleton()
    assert trial(scenario.at(2, "contiguous", "fp64"), declared)["verdict"] == "FAIL"
    declared.variants = frozenset({"dead.singleton"})
    assert trial(scenario.at(2, "contiguous", "fp64"), declared)["verdict"] == "PASS"


class Singleton(Dense):
    """A wholly padded row attends its key 0."""

    def load(self, case, group, batch):
        padding = batch.padding.clone()
        whole = padding.all(1)
        padding[whole] = False
        regions = torch.zeros_like(padding, dtype=torch.int64)
        regions[whole] = torch.arange(padding.shape[1]).clamp(max=1)
        from harness.adapters.dense import Gathered, attend

        own = self.layout(case, group.size)[group.rank]
        allowed = (regions == 0)[:, None, None, :].expand(-1, case.shape.heads, len(own), -1) & (own >= 0)[:, None]

        def step(q, k, v):
            k, v = (Gathered.apply(x, group)[:, :, :batch.tokens] for x in (k, v))
            return attend(q, k, v, allowed, case.scale)

        return step
