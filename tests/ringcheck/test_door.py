"""The console script and the lazy door, from directories that hold folders named as ours."""

import os
import re
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


def test_a_name_that_is_taken_is_one_clear_line_on_the_command_line(adopter):
    ran = run(adopter.path, "import harness\nfrom ringcheck import cli\nprint(cli.main(['--list']))")
    assert ran.stdout == "2\n" and ran.stderr.count("\n") == 1
    assert (
        f"ringcheck needs its own package 'harness', but that name is taken by {adopter.path / 'harness'}" in ran.stderr
    )


THEIRS = "[sys.modules[name].OWNER for name in ('cases', 'harness', 'reports')]"
ALL = "Case, Group, Implementation, Mask, Rows, Rule, Scenario, Session, Setting, Shape, Step, captured"


@pytest.mark.parametrize("before", ["import cases, harness, reports", "pass", "import harness"])
def test_an_adapter_is_imported_beside_packages_of_the_same_names(adopter, before):
    code = (
        f"import sys\n{before}\nfrom ringcheck import {ALL}\nimport ringcheck, ringcp\n"
        "from ringcp import ring_attention\nimport cases, harness, reports\n"
        "class Mine(Implementation):\n    name = 'mine'\n"
        f"assert {THEIRS} == ['adopter cases', 'adopter harness', 'adopter reports']\n"
        "assert ringcheck.Implementation is Implementation and ringcheck.captured is captured\n"
        "assert isinstance(Mine().open(None, None), Session) and Session.__module__ == 'harness.implementation'\n"
        "assert not [name for name in sys.modules if name.startswith(('cases.', 'harness.', 'reference'))]\n"
        "assert captured.record('batches.jsonl', rank=0, cu_seqlens=[0, 3, 7])\n"
        "case = captured.read('batches.jsonl')[0].at(2, 'zigzag', 'fp64', 7)\n"
        "assert isinstance(case, Case) and isinstance(case.mask, Mask) and isinstance(case.rows(), Rows)\n"
        "assert case.shape.tokens == 7 and case.batch('B').digest != case.digest\n"
        f"assert {THEIRS} == ['adopter cases', 'adopter harness', 'adopter reports']\nprint('fine')"
    )
    ran = run(adopter.path, code)
    assert ran.stdout == "fine\n", ran.stderr


def test_ours_import_lazily_beside_packages_of_the_same_names(adopter):
    code = (
        "import cases, harness\nfrom ringcheck import Implementation\n"
        "load = __import__('ringcheck')._beside().load('harness.implementation').load\n"
        "try:\n    load('sabotage:nothing')\nexcept ValueError as error:\n    print(error)\n"
        "print(harness.OWNER, hasattr(harness, 'sabotage'))"
    )
    ran = run(adopter.path, code)
    assert ran.stdout.startswith("unknown fault 'nothing'"), ran.stderr
    assert ran.stdout.endswith("\nadopter harness False\n")


def test_modules_named_as_ours_are_left_in_place(tmp_path):
    (tmp_path / "cases.py").write_text("OWNER = 'me'\n")
    code = "from ringcheck import Case, Implementation\nimport cases\nprint(cases.OWNER, Case.__module__)"
    assert run(tmp_path, code).stdout == "me cases.case\n"


def test_where_the_names_are_free_ours_are_the_modules_themselves(tmp_path):
    code = (
        "from ringcheck import Implementation, Case\nimport harness.implementation, cases.case\n"
        "print(harness.implementation.Implementation is Implementation, cases.case.Case is Case)"
    )
    assert run(tmp_path, code).stdout == "True True\n"


def test_build_through_the_console_script(results_file_in, tmp_path, capsys):
    path = results_file_in(tmp_path)
    assert cli.main(["build", str(path), "-o", str(tmp_path / "r.html")]) == 0
    assert "# 1 trial passed" in capsys.readouterr().out
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


def test_help_names_every_command(capsys):
    assert cli.answer(["--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert [name for name in cli.COMMANDS if name != "serve" and not re.search(rf"\b{name}\b", told)] == []


@pytest.mark.parametrize("words", [["build"], ["summary"], ["summary", "--markdown"], ["compare"]], ids=" ".join)
def test_an_output_that_takes_no_more_is_one_line(tmp_path, words):
    lines = ['{"kind":"run","schema":1,"time":"x"}']
    for n in range(400):
        lines.append(f'{{"kind":"trial","schema":1,"case":{{"id":"a{n}","name":"a","world":1}},'
                     f'"implementation":{{"spec":"r"}},"verdict":"FAIL","reason":"{n}"}}')
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    more = {"build": ["-o", str(tmp_path / "x.html")], "compare": ["r.jsonl"]}.get(words[0], ["--top", "400"])
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ringcheck", words[0], "r.jsonl", *more, *words[1:]]
        ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=full,
                             stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 3 and "Traceback" not in ran.stderr
    assert ran.stderr.splitlines()[-1] == f"ringcheck {words[0]}: stdout cannot be written: No space left on device"
