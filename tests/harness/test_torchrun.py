"""Under torchrun: the same run, and a record kept when a rank is lost."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reports import record

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def torchrun(folder, *arguments):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
               "-m", "harness.run", "--cases", "packed/even", "--dtype", "fp64", "--layout", "zigzag", "--iters", "0",
               *arguments]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, text=True, capture_output=True, timeout=120)


@pytest.mark.parametrize(("fault", "words"), [
    ("Raising", "rank 1 raised RuntimeError: no kernel for this shape"),
    ("Hanging", "rank 1 in spoil (losses.py"),
    ("KilledAfterSending", "rank 1 last made send of 12 bytes to rank 0 in spoil (losses.py"),
])
def test_a_lost_rank_keeps_the_record_and_resume_continues(tmp_path, fault, words):
    path = tmp_path / "r.jsonl"
    arguments = ["--impl", f"dense,tests.harness.losses:{fault},ring", "--json", str(path), "--timeout", "4"]
    ended = torchrun(tmp_path, *arguments)
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert "--resume continues" in ended.stdout
    found = record.read(path).trials
    assert [trial["verdict"] for trial in found] == ["PASS", "ERROR"] and words in found[1]["reason"]
    if fault == "Raising":
        assert torchrun(tmp_path, *arguments, "--resume").returncode != 0
        assert [trial["verdict"] for trial in record.read(path).trials] == ["PASS", "ERROR", "PASS"]
