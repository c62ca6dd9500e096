"""The console script and the lazy door, from directories that hold folders named as ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringcheck
from ringcheck import cli

ROOT = Path(__file__).resolve().parents[2]


def run(directory, code, *flags):
    """Runs code in a directory, the checkout on the path behind it."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        timeout=120,
    )


def test_the_plugin_and_its_client_import_only_the_standard_library_and_pytest():
    code = (
        "import sys, pytest, ringcheck.pytest_plugin\n"
        "rooms = {'torch', 'cases', 'harness', 'reports', 'reference', 'ringcp', 'jinja2'}\n"
        "print(sorted(rooms & {name.split('.')[0] for name in sys.modules}))"
    )
    assert run(ROOT.parent, code).stdout == "[]\n"


def test_reports_need_no_torch_and_no_other_room():
    code = (
        "import sys, reports.build, reports.summary\n"
        "print(sorted({'torch', 'cases', 'harness', 'reference', 'ringcp'} & {m.split('.')[0] for m in sys.modules}))"
    )
    assert run(ROOT.parent, code).stdout == "[]\n"


def test_the_working_directory_is_searched_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:/elsewhere")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    cli.order_paths()
    assert os.environ["PYTHONPATH"] == f"{ROOT}:/elsewhere"
    assert sys.path == [str(ROOT), "/elsewhere", str(tmp_path)]


def test_folders_of_a_user_hide_nothing_of_ours(adopter):
    code = (
        "import sys\nfrom ringcheck import cli\ncli.order_paths()\nimport reports.record, harness\n"
        "print(reports.record.SCHEMA, harness.__file__, flush=True)\n"
        "import subprocess; subprocess.run([sys.executable, '-c', 'import harness; print(harness.__file__)'])"
    )
    ours = ROOT / "harness" / "__init__.py"
    assert run(adopter.path, code).stdout == f"1 {ours}\n{ours}\n"


def test_a_name_that_is_taken_is_one_clear_line(adopter):
    ran = run(adopter.path, "import harness\nfrom ringcheck import Implementation")
    assert ran.returncode == 1
    assert (
        f"ringcheck needs its own package 'harness', but that name is taken by {adopter.path / 'harness'}" in ran.stderr
    )


def test_build_through_the_console_script(results_file_in, tmp_path, capsys):
    path = results_file_in(tmp_path)
    assert cli.main(["build", str(path), "-o", str(tmp_path / "r.html")]) == 0
    assert "All 1 trials passed" in capsys.readouterr().out
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_version_and_exports(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ringcheck {ringcheck.__version__}\n"
    from harness.implementation import Implementation

    assert ringcheck.Implementation is Implementation
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        ringcheck.nothing  # noqa: B018


@pytest.fixture
def results_file_in():
    from reports.record import Writer

    def write(directory):
        with Writer(directory / "r.jsonl") as writer:
            writer.run({"argv": []})
            writer.trial(
                {
                    "case": {"id": "packed/even-zigzag-w2-fp64", "name": "packed/even", "world": 2},
                    "implementation": {"name": "ring"},
                    "verdict": "PASS",
                }
            )
            writer.end({"exit_code": 0, "seconds": 0.1})
        return directory / "r.jsonl"

    return write
