"""`ringcheck compare` as a command: exit codes, what is allowed, sides, bad usage, damaged and unlike input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reports.compare import baselines
from reports.compare.command import main
from ringcheck import cli
from tests.reports.compared import SLOW, TEN, changed, ran, timed


def test_what_regressed_is_told_worst_first_and_summed_up(sides, capsys):
    code, out, err = ran(capsys, *sides)
    lines = out.splitlines()
    assert (code, err) == (1, "")
    assert lines[-1] == "# 4 regressions: 1 broke, 1 missing, 1 slower, 1 more bytes"
    rows = [line.split() for line in lines if line.startswith("  ")]
    assert [" ".join(row[:2]) for row in rows] == ["BROKE verdict", "MISSING trial", "SLOWER step", "MORE BYTES"]
    assert "packed/a-contiguous-w2-fp64  ring" in out and out.count("B4: dk off") == 1 and "more" not in lines[-5]
    assert "8,192  9,096  1.110" in out and "interval of 98.7500%" in out


def test_nothing_regressed_is_code_0_and_turned_round_only_new_and_better_is_told(sides, capsys):
    assert ran(capsys, sides[0], sides[0])[0] == 0
    code, out, _ = ran(capsys, *reversed(sides))
    assert code == 0 and out.splitlines()[-1] == "# no regression; 1 new, 1 fixed, 1 faster, 1 fewer bytes"


def test_what_is_allowed_is_told_and_does_not_end_in_1(sides, results_file, capsys):
    gone = str(results_file([timed("packed/b", TEN)], "gone.jsonl"))
    assert ran(capsys, sides[0], gone)[0] == 1
    code, out, _ = ran(capsys, sides[0], gone, "--allow-missing")
    assert code == 0 and "# no regression; 3 missing, 1 insignificant" in out
    assert ran(capsys, sides[0], gone, "--allow", "missing")[0] == 0
    slow = str(results_file([timed("packed/b", SLOW)], "slow.jsonl"))
    assert ran(capsys, gone, slow, "--allow", "more bytes")[0] == 1
    assert ran(capsys, gone, slow, "--threshold", "150%")[0] == 0
    with pytest.raises(SystemExit):
        main([*sides, "--allow", "broke"])


def test_all_rows_are_shown_when_asked_for(sides, capsys):
    assert "within 0.05 of 1" not in ran(capsys, *sides)[1]
    assert "within 0.05 of 1" in ran(capsys, *sides, "--all")[1]


def test_sides_may_be_several_files_or_folders(sides, results_file, tmp_path, capsys):
    (tmp_path / "nightly").mkdir()
    for path in sides:
        Path(path).rename(tmp_path / "nightly" / Path(path).name)
    old, new = (tmp_path / "nightly" / name for name in ("old.jsonl", "new.jsonl"))
    more = results_file([timed("packed/d", TEN)], "more.jsonl")
    code, out, _ = ran(capsys, "--old", old, "--new", new, more)
    assert code == 1 and "missing" not in out.splitlines()[-1] and "new.jsonl, " in out
    assert ran(capsys, tmp_path / "nightly", tmp_path / "nightly")[0] == 0
    (tmp_path / "empty").mkdir()
    assert ran(capsys, tmp_path / "empty", new) == (
        2, "", f"ringcheck compare: folder {tmp_path / 'empty'} holds no results file (*.jsonl)\n")


@pytest.mark.parametrize("words", [
    [], ["a"], ["a", "b", "c"], ["a", "b", "--old", "c"], ["--old", "a"], ["a", "--baseline", "--old", "b"],
    ["a", "b", "--confidence", "1.5"], ["a", "b", "--threshold", "-1"], ["a", "b", "--threshold", "nan"],
    ["a", "b", "--threshold", "much"], ["--baseline"],
])
def test_bad_usage_is_code_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and "ringcheck compare: error: " in capsys.readouterr().err


@pytest.mark.parametrize(("content", "message"), [
    (None, "cannot be read: No such file"), ("", "holds no record"), ('{"kind": "trial", "schema": 9}', "schema 9"),
    ('{"kind": "run", "schema": 1}', "nothing to compare"),
])
def test_files_that_are_no_results_are_one_line_and_code_2(sides, tmp_path, capsys, content, message):
    path = tmp_path / "other.jsonl"
    if content is not None:
        path.write_text(content)
    code, out, err = ran(capsys, sides[0], path)
    assert (code, out, err.count("\n")) == (2, "", 1) and message in err


def test_a_cut_side_and_another_environment_are_told(results_file, capsys):
    both = [results_file([timed(f"packed/{n}", TEN) for n in range(count)], f"{count}.jsonl", end=count == 3, asked=3)
            for count in (3, 2)]
    other = Path(both[1]).read_text().replace('"torch":"2.13.0"', '"torch":"2.14.0"')
    both[1].write_text(other)
    _, out, _ = ran(capsys, *both)
    assert "is not whole: cut: 2 of 3 trials" in out and "# environment torch: 2.13.0 -> 2.14.0" in out
    assert "  incomparable  environment  2 trials" in out and "1 missing; 2 incomparable" in out


def test_the_console_script_knows_both_commands(sides, tmp_path, capsys):
    assert cli.answer(["compare", *sides]) == 1 and cli.answer(["compare", sides[0]]) == 2
    assert cli.answer(["bless", sides[0], "--baselines", str(tmp_path / "kept")]) == 0
    assert cli.answer(["compare", "--baseline", sides[0], "--baselines", str(tmp_path / "kept")]) == 0


def test_a_comparison_needs_nothing_but_the_standard_library():
    code = ("import sys, reports.bless, reports.compare.command\n"
            "print(sorted({'torch', 'numpy', 'jinja2', 'cases', 'harness'} & {m.split('.')[0] for m in sys.modules}))")
    ended = subprocess.run([sys.executable, "-c", code], cwd=baselines.HERE.parents[1], text=True, capture_output=True,
                           timeout=60)
    assert ended.stdout == "[]\n", ended.stderr


def test_damaged_input_is_told_in_full_and_no_gate_passes_on_it(sides, results_file, tmp_path, capsys):
    good = results_file([timed(f"packed/{name}", TEN) for name in "ab"], "good.jsonl")
    bad = tmp_path / "bad.jsonl"
    lines = good.read_text().splitlines()
    bad.write_text("\n".join([*lines[:-1], "{", lines[-1].replace('"seconds":1.5', '"seconds":"x"')]) + "\n")
    for paths, name in (((good, bad), "NEW"), ((bad, good), "OLD")):
        code, out, err = ran(capsys, *paths, "--json", tmp_path / "c.json", "--report", tmp_path / "c.html")
        assert code == 2 and err.count("\n") == 1 and f"1 line and 1 field could not be read of {name}" in err
        last = out.splitlines()[-1]
        assert last == f"# 1 line and 1 field could not be read of {name}; no regression; 2 insignificant"
        assert f"# {name} left out: {bad}:4: not JSON; line left out" in out
        assert json.loads((tmp_path / "c.json").read_text())["code"] == 2
        assert "could not be read" in (tmp_path / "c.html").read_text()
    assert ran(capsys, good, good)[0] == 0


def test_where_most_is_incomparable_the_sum_says_so_first_and_the_gate_does_not_pass(results_file, capsys):
    def made(name, digests, verdict="PASS"):
        return results_file([changed(timed(f"packed/{n}", TEN, verdict=verdict), "case.digest", digest)
                             for n, digest in enumerate(digests)], name)

    old = made("o.jsonl", "aaaa")
    code, out, err = ran(capsys, old, made("all.jsonl", "bbbb"))
    assert code == 2 and out.splitlines()[-1].startswith(
        "# none of 4 trials comparable (another case); no regression")
    assert err.endswith("not to be relied on: none of 4 trials comparable (another case)\n")
    assert ran(capsys, old, made("all.jsonl", "bbbb"), "--allow", "incomparable")[0] == 0
    assert ran(capsys, old, made("most.jsonl", "bbba"))[0] == 2 and ran(capsys, old, made("half.jsonl", "bbaa"))[0] == 0
    other = made("other.jsonl", "aaaa")
    other.write_text(other.read_text().replace('"torch":"2.13.0"', '"torch":"2.14.0"'))
    code, out, _ = ran(capsys, old, other)
    assert code == 2 and "# none of 4 trials comparable (another environment); no regression" in out
    code, out, _ = ran(capsys, old, made("idle.jsonl", "aaaa", "SKIP"), "--allow-missing")
    assert code == 2 and "# none of 4 trials comparable (skipped on one side); no regression" in out


def test_a_common_shift_that_no_trial_alone_can_show_regresses(results_file, tmp_path, capsys):
    old, new = (results_file([timed(f"packed/{n}", [x * factor for x in TEN[:3]]) for n in range(40)],
                             f"{factor}.jsonl") for factor in (1, 10))
    targets = [tmp_path / name for name in ("c.json", "c.md", "c.html")]
    code, out, _ = ran(capsys, old, new, "--json", targets[0], "--markdown", targets[1], "--report", targets[2])
    assert code == 1 and "SLOWER  forward ms  all 40 trials together" in out
    assert out.splitlines()[-1] == ("# 1 regression: 1 slower in 2 rows; 40 unjudged; "
                                    "all trials together: forward ms 10, step ms 10 times as long")
    for told_of in (out, *(target.read_text() for target in targets[1:])):
        assert "all 40 trials together" in told_of and "no trial could be judged alone" in told_of
        assert "told from a ratio" not in told_of
    noise = json.loads(targets[0].read_text())["times"]["noise"]
    assert [(one["judged"], one["shows"]) for one in noise] == [(0, None)] * 2
    assert ran(capsys, old, new, "--allow", "slower")[0] == 0
    code, out, _ = ran(capsys, old, old)
    assert code == 0 and out.splitlines()[-1] == "# no regression; 40 unjudged" and "no trial could be judged" in out


def test_a_refusal_that_is_gone_takes_nothing_away_and_a_new_failure_does(results_file, capsys):
    old = results_file([timed("packed/a", TEN), timed("packed/b", TEN, verdict="SKIP")], "o.jsonl")
    gone, wrong = (results_file([timed("packed/a", TEN), *more], f"{len(more)}.jsonl")
                   for more in ([], [timed("packed/c", TEN, verdict="FAIL")]))
    assert ran(capsys, old, gone)[0] == 0
    code, out, _ = ran(capsys, old, wrong)
    assert code == 1 and "# 1 regression: 1 new failure; 1 lone skip, 1 insignificant" in out
    assert ran(capsys, old, wrong, "--allow", "new")[0] == 0
    assert "1 new failure" in ran(capsys, old, wrong, "--allow", "new")[1]
