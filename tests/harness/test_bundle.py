"""A bundle: one archive that shows the same failure to somebody who has ringcheck and nothing else."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cases import generate
from harness import bundle

ROOT = Path(__file__).resolve().parents[2]
ADAPTER = """
from parts_of_mine import FACTOR

from harness.adapters.dense import Dense


class Mine(Dense):
    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: step(q, k * FACTOR, v)
"""


def run(folder, *words):
    """A command in the unpacked folder, ringcheck on the path."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=120)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "ring_of_mine.py").write_text(ADAPTER, encoding="utf-8")
    (tmp_path / "parts_of_mine.py").write_text("FACTOR = 1.25\n", encoding="utf-8")
    for name in ("ring_of_mine", "parts_of_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return "ring_of_mine:Mine"


def unpacked(tmp_path, *words):
    assert bundle.main([*words, "-o", str(tmp_path / "x.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        archive.extractall(tmp_path / "x")
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_script_alone_shows_the_failure_again(tmp_path, mine, capsys):
    files = unpacked(tmp_path, "packed/straddle-zigzag-w2-fp64", "--impl", mine, "--in-process")
    again = run(tmp_path / "x", "replay.py", "--timeout", "0")
    assert again.returncode == 2 and "--timeout" in again.stderr
    assert set(files) == {"README.txt", "replay.py", "case.txt", "record.json", "versions.json", "ring_of_mine.py",
                          "parts_of_mine.py"}
    assert files["ring_of_mine.py"] == ADAPTER and "host" not in json.loads(files["versions.json"])
    record = json.loads(files["record.json"])
    small, whole = map(generate.from_replay, files["case.txt"].splitlines())
    assert record["verdict"] == "FAIL" and whole.id == record["case"]["id"]
    assert small.shape.tokens <= 2 and small.digest == record["diagnosis"]["shrunk"]["case"]["digest"]
    assert record["diagnosis"]["headline"] in files["README.txt"] and str(tmp_path) not in files["replay.py"]
    assert "FAIL packed/straddle" in capsys.readouterr().out
    for name in ("ring_of_mine.py", "parts_of_mine.py"):
        (tmp_path / name).unlink()
    again = run(tmp_path / "x", "replay.py")
    assert again.returncode == 1 and "FAIL packed/straddle" in again.stdout, again.stderr
    other = run(tmp_path / "x", "replay.py", "ring")
    assert other.returncode == 0 and "1 passed" in other.stdout


def test_the_bare_call_runs_on_every_rank(tmp_path):
    unpacked(tmp_path, "packed/short-zigzag-w2-fp64", "--impl", "ring", "--in-process")
    done = run(tmp_path / "x", "-m", "torch.distributed.run", "--nproc-per-node", "2", "replay.py")
    lines = [line for line in done.stdout.splitlines() if "furthest from the truth" in line]
    assert done.returncode == 0 and len(lines) == 2 * 5, done.stderr
    assert all(float(line.split()[-1]) < 1e-9 for line in lines)


def test_a_passing_case_is_packed_too(tmp_path):
    files = unpacked(tmp_path, "causal/short-contiguous-w1-fp64", "--in-process", "--ranks", "1", "--truth", "probes")
    assert files["README.txt"].startswith("PASS causal/short") and "'--truth', 'probes'" in files["replay.py"]
    assert len(files["case.txt"].splitlines()) == 1


def test_ranks_of_their_own_leave_what_they_called_also_a_killed_one(tmp_path):
    files = unpacked(tmp_path, "causal/short-contiguous-w2-fp64", "--impl", "tests.harness.losses:KilledAfterSending")
    calls = json.loads(files["trace.json"])
    assert set(calls) == {"0", "1"} and calls["1"][-1]["kind"] == "send" and "losses.py" in calls["1"][-1]["site"]
    assert files["README.txt"].startswith("ERROR") and "trace.json holds" in files["README.txt"]
    files = unpacked(tmp_path, "causal/short-contiguous-w2-fp64")
    assert {call["kind"] for call in json.loads(files["trace.json"])["0"]} >= {"send", "recv"}


@pytest.mark.parametrize("words, said", [
    (["packed/straddle"], "a bundle holds one, such as packed/straddle-"), (["nothing/here"], "nothing/here"),
    (["causal/short-contiguous-w2-fp64", "--impl", "nobody"], "unknown implementation 'nobody'"),
    ([], "the following arguments are required: CASE"),
    (["causal/short-contiguous-w2-fp64", "--in-process", "-o", "b.tar.gz"], "is a zip archive: name it .zip, not .gz"),
    (["causal/short-contiguous-w2-fp64", "--in-process", "-o", "notes.zip"], "would overwrite what is no zip archive"),
    (["causal/short-contiguous-w2-fp64", "--in-process", "-o", "/dev/null/x.zip"], "cannot be written")])
def test_bad_usage_is_one_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.zip").write_text("not an archive", encoding="utf-8")
    assert bundle.main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("ringcheck: ") and told.count("\n") == 1 and said in told
