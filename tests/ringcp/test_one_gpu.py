"""The script that measures one GPU: what it makes of a profiler's events, and that it runs where there is no GPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import one_gpu
from benchmarks.timelines import short, timeline


def test_a_timeline_tells_gaps_from_kernels_that_overlap():
    events = [(130.0, 10.0, "b"), (100.0, 20.0, "a"), (110.0, 15.0, "a"), (142.0, 8.0, "b")]
    found = timeline(events, 90.0)
    assert found["span_ms"] == pytest.approx(0.050) and found["busy_ms"] == pytest.approx(0.043)
    assert (found["first_us"], found["gap_us"], found["largest_gap_us"], found["long_gaps"]) == (10.0, 7.0, 5.0, 0)
    assert found["kernels"] == [{"name": "a", "count": 2, "ms": 0.035}, {"name": "b", "count": 2, "ms": 0.018}]


def test_a_step_without_kernels_has_no_timeline():
    assert set(timeline([], 1.0).values()) == {None}


def test_names_lose_their_arguments():
    assert short("void at::native::(anonymous namespace)::fill<float, 4>(int)") == "fill<float, 4>"
    assert short("kernel_cutlass_kernel_FlashFwd_object_at__tensor000") == "kernel_cutlass_kernel_FlashFwd"


def test_one_failure_leaves_a_line_and_the_rest_goes_on(tmp_path, monkeypatch, capsys):
    def broken(*_):
        yield "first", lambda: 1 / 0
        yield "second", lambda: {"gb_s": 2.5}

    monkeypatch.setattr(one_gpu, "merges", broken)
    file = tmp_path / "one.jsonl"
    assert one_gpu.main(["--device", "cpu", "--only", "merge", "--json", str(file)]) == 1
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["run", "merge", "merge"]
    assert lines[1]["error"].startswith("ZeroDivisionError") and lines[2]["found"] == {"gb_s": 2.5}
    assert "ZeroDivisionError" in (said := capsys.readouterr().out) and "gb_s 2.5" in said


def test_the_script_measures_small_problems_on_a_cpu(tmp_path):
    script, file = Path(one_gpu.__file__), tmp_path / "one.jsonl"
    command = [sys.executable, str(script), "--device", "cpu", "--tokens", "128", "--laps", "1", "--json", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = [json.loads(line) for line in file.read_text().splitlines()][1:]
    assert {line["kind"] for line in lines} == set(one_gpu.KINDS) and not any("error" in line for line in lines)
    shares = [line["found"]["share"] for line in lines if line["kind"] == "share"]
    assert len(shares) == len(one_gpu.bench.CASES) and min(shares) > 0
