"""What one rank or one implementation does behind the others' backs: settings left changed, lse on one rank alone."""

import time

import pytest
import torch

from cases import catalogue
from harness.implementation import load
from harness.ranks import run_threads
from harness.trial import UNTIMED, run_trial

CASE = catalogue.select(["causal/even"], worlds=[1], dtypes=["fp64"])[0]


class Leaves(type(load("dense"))):
    """The dense implementation with a habit."""

    name, in_process = "leaves", True

    def __init__(self, habit):
        self.habit = habit

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def careless(q, k, v):
            results = step(q, k, v)
            self.habit()
            return results

        return careless


def trial(implementation, case=CASE):
    outcome = run_threads(case.world, lambda ranks: run_trial(case, implementation, ranks, UNTIMED), 30)
    return outcome.results[0]


@pytest.mark.parametrize(("habit", "setting"), [
    (lambda: torch.set_grad_enabled(False), "grad mode"),
    (lambda: torch.set_default_dtype(torch.float64), "default dtype"),
    (lambda: torch.use_deterministic_algorithms(True), "deterministic algorithms"),
    (lambda: torch.set_float32_matmul_precision("high"), "precision of fp32 products"),
    (lambda: torch.autograd.set_detect_anomaly(True), "anomaly mode"),
    (lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x.float(), lambda x: x).__enter__(),
     "hooks on saved tensors"),
    (lambda: setattr(torch.Tensor, "softmax", lambda x, dim: x), "methods of Tensor"),
])
def test_a_setting_left_changed_is_named_and_put_back(habit, setting):
    record = trial(Leaves(habit))
    assert record["verdict"] == "FAIL"
    assert f"torch's {setting} is left changed on rank 0" in record["reason"]
    assert trial(load("dense"))["verdict"] == "PASS"
    assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
    assert not torch.are_deterministic_algorithms_enabled() and not torch.is_anomaly_enabled()
    assert torch.ones(2).softmax(0).sum() == 1


def test_a_clock_left_standing_is_named():
    kept = time.perf_counter
    record = trial(Leaves(lambda: setattr(time, "perf_counter", lambda: 1.0)))
    assert "Python's clock is left changed on rank 0" in record["reason"] and time.perf_counter is kept


class HidesLse(type(load("ring"))):
    """The ring, with lse on rank 1 alone."""

    def open(self, case, group):
        session = super().open(case, group)
        load_ring = session.load

        def hiding(batch):
            step = load_ring(batch)

            def hidden(q, k, v):
                out, lse = step(q, k, v)
                return out, lse if group.rank else None

            return hidden

        session.load = hiding
        return session


def test_lse_on_one_rank_alone_is_no_lse_not_offered():
    case = catalogue.select(["causal/even"], worlds=[2], dtypes=["fp64"])[0]
    record = trial(HidesLse(), case)
    assert record["verdict"] == "FAIL" and "ranks disagree on whether lse is offered" in record["reason"]
