"""The README's adapter, as printed, in a repository with folders named as ours: on the command line and in pytest."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


ADAPTER, RING, RULE = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.fixture
def repository(adopter):
    adopter.write("my_module.py", ADAPTER)
    adopter.write(
        "pytest.ini",
        "[pytest]\nringcheck = my_module:Gathered\nringcheck_cases = causal/odd padding/left\nringcheck_worlds = 2\n",
    )
    return adopter


def test_the_adapter_passes_and_refuses_on_the_command_line(repository):
    command = [
        sys.executable,
        "-m",
        "ringcheck",
        "--ranks",
        "2",
        "--impl",
        "my_module:Gathered",
        "--cases",
        "causal/odd",
        "padding/left",
        "--iters",
        "0",
        "--json",
        "results.jsonl",
        "--report",
        "report.html",
    ]
    ran = subprocess.run(
        command, cwd=repository.path, env=repository.environment(), text=True, capture_output=True, timeout=240
    )
    trials = [json.loads(line) for line in (repository.path / "results.jsonl").read_text().splitlines()[1:-1]]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert {(trial["case"]["name"], trial["verdict"]) for trial in trials} == {
        ("causal/odd", "PASS"),
        ("padding/left", "SKIP"),
    }
    assert "takes no mask but causal" in ran.stdout and "Warning" not in ran.stderr
    assert "trials passed" in (repository.path / "report.html").read_text()


def test_the_adapter_is_collected_beside_own_tests(repository):
    repository.write("test_adapter.py", "import harness\nfrom my_module import Gathered\n\n\ndef test_own_adapter():\n"
                     "    assert Gathered().name == '' and harness.OWNER == 'adopter harness'\n")
    ran = repository.pytest("-rs", "-k", "test_own or fp64", timeout=240)
    assert re.search(r"3 passed, 1 skipped, \d+ deselected", ran.stdout), ran.stdout + ran.stderr
    assert "takes no mask but causal" in ran.stdout and ran.returncode == 0


def test_the_ring_runs_alone_under_torchrun(tmp_path):
    before = (
        "import torch\nimport torch.distributed as dist\nfrom ringcp import Mask, make_layout\n"
        "dist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\n"
        "ids = (torch.arange(8192) // 1000 + 1)[None]\n"
        "my_document_ids = make_layout('zigzag', 8192, world).shard(ids, rank, dim=1)\n"
        "q, k, v = (torch.randn(1, 2, my_document_ids.shape[1], 16, requires_grad=True) for _ in range(3))\n"
    )
    after = (
        "assert mask == Mask(tokens=8192, window=1024, documents=ids)\nout.sum().backward()\n"
        "assert out.shape == q.grad.shape == (1, 2, 4096, 16)\ndist.destroy_process_group()\n"
    )
    (tmp_path / "train.py").write_text(before + RING + after)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=240)
    assert ran.returncode == 0, ran.stderr


def test_a_rule_of_ones_own_is_one_file(tmp_path):
    for room in ("cases", "reference", "ringcp", "harness", "reports", "ringcheck"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "cases" / "rules" / "prefix.py").write_text(RULE)
    words = "--cases prefix --impl dense,ring --ranks 1 --in-process --dtype fp64 --iters 0".split()
    ran = subprocess.run([sys.executable, "-m", "ringcheck", *words], cwd=tmp_path, text=True, capture_output=True,
                         env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}, timeout=120)
    assert ran.returncode == 0 and "ring refuses: no mask rule prefix" in ran.stdout, ran.stdout + ran.stderr
    assert "dense  1 passed" in ran.stdout
