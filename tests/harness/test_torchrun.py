"""Under torchrun: the same run, and a record kept when a rank is lost."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports import record

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


COMMAND = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
           "-m", "harness.run", "--cases", "packed/even", "--dtype", "fp64", "--layout", "zigzag", "--iters", "0"]


def torchrun(folder, *arguments, **variables):
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=ENVIRONMENT | variables, text=True,
                          capture_output=True, timeout=120)


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


def test_a_rank_lost_in_turns_is_told_of_the_one_whose_turn_it_was(tmp_path):
    path = tmp_path / "r.jsonl"
    arguments = ["--impl", "dense,tests.harness.losses:Raising,ring", "--json", str(path), "--iters", "2"]
    assert torchrun(tmp_path, *arguments).returncode == 1
    assert [(trial["implementation"]["spec"], trial["verdict"]) for trial in record.read(path).trials] == [
        ("tests.harness.losses:Raising", "ERROR")]
    torchrun(tmp_path, *arguments, "--resume")
    assert [trial["verdict"] for trial in record.read(path).trials] == ["ERROR", "PASS", "PASS"]
    passed = record.read(path).trials[1:]
    assert [trial["measurement"]["beside"] for trial in passed] == [["ring"], ["dense"]]
    assert [len(trial["timeline"]["ranks"]) for trial in passed] == [2, 2] and all(one["error_maps"] for one in passed)


def test_without_rank_0_another_rank_tells_what_is_lost(tmp_path):
    path = tmp_path / "r.jsonl"
    ended = torchrun(tmp_path, "--impl", "dense,tests.harness.losses:FirstKilledAfterSending", "--json", str(path))
    assert ended.returncode == 1 and [trial["verdict"] for trial in record.read(path).trials] == ["PASS"]
    said = [line for line in ended.stderr.splitlines() if line.startswith("[rank 1] ")]
    assert any("rank 0 is lost, and with it the record of" in line and "rank 1 in " in line for line in said), said
    assert any("rank 0 last made send of 12 bytes to rank 1 in spoil (losses.py" in line for line in said), said
    assert said[-1].endswith("what was recorded before is kept, --resume continues")


def test_ranks_end_with_torchrun(tmp_path):
    path = tmp_path / "r.jsonl"
    agent = subprocess.Popen([*COMMAND, "--impl", "dense,tests.harness.losses:Hanging", "--json", str(path),
                              "--timeout", "100"], cwd=tmp_path, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    ranks = []
    try:
        awaited(lambda: path.exists() and "PASS" in path.read_text(), 60)
        time.sleep(1)
        ranks = [int(pid) for pid in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]
        agent.kill()
        agent.wait()
        assert len(ranks) == 2 and awaited(lambda: not any(map(alive, ranks)), 15)
    finally:
        for pid in filter(alive, ranks):
            os.kill(pid, signal.SIGKILL)
    said = agent.stdout.read()
    assert "--resume continues" in said and "[rank 1] torchrun (pid" in said
    found = record.read(path).trials
    assert [trial["verdict"] for trial in found] == ["PASS", "ERROR"]
    told = found[1]["reason"]
    assert told.startswith(f"torchrun (pid {agent.pid}) is gone; rank 0 ") and "in exchange (dense.py" in told


def awaited(happened, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not happened():
        time.sleep(0.1)
    return happened()


def alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize("rank, word", [("0", "ringcheck: "), ("1", "[rank 1] ringcheck: ")])
def test_a_rank_that_cannot_begin_says_why_and_leaves_nothing(tmp_path, rank, word):
    (tmp_path / "picky.py").write_text(
        "import os\nfrom harness.adapters.dense import Dense\n\n\nclass Made(Dense):\n    def __init__(self):\n"
        f"        if os.environ['RANK'] == '{rank}':\n            raise OSError('no kernel here')\n"
        "        super().__init__()\n")
    done = torchrun(tmp_path, "--impl", "picky:Made", TMPDIR=str(tmp_path), PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert f"{word}implementation 'picky:Made': Made() raised OSError: no kernel here" in done.stderr
    assert not list(tmp_path.glob("ringcheck-*"))
