"""The README's adapter, as printed, in a repository with folders named as ours: on the command line and in pytest."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def repository(adopter):
    adopter.write("my_module.py", re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[1])
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
    assert "takes no mask but causal" in ran.stdout
    assert "trials passed" in (repository.path / "report.html").read_text()


def test_the_adapter_is_collected_beside_own_tests(repository):
    ran = repository.pytest("-rs", "-k", "test_own or fp64", timeout=240)
    assert re.search(r"4 passed, 3 skipped, \d+ deselected", ran.stdout), ran.stdout + ran.stderr
    assert "takes no mask but causal" in ran.stdout and ran.returncode == 0
