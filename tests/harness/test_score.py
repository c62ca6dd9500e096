"""The score counts what dies for the right reason, and says what survives."""

import json
from dataclasses import replace

import pytest

from cases import catalogue
from harness import kills, score, scorecard
from harness.kills import Ask, Bench, Found, Subject, cover
from harness.sabotage import faults
from harness.sabotage.words import WORDS, names
from harness.scoring import parse

EVEN = ["--cases", "causal/even-contiguous-w2-fp64", "--ranks", "2", "--jobs", "1"]


def scored(capsys, *arguments):
    code = score.main([*EVEN, *arguments])
    return code, capsys.readouterr()


def asked(*names):
    return [Ask(case) for case in catalogue.select(names)]


def found(name, **verdicts):
    one = Found(Subject(name, "window", f"sabotage:{name}"), verdicts)
    one.killer = asked("causal/even-contiguous-w2-fp64")[0] if "FAIL" in verdicts.values() else None
    return one


def test_a_kill_is_told_with_its_case_and_first_line(capsys):
    code, told = scored(capsys, "--faults", "lse-in-base-two")
    line = next(line for line in told.out.splitlines() if line.startswith("lse-in-base-two"))
    assert code == 0 and "causal/even-contiguous-w2-fp64" in line and "base 2" in line
    assert "# killed 1/1 (100.0%), class named in the first line 1/1 (100.0%)" in told.out


def test_a_survivor_is_named_and_is_a_failure(capsys):
    code, told = scored(capsys, "--faults", "lse-in-base-two,window-ignored")
    assert code == 1 and "# window-ignored survives (2 trials)" in told.out and "# killed 1/2 (50.0%)" in told.out


def test_an_error_alone_kills_no_fault_but_kills_a_mutant():
    bench, ask = Bench(), asked("causal/even-contiguous-w2-fp64")
    fault = Subject("raises", "protocol", "sabotage:raises-on-one-rank")
    one = bench.hunt(fault, ask)
    assert not one.killed and one.broken and one.verdicts == {ask[0].name: "ERROR"}
    assert bench.hunt(Subject("raises", "protocol", fault.spec, crashes=True), ask).killed


def test_what_fails_the_ring_as_well_kills_nothing(monkeypatch):
    bench, ask = Bench(), asked("causal/even-contiguous-w2-fp64")[0]
    monkeypatch.setattr(bench, "passes", lambda ask: False)
    assert bench.verdict(ask, "sabotage:lse-in-base-two") == "BOTH"


def test_what_tests_the_broken_rule_comes_first_and_known_killers_soon(monkeypatch):
    subject = Subject("window-ignored", "window", "sabotage:window-ignored", ("A2",))
    order = asked("causal/even-contiguous-w2-fp64", "mixed/everything-contiguous-w2-fp64",
                  "sliding/two-contiguous-w2-fp64")
    names = [ask.case.name for ask in Bench().ordered(order, subject)]
    assert names == ["sliding/two", "mixed/everything", "causal/even"]
    monkeypatch.setattr(kills, "CLEAR", 1)
    known = Subject("window-ignored", "window", "", ("A2",), order[0].name)
    names = [ask.case.name for ask in Bench().ordered(order, known)]
    assert names == ["sliding/two", "causal/even", "mixed/everything"]


def test_what_is_timed_is_verified_on_the_step_that_was_timed():
    plain = asked("causal/even-contiguous-w2-fp64")[0]
    bench, timed = Bench(), Ask(plain.case, timed=True)
    assert kills.asks([plain.case]) == [plain, timed]
    for name in ("zeros-when-repeated", "answer-cached-by-address", "previous-answer"):
        assert bench.verdict(plain, f"sabotage:{name}") == "PASS"
        record = bench.trial(timed, f"sabotage:{name}")
        assert record["verdict"] == "FAIL" and record["reason"].startswith("D3: after timing")


def test_a_greedy_cover_takes_what_kills_most_first():
    rows = [found("one", a="FAIL", b="FAIL"), found("two", a="FAIL", c="PASS"), found("three", b="PASS", c="FAIL"),
            found("four", a="PASS")]
    assert cover(rows) == ["a", "c"]


def test_faults_with_the_same_verdicts_are_told(capsys):
    code, told = scored(capsys, "--faults", "zeros-everywhere,lse-negated,window-ignored", "--matrix")
    assert code == 1 and "1 pairs of faults have the same verdict everywhere" in told.out
    assert "#   lse-negated  zeros-everywhere" in told.out


def test_the_score_is_written_line_by_line(capsys, tmp_path):
    scored(capsys, "--faults", "scale-missing", "--json", str(tmp_path / "score.jsonl"))
    line, sums = map(json.loads, (tmp_path / "score.jsonl").read_text().splitlines())
    assert (line["fault"], line["class"], line["world"], line["named"]) == ("scale-missing", "scale", 2, True)
    assert (sums["faults"], sums["killed"]) == (1, 1)


def test_faults_of_others_are_counted_apart():
    own, other = found("own", a="FAIL"), found("other", a="FAIL")
    other.subject = replace(other.subject, group="ids")
    own.said, other.said = "in the backward, the window is 3", "documents are told apart by 8 bits of their ids"
    sums = scorecard.totals([own, other], 1.0, None)
    assert (sums["named"], sums["outside"], sums["outside_named"]) == (2, 1, 1)
    assert {"ids", "late"} <= faults.OUTSIDE <= set(faults.GROUPS.values())


@pytest.mark.parametrize("arguments, line", [
    (["--cases", "nowhere"], "no case matches 'nowhere'"), (["--faults", "nowhere*"], "no fault matches 'nowhere*'"),
    (["--tier", "smoke", "--cases", "packed"], "--tier and --cases both choose"), (["--tier", "none"], "--tier"),
    (["--sample", "3"], "--sample goes with --mutants")])
def test_bad_usage_is_one_line(capsys, arguments, line):
    assert score.main(arguments) == 2
    assert line in capsys.readouterr().err


def test_faults_are_chosen_by_class_and_wildcard():
    chosen = parse(["--faults", "scale,window-too-*"]).names()
    assert {faults.GROUPS[name] for name in chosen} == {"scale", "window"}
    assert {"window-too-wide", "window-too-narrow"} == {name for name in chosen if name.startswith("window")}


def test_every_class_has_words_that_other_lines_lack():
    assert set(WORDS) == set(faults.GROUPS.values())
    assert names("the window holds one key too many", "window") and not names("the scale is missing", "window")
    assert not names("out, dq off, only in document 1", "documents")


def test_faults_are_told_apart_by_whatever_case_does(capsys):
    code, told = scored(capsys, "--faults", "delta-twice,delta-dropped,window-ignored", "--apart")
    assert code == 1 and "# told alike everywhere: delta-dropped, delta-twice" in told.out
    arguments = ["--cases", "causal/even-contiguous-w2-fp64", "sliding/one-contiguous-w2-fp64", "--ranks", "2"]
    assert score.main([*arguments, "--faults", "lse-negated,window-ignored", "--apart"]) == 0
    assert "0 groups among them" in capsys.readouterr().out


def test_a_list_scores_nothing(capsys):
    assert score.main(["--list", "--faults", "window-too-wide,merge"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["window", "window-too-wide"] for line in lines) and len(lines) > 5


def test_a_score_takes_the_place_of_nothing_else(tmp_path, capsys):
    notes, earlier = tmp_path / "notes.txt", tmp_path / "score.jsonl"
    notes.write_text("notes\n")
    assert score.main([*EVEN, "--faults", "lse-negated", "--json", str(notes)]) == 2
    assert notes.read_text() == "notes\n" and "is no score" in capsys.readouterr().err
    for place in (tmp_path, notes / "x.jsonl"):
        assert score.main([*EVEN, "--faults", "lse-negated", "--json", str(place)]) == 2
        out, err = capsys.readouterr()
        assert "cannot be written" in err and not out
    for _ in range(2):
        assert score.main([*EVEN, "--faults", "lse-negated", "--jobs", "1", "--json", str(earlier)]) == 0
    assert earlier.read_text() and (tmp_path / "score.1.jsonl").read_text()


@pytest.mark.parametrize(("nothing", "told"), [(("--faults", ""), "names nothing"),
                                               (("--mutants", "--sample", "0"), "draws no mutant")])
def test_a_score_of_nothing_is_bad_usage(nothing, told, capsys):
    assert score.main([*EVEN, *nothing]) == 2 and told in capsys.readouterr().err
