"""What figures say of fixed records: the numbers of their tables, and that the drawings carry the same."""

import math
import re

import pytest

from reports import metrics
from reports.figures import axes
from reports.figures.conformance import conformance
from reports.figures.coverage import IDS, coverage
from reports.figures.errors import errors
from reports.figures.history import history
from reports.figures.load import load
from reports.figures.samples import samples
from reports.figures.scaling import strong, weak
from reports.figures.sizes import memory, throughput
from reports.figures.timeline import timeline
from reports.figures.traffic import traffic
from reports.figures.values import short
from reports.record import Results, Run


def words(figure):
    return re.findall(r"<text[^>]*>([^<]*)</text>", figure.svg)


def timed(trial, seconds, **changes):
    one = trial(**changes)
    one["measurement"]["step_s"] = seconds if isinstance(seconds, list) else [seconds]
    return one


def test_a_cell_of_the_matrix_is_the_worst_of_its_trials(trial):
    figure = conformance(
        [
            trial(ratio=0.25),
            trial(ratio=0.7, layout="zigzag"),
            trial(dtype="bf16", verdict="FAIL", ratio=810),
            trial(dtype="fp32", verdict="ERROR", deviations=[]),
            trial(world=4, verdict="SKIP"),
            trial(world=4, dtype="bf16", ratio=math.nan, verdict="FAIL"),
        ]
    )
    assert figure.rows == (
        ("packed/even", "ring", "2", "fp64", "2", "PASS", "0.7"),
        ("packed/even", "ring", "2", "bf16", "1", "FAIL", "810"),
        ("packed/even", "ring", "2", "fp32", "1", "ERROR", "–"),
        ("packed/even", "ring", "4", "fp64", "1", "SKIP", "0.25"),
        ("packed/even", "ring", "4", "bf16", "1", "FAIL", "nan"),
    )
    assert [one for one in words(figure) if one[0] in "✓✗!–"][4:] == ["✗810", "!", "✓0.70", "✗nan", "–"]
    assert all(f'<path class="{tint}"' in figure.svg.split("packed/even", 1)[1] for tint in ("p3", "f1", "er", "sk"))


def test_hundreds_of_names_fold_to_a_row_a_group_and_failures_stay(trial):
    trials = [
        trial(f"{group}/case{index}", ratio=index / 300) for group in ("packed", "causal") for index in range(200)
    ]
    trials[7] = trial("packed/case7", verdict="FAIL", ratio=5)
    figure = conformance(trials)
    assert {"packed: 199 names", "causal: 200 names", "packed/case7", "✗5.00"} <= set(words(figure))
    assert "399 names that pass everywhere" in figure.caption and len(figure.rows) == 400
    assert float(re.search(r'height="([\d.]+)"', figure.svg)[1]) < 200


def test_more_failures_than_rows_are_counted_and_none_is_lost(trial):
    figure = conformance([trial(f"packed/case{index}", verdict="FAIL", ratio=5) for index in range(400)])
    assert "packed: 250 more that fail" in words(figure) and len(figure.rows) == 400


def test_coverage_counts_passed_failed_and_skipped_of_every_rule(trial):
    figure = coverage([trial(), trial(verdict="FAIL"), trial(verdict="ERROR"), trial(verdict="SKIP")])
    told = {row[0]: row[1:] for row in figure.rows}
    assert list(told) == list(IDS) and told["A3"] == ("ring", "1", "2", "1", "✗ 1/3")
    assert told["D9"] == ("ring", "0", "0", "0", "–") and figure.head[-1] == "world 2"
    assert words(figure).count("✗ 1/3") == 3 and words(figure).count("not asked") == len(IDS) - 3
    assert "No trial asked for A2, A4" in figure.caption


def test_speed_stands_over_tokens_with_its_bound(trial):
    one = trial()
    figure = throughput([one])
    assert figure.rows[0][5:] == ("256", short(metrics.tflops_step(one)), short(metrics.bound_tflops(one)), "0.8")
    assert (
        metrics.tflops_step(one) / metrics.bound_tflops(one)
        == pytest.approx(metrics.share_step(one))
        == pytest.approx(0.8)
    )
    assert 'class="limit"' in figure.svg and "kernel bound" in words(figure)
    del one["measurement"]["bound_step_s"]
    assert "kernel bound" not in words(throughput([one])) and "Plain dashes" not in throughput([one]).caption


def test_too_many_series_leave_the_world_that_most_implementations_have(trial):
    trials = [trial(world=world) for world in (1, 2, 4, 8) for _ in range(3)]
    for index, one in enumerate(trials):
        one["implementation"].update(name=f"made-{index % 3}", spec=f"made-{index % 3}")
    told = set(words(throughput(trials)))
    assert {"made-0 w8", "made-1 w8", "made-2 w8"} <= told and "made-0 w1" not in told
    assert "More series are in the table only: 9." in throughput(trials).caption and len(throughput(trials).rows) == 12


def test_strong_scaling_is_time_on_the_fewest_ranks_over_time(trial):
    figure = strong(
        [
            timed(trial, 8.0, world=1),
            timed(trial, 5.0, world=2),
            timed(trial, 4.0, world=4),
            timed(trial, 1.0, world=2, dtype="bf16"),
        ]
    )
    assert [row[2:] for row in figure.rows] == [
        ("1", "256", "8000", "1", "1"),
        ("2", "256", "5000", "1.6", "0.8"),
        ("4", "256", "4000", "2", "0.5"),
    ]
    assert strong([timed(trial, 8.0, world=1), timed(trial, 5.0, world=2, dtype="bf16")]) is None


def test_weak_scaling_holds_tokens_a_rank_and_counts_arithmetic(trial):
    def made(world, tokens, seconds, flops):
        one = timed(trial, seconds, name=f"bench/causal-{tokens}k", world=world)
        one["case"]["tokens"] = tokens * 1024
        one["work"].update(flops_forward=flops, flops_backward=0)
        return one

    figure = weak([made(1, 16, 1.0, 1e9), made(2, 32, 2.5, 4e9), made(2, 16, 1.0, 1e9), made(4, 64, 4.0, 16e9)])
    assert [(row[0], row[2], row[-1]) for row in figure.rows] == [
        ("bench/causal 16k a rank fp64 contiguous", world, told)
        for world, told in (("1", "1"), ("2", "0.8"), ("4", "1"))
    ]


def test_a_timeline_tells_exposed_communication_of_each_rank(trial):
    lane = {
        "phases": [["forward", 0.0, 0.004], ["backward", 0.004, 0.01]],
        "waits": [[0.001, 0.002, 1], [0.005, 0.0065, None]],
        "transfers": [
            {"start": 0.0, "end": 0.003, "kind": "send", "peer": 1, "bytes": 64, "hop": 1, "phase": "forward"},
            {"start": 0.001, "end": 0.003, "kind": "receive", "peer": 1, "bytes": 64, "hop": 7, "phase": "forward"},
        ],
    }
    idle = {**lane, "waits": None, "transfers": None}
    figure = timeline([trial(timeline={"step_s": 0.01, "ranks": [lane, idle]})])
    assert [row[2:] for row in figure.rows] == [
        ("0", "10", "7.5", "2.5", "0.25", "2", "128"),
        ("1", "10", "10", "0", "0", "0", "0"),
    ]
    assert {
        "2.5 ms exposed",
        "25 % of the step",
        "0 ms exposed",
        "forward",
        "backward",
        "sends",
        "receives",
        "1",
        "7",
    } <= set(words(figure))
    assert "collectives" in words(figure) and words(figure).count("collectives") == 1
    assert metrics.exposed_s(lane) == pytest.approx(0.0025) and metrics.compute_s(lane) == pytest.approx(0.0075)


def test_transfers_at_one_time_stand_in_rows_of_their_own(trial):
    moved = [
        {
            "start": 0.001 * n,
            "end": 0.001 * n + 0.0015,
            "kind": "send",
            "peer": 1,
            "bytes": 1,
            "hop": n,
            "phase": "forward",
        }
        for n in range(3)
    ]
    figure = timeline(
        [
            trial(
                timeline={
                    "step_s": 0.01,
                    "ranks": [{"phases": [["forward", 0, 0.01]], "transfers": moved, "waits": []}],
                }
            )
        ]
    )
    places = [float(one) for one in re.findall(r'<text class="hop" x="[\d.]+" y="([\d.]+)"', figure.svg)]
    assert places[0] == places[2] != places[1]


def test_load_is_told_before_and_after_the_layout(trial):
    ran = trial(layout="zigzag")
    ran["work"].update(area_by_rank=[100, 100], area_by_hop=[[60, 40], [40, 60]], need_bytes=[5, 6])
    ran["work"]["layouts"] = {
        "contiguous": {"area_by_rank": [50, 150], "area_by_hop": [[50, 0], [100, 50]], "need_bytes": [0, 9]}
    }
    figure = load([ran])
    assert figure.rows == (
        ("packed/even", "2", "256", "contiguous", "no", "1.5", "50 150", "0.5", "9"),
        ("packed/even", "2", "256", "zigzag", "yes", "1", "100 100", "0.4", "11"),
    )
    assert {"contiguous", "● zigzag", "max/mean 1.50", "max/mean 1.00", "0.50", "25", "30"} <= set(words(figure))
    del ran["work"]["layouts"]
    assert load([ran]) is None and len(load([ran, trial()]).rows) == 2


@pytest.mark.parametrize("dtype, least", [("fp64", 2 * 2048), ("fp32", 2 * 2048), ("bf16", 3 * 2048), ("odd", None)])
def test_least_bytes_are_keys_once_and_gradients_in_the_accumulation_dtype(trial, dtype, least):
    one = trial(dtype=dtype)
    assert metrics.least_bytes(one) == least and metrics.sent_bytes(one) == 2 * 4096
    assert (
        (traffic([one]).rows[0][2:] == ("8192", str(least), f"{8192 / least:.3g}")) if least else traffic([one]) is None
    )
    one["case"]["inputs"] = {"grads": "q"}
    assert metrics.least_bytes(one) is None


def test_bytes_without_need_are_told_and_not_drawn(trial):
    idle = trial(layout="zigzag")
    idle["work"]["need_bytes"] = [0, 0]
    figure = traffic([trial(), idle])
    assert "1 trials sent bytes where none were needed" in figure.caption and figure.rows[1][2:] == ("8192", "0", "∞")


def test_memory_is_in_the_unit_that_fits(trial):
    one = trial()
    assert memory([one]) is None
    one["measurement"]["peak_bytes"] = [2**20, 3 * 2**20]
    assert memory([one]).rows[0][-2] == "3" and memory([one]).head[-2] == "peak MiB"
    one["measurement"]["peak_bytes"] = [2**30, 6 * 2**30]
    assert memory([one]).rows[0][-2] == "6" and "peak GiB of a rank" in words(memory([one]))


def test_error_maps_show_failures_first_and_one_pass(trial):
    maps = [
        {"tensor": "dk", "by": ["tokens", "heads"], "edges": [0, 16, 32], "ratios": [[0.1, 0.2], ["inf", None]]},
        {"tensor": "dk", "by": ["ranks", "owners"], "ratios": [[0.1, 80.0], [0.2, 0.3]]},
    ]
    good = [{"tensor": "out", "by": ["tokens", "heads"], "edges": [0, 16], "ratios": [[0.9]]}]
    figure = errors(
        [
            trial(error_maps=good),
            trial(layout="zigzag", error_maps=[{**good[0], "ratios": [[0.2]]}]),
            trial(verdict="FAIL", dtype="bf16", error_maps=maps),
            trial(verdict="SKIP", error_maps=maps),
        ]
    )
    assert [row[2:] for row in figure.rows] == [
        ("dk", "tokens x heads", "3", "1", "∞", "tokens 16 to 31, head 0"),
        ("dk", "ranks x owners", "4", "1", "80", "rank 0, owner 1"),
        ("out", "tokens x heads", "1", "0", "0.9", "tokens 0 to 15, head 0"),
    ]
    assert figure.rows[2][0] == "packed/even-contiguous-w2-fp64" and "e5" in figure.svg and "80" in words(figure)


def test_failures_of_one_case_name_have_one_map(trial):
    maps = [{"tensor": "out", "by": ["tokens", "heads"], "edges": [0, 16], "ratios": [[7.0]]}]
    worse = [{**maps[0], "ratios": [[9.0]]}]
    figure = errors([trial(verdict="FAIL", error_maps=maps), trial(verdict="FAIL", layout="zigzag", error_maps=worse)])
    assert [row[0] for row in figure.rows] == ["packed/even-zigzag-w2-fp64"]
    assert "Not shown: 1 more failures with maps." in figure.caption


def test_the_cells_of_an_error_map_cover_it_once(trial):
    ratios = [[0.05 if (bin + head) % 3 else 4.0 for head in range(5)] for bin in range(300)]
    figure = errors(
        [
            trial(
                verdict="FAIL",
                error_maps=[{"tensor": "out", "by": ["tokens", "heads"], "edges": list(range(301)), "ratios": ratios}],
            )
        ]
    )
    drawn = figure.svg.split("dk")[0].split("h0")[0]
    boxes = re.findall(
        r"M([\d.]+) ([\d.]+)h([\d.]+)v", re.search(r'<path class="e4" d="([^"]*)"', drawn.split("worst")[1])[1]
    )
    assert boxes and all(float(x) + float(wide) <= 56 + 700 + 0.1 for x, _, wide in boxes)
    assert figure.rows[0][4:6] == ("1500", "500")


def test_raw_samples_are_dots_over_their_median(trial):
    one = timed(trial, [0.010, 0.012, 0.011, 0.020])
    figure = samples([one])
    assert figure.rows[2][2:] == ("forward + backward", "4", "10", "11.5", "20")
    strips = re.findall(r'<path class="dots" d="([^"]*)"', figure.svg)
    assert [strip.count("h0") for strip in strips] == [3, 2, 4]
    assert metrics.relative_spread(one) == pytest.approx(10 / 11.5)
    many = samples([timed(trial, [0.01, 0.01 + index / 1e4], layout=f"l{index}") for index in range(50)])
    assert (
        "18 more are steadier" in many.caption and len(many.rows) == 96 and "l49" in many.svg and "l1-" not in many.svg
    )


def test_history_follows_cases_by_run_time_and_marks_verdicts(trial):
    def run(day, seconds, verdict, devices=("gpu",)):
        one = timed(trial, seconds, verdict=verdict)
        return Run(
            {"time": f"2026-01-{day:02d}T10:00:00", "environment": {"devices": list(devices), "torch": "2.13"}}, [one]
        )

    runs = [run(3, 0.03, "PASS"), run(1, 0.02, "PASS"), run(2, 0.04, "FAIL"), run(4, 0.9, "PASS", ("other",))]
    figure = history([], [Results("b", runs[:2]), Results("a", runs[2:])])
    assert figure.rows == (
        (
            "packed/even-contiguous-w2-fp64",
            "ring",
            "1 x gpu torch 2.13",
            "3",
            "20 40 30",
            "1.5",
            "broke 2026-01-02T10:00:00, fixed 2026-01-03T10:00:00",
        ),
    )
    assert {"✗1", "✓1", "2026-01-02", "1.50 packed/even-contiguous-w2-fp64"} <= set(words(figure))
    assert "2 verdicts changed" in figure.caption
    assert history([], [Results("a", [runs[0]])]) is None


@pytest.mark.parametrize("values", [[1.0], [0.5, 3], [7, 4096], [1e-7, 1e9], [2.0, 2.0], [1e-20, 1e25]])
@pytest.mark.parametrize("base", [2, 10])
def test_a_logarithmic_scale_holds_its_values_and_has_ticks(values, base):
    scale = axes.logarithmic(values, 0, 100, base)
    assert all(0 <= scale(value) <= 100 for value in values) and 1 <= len(scale.ticks(5)) <= 6
    assert scale(min(values)) <= scale(max(values)) and scale(scale.low / 9) == 0 and scale(0) == 0
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in scale.ticks(5))


@pytest.mark.parametrize(
    "values, high", [([0.97], 1.0), ([437, 800], 800), ([0], 1e-29), ([1.01], 1.5), ([], 1e-29), ([-3, 4], 4)]
)
def test_a_linear_scale_starts_at_zero_and_ends_on_a_round_number(values, high):
    scale = axes.linear(values, 0, 1)
    assert scale.low == (-4 if -3 in values else 0) and scale.high >= max([*values, 0]) and scale.ticks(6)
    assert scale.high == pytest.approx(high, rel=0.35) or not any(values)


def test_labels_are_moved_apart_and_stay_inside():
    placed = axes.spread([50, 50, 51, 99, 100], 12, 0, 100)
    order = sorted(placed)
    assert all(b - a >= 12 - 1e-9 for a, b in zip(order, order[1:])) and order[0] >= 0 and order[-1] <= 100
    assert axes.spread([5], 12, 0, 100) == [5] and axes.spread([], 12, 0, 100) == []
    crowded = sorted(axes.spread([1] * 30, 12, 0, 100))
    assert crowded[-1] <= 100 and crowded[0] >= -1e-9
