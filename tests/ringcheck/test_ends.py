"""How the command ends when whoever reads leaves, the place for output is full, or Ctrl-C comes at any time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports import record

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
RUN = ["--cases", "packed/even-zigzag-w1-fp64", "packed/even-zigzag-w1-bf16", "--ranks", "1", "--iters", "0"]


def command(*words):
    return [sys.executable, "-m", "ringcheck", *words]


def piped(tmp_path, *words):
    """Exit code and stderr of a command whose stdout nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    ended = subprocess.run(command(*words), cwd=tmp_path, env=ENVIRONMENT, stdout=writes, stderr=subprocess.PIPE,
                           text=True, timeout=120)
    os.close(writes)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(("impl", "code"), [("ring", 0), ("sabotage:lse-in-base-two", 1)])
def test_a_run_goes_on_when_nobody_reads_its_table(tmp_path, impl, code):
    words = [*RUN, "--in-process", "--impl", impl, "--json", "r.jsonl"]
    assert piped(tmp_path, *words) == (code, "")
    found = record.read(tmp_path / "r.jsonl")
    assert len(found.trials) == 2 and found.runs[0].end["exit_code"] == code


@pytest.mark.parametrize("words", [["--help"], ["--list"], ["--version"]])
def test_other_output_that_nobody_reads_is_no_error(tmp_path, words):
    assert piped(tmp_path, *words) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["--list", "--cases", "all"], ["--version"]])
def test_a_full_place_for_other_output_is_one_line_and_code_3(tmp_path, words):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command(*words), cwd=tmp_path, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE,
                               text=True, timeout=120)
    assert ended.returncode == 3 and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("ringcheck: ") and "cannot be written: No space left" in ended.stderr


def test_a_full_place_for_the_table_is_told_and_the_run_goes_on(tmp_path):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command(*RUN, "--in-process", "--json", "r.jsonl"), cwd=tmp_path, env=ENVIRONMENT,
                               stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert ended.returncode == 0
    assert ended.stderr == "ringcheck: the table cannot be written: No space left on device; the run goes on\n"
    assert len(record.read(tmp_path / "r.jsonl").trials) == 2


@pytest.mark.parametrize("seconds", [0.4, 1.5, 3.0, 5.0])
def test_ctrl_c_twice_at_any_time_is_one_line_and_code_3(tmp_path, seconds, interruptible):
    """As a terminal sends it: to every process of the run."""
    words = ["--cases", "packed", "--ranks", "2", "--json", "r.jsonl"]
    started = subprocess.Popen(command(*words), cwd=tmp_path, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    time.sleep(seconds)
    for _ in range(2):
        os.killpg(started.pid, signal.SIGINT)
        time.sleep(0.05)
    try:
        out, err = started.communicate(timeout=30)
    finally:
        started.kill()
    assert started.returncode == 3 and "Traceback" not in err, err
    assert err in ("", "ringcheck: interrupted\n") and bool(err) != ("# interrupted after " in out)
    if (tmp_path / "r.jsonl").exists() and (tmp_path / "r.jsonl").stat().st_size:
        assert record.read(tmp_path / "r.jsonl").runs[0].end is None


def test_an_interrupted_score_tells_its_sums_so_far(tmp_path, interruptible):
    words = ["score", "--cases", "causal", "--ranks", "2", "--jobs", "2", "--faults", "causal,scale,window"]
    started = subprocess.Popen([sys.executable, "-m", "ringcheck", *words], cwd=tmp_path, env=ENVIRONMENT, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        next(line for line in iter(started.stdout.readline, "") if not line.startswith("#"))
        os.killpg(started.pid, signal.SIGINT)
        out, err = started.communicate(timeout=60)
    finally:
        started.kill()
    assert started.returncode == 3 and err == "" and "# killed " in out and "# interrupted: " in out
