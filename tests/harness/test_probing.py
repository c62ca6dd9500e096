"""Trials by probes: right rings pass on every mask, dtype and variant; faults of masks and routes fail with words."""

from dataclasses import replace

import pytest
import torch

from cases.case import Inputs, Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.window import Window
from harness import trials
from harness.adapters.dense import Dense
from harness.clock import Timing
from harness.implementation import load
from harness.probing import firsts
from harness.ranks import run_threads
from tests.harness.samples import causal, mixed

IDS = Documents((((1, 60), (2, 37), (0, 7), (3, 24)),))
UNTIMED = Timing(iters=0)
WIDE = Scenario("probed/made", "A1 A2 A3", Mask((Causal(), Window(20), IDS)), Shape(tokens=128, head_dim=16))


def probed(case, spec, timing=UNTIMED):
    made = load(spec) if isinstance(spec, str) else spec
    outcome = run_threads(case.world, lambda ranks: trials.run("probes", case, made, ranks, timing, "asked"), 60)
    assert not outcome.raised and not outcome.stuck, outcome
    return outcome.results[0]


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "bf16", "fp16"])
@pytest.mark.parametrize("world, layout", [(1, "contiguous"), (3, "zigzag"), (4, "striped")])
def test_the_ring_passes(dtype, world, layout):
    case = replace(mixed(world, dtype), layout=layout)
    found = probed(case, "ring")
    assert found["verdict"] == "PASS" and found["truth"] == "probes", found["reason"]
    assert {one["tensor"] for one in found["deviations"]} == {"out", "lse", "dq", "dk", "dv"}
    assert max(one["ratio"] for one in found["deviations"]) <= 0.8
    assert found["probes"] == {"rounds": len(firsts(case)[0]), "shown": 1.0}


@pytest.mark.parametrize("inputs", [{"poison": "huge"}, {"poison": "nan"}, {"grads": "q"}, {"strides": "transposed"}])
def test_poison_and_forms_pass(inputs):
    found = probed(replace(mixed(2), inputs=Inputs(**inputs)), "ring")
    assert found["verdict"] == "PASS", found["reason"]
    assert {one["level"] for one in found["deviations"]} == {"strict" if inputs.get("poison") == "nan" else "required"}


@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
@pytest.mark.parametrize("fault, words", [
    ("window-too-wide", "sees 21 keys, not 20"), ("window-too-narrow", "sees 19 keys, not 20"),
    ("documents-ignored", "keys, not"), ("causal-dropped", "keys, not 1"),
    ("key-gradients-lost", "does not reach key"), ("key-gradients-times-world", "dv"),
    ("lse-in-base-two", "keys, not 2")])
def test_a_fault_fails_and_the_words_name_a_pair(fault, words, dtype):
    found = probed(WIDE.at(2, "contiguous", dtype), f"sabotage:{fault}")
    assert found["verdict"] == "FAIL" and words in found["diagnosis"]["headline"], found["diagnosis"]
    assert found["diagnosis"]["again"].endswith("--truth probes")


class OtherKeys(Dense):
    """As many keys as it should, each one token too early."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: step(q, k, torch.cat([v[:, :, :1], v[:, :, :-1]], 2))


class OneRoute(Dense):
    """What one query of one head gives to one key never arrives."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def routed(q, k, v):
            out, lse = step(q, k, v)
            lost = torch.zeros(*out.shape[:3], 1, dtype=torch.bool)
            lost[:, 2, -3] = group.rank == 0
            return torch.where(lost, out.detach(), out), lse

        return routed


def test_other_keys_and_one_lost_route_are_seen():
    found = probed(causal(1), OtherKeys())
    assert found["verdict"] == "FAIL" and "sees as many keys as it should" in found["diagnosis"]["headline"]
    found = probed(causal(2), OneRoute())
    headline = found["diagnosis"]["headline"]
    assert found["verdict"] == "FAIL" and "what query 29 of head 2 gives does not reach" in headline


class Anything(Dense):
    """Leaves 5.0 in rows that see no key."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def filled(q, k, v):
            out, lse = step(q, k, v)
            dead = lse == -torch.inf
            return out.masked_fill(dead[..., None], 5.0), lse.masked_fill(dead, 5.0)

        return filled


def test_variants_of_dead_rows_count():
    assert probed(mixed(2), Anything())["verdict"] == "FAIL"
    declared = Anything()
    declared.variants = frozenset({"dead.undefined"})
    assert probed(mixed(2), declared)["verdict"] == "PASS"
    rows = Scenario("padding/row", "A4", Mask((Padding((((0, 16),), ())),)), Shape(batch=2, tokens=16))
    declared.variants = frozenset({"dead.singleton"})
    assert probed(rows.at(2, "contiguous", "fp64"), declared)["verdict"] == "PASS"


def test_timing_is_measured_and_the_last_probe_is_fresh():
    found = probed(causal(2), "ring", Timing(1, 2))
    assert found["verdict"] == "PASS" and len(found["measurement"]["step_s"]) == 2


def test_narrow_values_are_refused_and_large_cases_choose_probes():
    narrow = Scenario("probed/narrow", "A1", Mask((Causal(),)), Shape(tokens=16, value_dim=4))
    assert probed(narrow.at(1, "contiguous", "fp64"), "dense")["verdict"] == "SKIP"
    assert trials.kind_of(causal(), "auto") == "dense" and trials.kind_of(causal(tokens=1 << 15), "auto") == "probes"
    assert trials.kind_of(causal(), "probes") == "probes"


def test_a_long_case_runs_in_seconds():
    case = Scenario("probed/long", "A1", Mask((Causal(), Documents.packed([20000, 768, 12000]))),
                    Shape(tokens=32768, heads=1, kv_heads=1, head_dim=16)).at(2, "zigzag", "bf16")
    assert firsts(case)[0][:2] == [0, 64]
    found = probed(replace(case, shape=replace(case.shape, tokens=2048), mask=Mask((Causal(),))), "ring")
    assert found["verdict"] == "PASS" and found["probes"]["shown"] < 1
