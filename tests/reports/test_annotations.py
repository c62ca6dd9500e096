"""Annotations: the escaping of workflow commands, their number, and what is counted."""

import re

from hypothesis import given
from hypothesis import strategies as st

from reports import record, summary
from reports.annotations import annotations, command

WRONG = {"headline": "dk: 100% off, rank 1", "requirement": "B4: gradients", "again": "ringcheck --cases x"}
COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


def decoded(text):
    for code, character in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(code, character)
    return text


@given(st.text(), st.text())
def test_whatever_is_said_is_one_command_that_reads_back(title, message):
    found = COMMAND.fullmatch(command("error", title, message))
    assert decoded(found[2]) == title and decoded(found[3]) == message


def told(path, limit=10):
    return annotations([record.read(path)], limit)


def test_a_failure_tells_case_implementation_and_details(results_file, trial):
    (line,) = told(results_file([trial(), trial(world=3, verdict="FAIL", ratio=9.0, diagnosis=WRONG)]))
    assert line == ("::error title=FAIL packed/even-contiguous-w3-fp64 (ring)::dk: 100%25 off, rank 1%0A"
                    "requirement: B4: gradients%0Aagain: ringcheck --cases x")


def test_equal_failures_are_one_and_those_behind_the_limit_are_counted(results_file, trial):
    wrong = [trial(f"packed/n{n}", verdict="FAIL", diagnosis={**WRONG, "headline": f"wrong {n % 13}"})
             for n in range(30)]
    lines = told(results_file([*wrong, trial(verdict="ERROR", reason="rank 1 hangs\nstack")]))
    assert [line.split(" ")[0] for line in lines] == ["::error"] * 10 + ["::notice"]
    assert "wrong 0%0A" in lines[0] and lines[0].endswith("3 cases: packed/n0-contiguous-w2-fp64, "
                                                         "packed/n13-contiguous-w2-fp64, packed/n26-contiguous-w2-fp64")
    named = sum(int((re.findall(r"(\d+) cases:", line) or [1])[0]) for line in lines[:10])
    assert lines[-1] == f"::notice title=ringcheck::{31 - named} more failures of 31 in the summary of the job"
    assert len(told(results_file(wrong[:10], "ten.jsonl"))) == 10


def test_what_passed_is_silent_and_a_cut_run_is_a_warning(results_file, trial, capsys):
    assert summary.main([str(results_file([trial()])), "--annotations"]) == 0
    assert capsys.readouterr().out == ""
    (line,) = told(results_file([trial()], "cut.jsonl", end=False, asked=5))
    assert line.startswith("::warning title=ringcheck%3A not a whole run::") and line.endswith("cut: 1 of 5 trials")


def test_a_record_starts_no_command_of_its_own(results_file, trial):
    evil = "x\n::stop-commands::y\r\n::set-output name=a::b"
    one = trial(verdict="FAIL", reason=evil, diagnosis={name: evil for name in ("headline", "place", "again")})
    one["case"]["id"] = evil
    one["implementation"]["name"] = evil
    lines = told(results_file([one]))
    assert len(lines) == 1 and COMMAND.fullmatch(lines[0]) and "\n" not in lines[0]
