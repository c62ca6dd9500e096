"""The pytest plugin in an adopter's repository, against a stand-in server."""

import sys
import time

import pytest

from ringcheck.client import Server, ServerError
from ringcheck.expected import expected_failures


@pytest.fixture
def repository(adopter):
    adopter.fake()
    return adopter


def test_one_line_of_configuration_collects_the_catalogue_beside_own_tests(repository):
    ran = repository.pytest("--ringcheck-timeout", "5", "-rs")
    assert "ringcheck: my_module:ring under test, worlds 1 2 3 4, cases all, torch 9.9" in ran.stdout
    assert "4 failed, 5 passed, 4 skipped, 4 errors" in ran.stdout
    assert ran.returncode == 1


def test_verdicts_are_told_without_a_traceback_of_the_plugin(repository):
    out = repository.pytest("-rs", "-k", "w2-fp64").stdout
    verdict = "dk at the wrong rank\n  verdict      FAIL packed/wrong-zigzag-w2-fp64\n  requirement  B4: gradients"
    assert verdict in out
    assert "rank 1 hangs\n  verdict      ERROR packed/crashed-zigzag-w2-fp64" in out
    assert "[rank 1] recv at ring.py:12" in out
    assert "value head_dim is not supported" in out
    assert (
        "site-packages" not in out
        and "def setup" not in out
        and "collected 17 items / 13 deselected / 4 selected" in out
    )
    assert "1 failed, 1 passed, 1 skipped, 13 deselected, 1 error" in out


def test_the_short_summary_says_what_is_wrong(repository):
    out = repository.pytest("-rfE", "-k", "packed", columns=80).stdout
    assert "FAILED ringcheck::packed/wrong-zigzag-w2-fp64 - dk at the wrong" in out
    assert "ERROR ringcheck::packed/crashed-zigzag-w2-fp64 - rank 1 hangs\n" in out
    assert "= ringcheck: what went wrong =" in out
    ids = [f"packed/wrong-zigzag-{name}" for name in ("w1-fp64", "w1-bf16", "w2-fp64")]
    assert f"\ndk at the wrong rank\n  {', '.join(ids)} and 1 more\nrank 1 hangs\n  packed/crashed-" in out


def test_a_file_of_theirs_that_cannot_be_imported_is_theirs_to_mend(repository):
    repository.write("test_broken.py", "import nosuchthing\n")
    ran = repository.pytest("test_broken.py")
    assert ran.returncode == 2 and "No module named 'nosuchthing'" in ran.stdout
    assert "pytest_plugin.py" not in ran.stdout + ran.stderr and "INTERNALERROR" not in ran.stdout + ran.stderr


def test_help_says_that_commas_separate(repository):
    out = " ".join(repository.pytest("--help").stdout.split())
    assert "commas separate, or give it again: after a blank pytest expects a path" in out
    assert "3 passed, 2 skipped" in repository.pytest("--cases", "packed/even,packed/refused", "--worlds", "2").stdout


def test_without_configuration_nothing_is_collected(repository):
    repository.write("pytest.ini", "[pytest]\n")
    ran = repository.pytest()
    assert "1 passed" in ran.stdout and "ringcheck:" not in ran.stdout


def test_a_path_on_the_command_line_leaves_the_catalogue_out(repository):
    assert "1 passed" in repository.pytest("test_own.py").stdout


def test_options_select_and_markers_filter_under_strict_markers(repository):
    out = repository.pytest(
        "--strict-markers",
        "--impl",
        "other:ring",
        "--cases",
        "packed/even",
        "--worlds",
        "2",
        "-m",
        "A3 and documents and world2 and bf16 and zigzag",
        "-v",
    ).stdout
    assert "ringcheck::packed/even-zigzag-w2-bf16 PASSED" in out
    assert "other:ring under test, worlds 2, cases packed/even" in out and "1 passed, 2 deselected" in out


def test_expected_failures_excuse_fail_and_error_and_are_strict(repository):
    repository.write(
        "known.txt",
        "# a comment\npacked/wrong-*  head map\npacked/crashed-*  known hang\npacked/even-*-w1-*  fixed long ago\n",
    )
    out = repository.pytest("--expected-failures", "known.txt").stdout
    assert "2 failed, 3 passed, 4 skipped, 8 xfailed" in out
    assert "[XPASS(strict)] fixed long ago" in out


@pytest.mark.parametrize(
    "text, message",
    [
        ("packed/nothing-*  typo\n", "known.txt:1: pattern 'packed/nothing-*' matches no case"),
        ("packed  a group is no id\n", "known.txt:1: pattern 'packed' matches no case"),
        ("\npacked/even-*\n", "known.txt:2: 'packed/even-*' has no reason behind it"),
    ],
)
def test_a_useless_line_of_expected_failures_is_an_error(repository, text, message):
    repository.write("known.txt", text)
    for more in ([], ["--cases", "packed/even", "--worlds", "1"]):
        ran = repository.pytest("--expected-failures", "known.txt", *more)
        assert message in ran.stdout + ran.stderr and ran.returncode == 4


def test_an_expected_failure_may_be_a_case_that_is_not_collected(repository):
    repository.write("known.txt", "packed/wrong-*-w2-*  head map\n")
    repository.write("pytest.ini", "[pytest]\nringcheck = my_module:ring\nringcheck_cases = packed/even\n")
    ran = repository.pytest("--expected-failures", "known.txt", "--worlds", "1")
    assert ran.returncode == 0 and "3 passed" in ran.stdout, ran.stdout


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--cases", "nonsense"], "no case matches 'nonsense'"),
        (["--impl", "unknown"], "unknown implementation"),
        (["--worlds", "two"], "--worlds takes numbers such as 1,2,3, got 'two'"),
        (["--ringcheck-timeout", "soon"], "--ringcheck-timeout takes seconds such as 60, got 'soon'"),
    ],
)
def test_an_unknown_case_implementation_or_world_is_one_clear_line(repository, arguments, message):
    ran = repository.pytest(*arguments)
    assert f"ERROR: {message}" in ran.stderr + ran.stdout and ran.returncode == 4


def test_the_server_is_started_again_after_it_died(repository):
    out = repository.pytest("--impl", "deadly", "--cases", "packed/even", "--worlds", "1").stdout
    assert "the server ended during 'run'" in out and "last words" in out and "During handling" not in out
    assert "2 passed, 1 error" in out


def test_a_silent_server_is_ended_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("ringcheck.client.GRACE_S", 0.5)
    from ringcheck.client import ROOT

    silent = Server(tmp_path, [sys.executable, str(ROOT / "tests" / "ringcheck" / "fake_server.py")])
    first = silent.list(cases=["packed/even"], worlds=[1])[0]["id"]
    start = time.monotonic()
    with pytest.raises(ServerError, match="no answer to 'run' within 1 s"):
        silent.run(first, "silent", 0.5)
    assert time.monotonic() - start < 5 and silent._process is None


def test_a_missing_file_of_expected_failures_is_named(tmp_path):
    with pytest.raises(pytest.UsageError, match="known.txt cannot be read: No such file"):
        expected_failures(tmp_path / "known.txt")
