"""Metrics against numbers worked out by hand."""

import math

import pytest

from reports import metrics, record
from reports.summary import summary


def test_times_and_rates(trial):
    one = trial(world=2)
    area = 2010
    assert metrics.forward_ms(one) == pytest.approx(3.0)
    assert metrics.step_ms(one) == pytest.approx(7.0)
    assert metrics.tflops_forward(one) == pytest.approx(2 * area * 64 / 3e-3 / 2 / 1e12)
    assert metrics.tflops_step(one) == pytest.approx(2 * area * (64 + 160) / 7e-3 / 2 / 1e12)


def test_balance_and_exchange(trial):
    one = trial(world=2)
    assert metrics.load_imbalance(one) == pytest.approx(1010 / 1005)
    assert metrics.time_imbalance(one) == pytest.approx(0.007 / 0.0065)
    assert metrics.sent_over_need(one) == pytest.approx(4.0)
    assert metrics.remote_share(one) == pytest.approx(0.5)


def test_limits_of_a_step(trial):
    one = trial(world=2)
    assert metrics.share_forward(one) == pytest.approx(2 / 3) and metrics.share_step(one) == pytest.approx(5.6 / 7)
    assert metrics.exposed_ms(one) == pytest.approx(0.5)
    assert metrics.sent_mb(one) == pytest.approx(0.004096) and metrics.extra_gib(one) == 3
    other = trial(world=2)
    other["measurement"]["step_s"] = [0.014]
    assert metrics.times_of(one, other) == pytest.approx(2) and metrics.times_of(one, other, "forward_s") == 1
    del other["measurement"]["bound_step_s"], other["measurement"]["silent_step_s"]
    assert metrics.share_step(other) is None is metrics.exposed_ms(other)


def test_a_summary_tells_the_speed_of_trials_that_took_turns_or_have_a_bound(results_file, trial):
    plain = trial(dtype="bf16", measurement=None)
    told = summary([record.read(results_file([trial(), plain]))])
    (line,) = [line for line in told.splitlines() if "0.8 " in line and trial()["case"]["id"] in line]
    assert line.split()[2:5] == ["0.667", "0.8", "0.5"] and line.split()[5] == "3"
    assert "share of the bound" not in summary([record.read(results_file([plain], name="plain.jsonl"))])


def test_bytes_without_need_are_infinite_and_none_are_no_figure(trial):
    one = trial()
    one["work"]["need_bytes"] = [0, 0]
    assert metrics.sent_over_need(one) == math.inf
    one["measurement"]["bytes_sent"] = [0, 0]
    assert metrics.sent_over_need(one) is None


def test_a_nan_ratio_is_the_worst_and_levels_stay_apart(trial):
    one = trial()
    one["deviations"][2]["ratio"] = math.nan
    one["deviations"].append({"tensor": "out", "ratio": 1.5, "level": "strict"})
    assert metrics.worst(one)["tensor"] == "dq"
    assert metrics.strict_verdict(one) == "FAIL" and metrics.strict_verdict(trial()) is None


@pytest.mark.parametrize("column", metrics.COLUMNS, ids=lambda column: f"{column.title}-{column.unit}")
def test_every_column_is_described_and_none_where_nothing_was_measured(trial, column):
    assert column.of.__doc__ and column.better in ("lower", "higher")
    assert column.of(trial(verdict="ERROR", deviations=[], measurement=None, work=None)) is None
    assert column.of(trial()) is not None
