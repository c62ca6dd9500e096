"""What a bench measures beside a step: kernels alone, a silent exchange, bytes, memory, and how the table shows it."""

from types import SimpleNamespace

import pytest
import torch

from cases import catalogue
from harness import columns, limits, run, usage
from harness.adapters.ring import Ring
from harness.clock import Timing
from harness.environment import environment
from harness.implementation import Session
from harness.ranks import run_threads
from harness.trial import run_trial
from reports import metrics, record
from tests.harness.samples import causal, mixed

BOUND = Timing(warmup=1, iters=2, bound=True)


def trial(case, made, timing=BOUND):
    outcome = run_threads(case.world, lambda ranks: run_trial(case, made, ranks, timing), 60)
    assert not outcome.raised and not outcome.stuck, outcome
    return outcome.results[0]


@pytest.mark.parametrize("case", [causal(2), mixed(2, "bf16"), mixed(3)], ids=lambda case: case.id)
def test_a_ring_is_timed_beside_its_kernels_and_beside_silence(case):
    found = trial(case, Ring())
    measured = found["measurement"]
    assert found["verdict"] == "PASS" and measured["bound_kernel"] == "torch-cpu"
    for name in ("bound_forward_s", "bound_step_s", "silent_forward_s", "silent_step_s"):
        assert len(measured[name]) == 2 and min(measured[name]) > 0
    assert 0 < metrics.share_step(found) < 100 and metrics.exposed_ms(found) is not None
    assert all(measured["bytes_sent"]) and measured["peak_bytes"] is None is measured["extra_bytes"]


def test_limits_are_measured_only_where_they_are_asked_for():
    assert "bound_step_s" not in trial(causal(1), Ring(), Timing(1, 2))["measurement"]


class Foreign:
    """A session that knows nothing of limits."""

    def __init__(self, session):
        for name in ("load", "traffic", "scope", "close"):
            setattr(self, name, getattr(session, name))


class Opened(Ring):
    def open(self, case, group):
        return Foreign(super().open(case, group))


def test_a_session_without_limits_is_timed_all_the_same():
    found = trial(causal(2), Opened())
    assert found["verdict"] == "PASS" and found["measurement"]["bound_kernel"] is None
    assert metrics.share_step(found) is None is metrics.exposed_ms(found)
    assert Session(None, None, None).silent(None) is None and Session(None, None, None).kernels(*[None] * 5) == {}


def test_the_fastest_kernel_is_that_whose_slowest_rank_ends_first(monkeypatch):
    seconds = {"even": {0: 3.0, 1: 3.0}, "uneven": {0: 1.0, 1: 4.0}}

    def lap(run, ranks):
        return SimpleNamespace(step=seconds[run][ranks.group.rank])

    monkeypatch.setattr(limits, "kernel_lap", lap)
    offered = {name: name for name in seconds}
    outcome = run_threads(2, lambda ranks: limits.fastest(offered, ranks), 20)
    assert outcome.results == {0: ("even", "even"), 1: ("even", "even")}
    assert limits.fastest({}, None) == (None, None) and limits.fastest({"only": 1}, None) == ("only", 1)


class Memory:
    """A device whose allocator is told what happens."""

    def __init__(self, monkeypatch):
        self.held = self.most = 0
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: self.held)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: self.most)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: setattr(self, "most", self.held))

    def take(self, size):
        self.held += size
        self.most = max(self.most, self.held)


def test_extra_memory_is_the_peak_beyond_results_with_what_the_session_keeps(monkeypatch):
    memory, used = Memory(monkeypatch), usage.Usage(SimpleNamespace(type="cuda"))
    memory.take(1000)
    with used.kept_by_session():
        memory.take(7)
    memory.take(500)
    for cached in (30, 0):
        with used.kept_by_session():
            with used.lap() as results:
                memory.take(cached + 100 + 64)
                results.append(torch.zeros(16))
                memory.take(-100)
            memory.take(-64)
        memory.take(9)
    assert (used.kept, used.extra) == (37, 7 + 30 + 100) and used.peak == 1546 + 100 + 64


def test_a_bench_run_prints_its_own_columns_and_compares(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    command = ["--cases", "bench/documents-4k-contiguous-w2-bf16", "--tokens", "128", "--in-process", "--iters", "2"]
    assert run.main([*command, "--impl", "ring,dense", "--json", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = next(line for line in lines if "error/budget" in line)
    rows = [line for line in lines if line.startswith("[")]
    assert names.split()[2:] == ["impl", "tokens", "heads", "dtype", "TFLOP/s", "share", "TFLOP/s", "share", "time",
                                 "MB", "peak", "error/budget", "verdict"]
    assert len(rows) == 2 and names.index("verdict") == rows[0].index("PASS") == rows[1].index("PASS")
    (at,) = [number for number, line in enumerate(lines) if "time over that of the first" in line]
    assert lines[at + 1].split()[1:3] == ["bench/documents-4k-contiguous-w2-bf16", "ring"] and "dense" in lines[at + 1]
    one, other = record.read(path).trials
    assert one["measurement"]["bound_step_s"] == other["measurement"]["bound_step_s"]
    assert metrics.times_of(one, other) > 1


def test_columns_of_a_mixed_run_are_the_plain_ones():
    assert columns.columns_of({"bench"}) is columns.BENCH
    assert columns.columns_of({"bench", "packed"}) is columns.columns_of(set()) is columns.PLAIN


def test_a_long_bench_case_is_timed_and_held_to_probes_in_one_record(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    command = ["--cases", "bench/images-32k", "--tokens", "64", "--in-process", "--iters", "1", "--truth", "probes"]
    assert run.main([*command, "--ranks", "2", "--json", str(path)]) == 0
    (found,) = record.read(path).trials
    assert found["truth"] == "probes" and found["probes"]["rounds"] >= 2 and found["measurement"]["bound_step_s"]
    assert len(found["deviations"]) == 5


def test_numbers_of_a_bench_stand_tokens_before_heads():
    from harness import inputs

    (case,) = catalogue.select("bench/causal-64k", worlds=(2,), tokens=64)
    local = inputs.shard(inputs.draw(case), torch.arange(32)[None], case)
    for x in (*local.tensors(), *inputs.another(local, case, 1).tensors()):
        assert x.transpose(1, 2).is_contiguous() and not x.is_contiguous()


def test_the_environment_has_a_place_for_the_matrix_product_of_the_day():
    assert environment("cpu", "gloo", 1)["matmul_tflops"] is None
