"""`ringcheck compare` and `ringcheck bless` as commands: exit codes, files, baselines, what they print."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports import bless, build, record
from reports.compare import baselines, environment, states, told
from reports.compare.command import main
from ringcheck import cli
from tests.reports.compared import changed, timed

TEN = [0.010, 0.0101, 0.0099, 0.0102, 0.0098, 0.01, 0.0101, 0.0099, 0.01, 0.0103]
SLOW = [2 * x for x in TEN]


@pytest.fixture
def sides(results_file):
    """Paths of OLD and NEW: one trial broke, one is slower, one sends more, one is gone."""
    old = [timed(f"packed/{name}", TEN) for name in "abcd"]
    new = [timed("packed/a", TEN, verdict="FAIL", reason="B4: dk off\nmore"), timed("packed/b", SLOW, TEN),
           changed(timed("packed/c", TEN), "measurement.bytes_sent", [4096, 5000])]
    return str(results_file(old, "old.jsonl")), str(results_file(new, "new.jsonl"))


def ran(capsys, *words):
    code = main(list(map(str, words)))
    said = capsys.readouterr()
    return code, said.out, said.err


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


def test_json_has_every_row_and_its_reason_and_equal_bytes(sides, tmp_path, capsys):
    target = tmp_path / "deep" / "c.json"
    texts = []
    for _ in range(2):
        assert ran(capsys, *sides, "--json", target)[0] == 1
        texts.append(target.read_bytes())
    assert texts[0] == texts[1]
    found = json.loads(texts[0], parse_constant=pytest.fail)
    assert found["kind"] == "comparison" and found["regressed"] and found["counts"]["broke"] == 1
    assert [row["state"] for row in found["rows"]].count("insignificant") == 3
    assert found["rows"][0]["note"] == "B4: dk off" and found["times"]["tested"] == 4


def test_markdown_is_a_table_of_limited_length_with_its_text_escaped(results_file, tmp_path, capsys):
    evil = "<script>|`*_\n\x1b[31m\u202e"
    old = [timed("packed/a", TEN), *(timed(f"packed/{n}", TEN) for n in range(told.LINES + 5))]
    new = [timed("packed/a", TEN, verdict="FAIL", reason=evil + "x" * 9999)]
    target = tmp_path / "c.md"
    assert ran(capsys, results_file(old, "o.jsonl"), results_file(new, "n.jsonl"), "--markdown", target)[0] == 1
    text = target.read_text()
    assert text.startswith(f"{told.MARK}\n**506 regressions: 1 broke, 505 missing**") and "and 6 more rows" in text
    (row,) = [line for line in text.splitlines() if "broke" in line.lower() and line.startswith("|")]
    assert "&lt;script&gt;\\|\\`\\*\\_" in row and "\x1b" not in text and "\u202e" not in text and len(row) < 600


def test_hostile_text_is_one_printable_line_of_the_table(results_file, capsys):
    evil = "\x1b]0;x\x07\n# no regression\u202e" + "y" * 5000
    both = [results_file([changed(timed("packed/a", TEN, verdict=verdict), "case.id", evil)], f"{verdict}.jsonl")
            for verdict in ("PASS", "FAIL")]
    code, out, _ = ran(capsys, *both)
    assert code == 1 and all(line.isprintable() and len(line) < 900 for line in out.splitlines())
    assert len([line for line in out.splitlines() if line.startswith("  BROKE")]) == 1


def test_no_file_is_lost_to_output(sides, tmp_path, capsys):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    before = Path(sides[1]).read_bytes()
    for flag in ("--json", "--markdown", "--report"):
        for target in (notes, sides[1]):
            code, _, err = ran(capsys, *sides, flag, target)
            assert code == 2 and err.count("\n") == 1
    assert notes.read_text() == "mine\n" and Path(sides[1]).read_bytes() == before
    assert ran(capsys, *sides, "--json", notes / "c.json")[0] == 2


def test_a_page_gets_the_rows_and_what_was_compared(sides, tmp_path, capsys, monkeypatch):
    given, told = [], []

    def page(files, regressions=(), against=(), allowed=()):
        given.extend(regressions)
        told.extend(against)
        return "<!doctype html>"

    monkeypatch.setattr(build, "page", page)
    assert ran(capsys, *sides, "--report", tmp_path / "c.html")[0] == 1
    assert [row["state"] for row in given] == ["broke", "missing", "slower", "more bytes"]
    assert told[0] == "4 regressions: 1 broke, 1 missing, 1 slower, 1 more bytes"
    assert told[1].startswith("OLD: old.jsonl, 2026") and told[2].startswith("NEW: new.jsonl, 2026")
    assert told[-1] == "again: ringcheck compare --old old.jsonl --new new.jsonl --report report.html"


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


def blessed(capsys, tmp_path, *words):
    code = bless.main([*map(str, words), "--baselines", str(tmp_path / "kept")])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_blessed_file_is_found_by_the_environment_and_says_the_same_as_what_it_was_made_of(sides, tmp_path, capsys):
    code, out, _ = blessed(capsys, tmp_path, sides[0])
    (path,) = (tmp_path / "kept").glob("*/*")
    assert code == 0 and "the first baseline of this environment" in out
    assert path.name == "blessed.jsonl" and path.stat().st_size < 0.7 * Path(sides[0]).stat().st_size
    plain = ran(capsys, *sides, "--json", tmp_path / "a.json")
    pruned = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept", "--json", tmp_path / "b.json")
    assert plain[0] == pruned[0] == 1
    rows = [json.loads((tmp_path / name).read_text())["rows"] for name in ("a.json", "b.json")]
    assert rows[0] == rows[1]
    again = record.read(path)
    assert again.warnings == [] and baselines.blessed([again]) == {environment.key(again.header): path.read_text()}


def test_equal_records_are_blessed_to_equal_bytes_in_whatever_order(results_file):
    made = [timed(f"packed/{name}", TEN) for name in "abc"]
    files = [record.read(results_file(trials, f"{n}.jsonl")) for n, trials in enumerate((made, made[::-1]))]
    split = [record.read(results_file([one], f"s{n}.jsonl")) for n, one in enumerate(made)]
    texts = [baselines.blessed(one) for one in ([files[0]], [files[1]], split, split[::-1])]
    assert all(text == texts[0] for text in texts) and len(texts[0]) == 1


def test_what_nothing_should_be_held_to_is_not_blessed(sides, results_file, tmp_path, capsys):
    code, out, err = blessed(capsys, tmp_path, sides[1])
    assert (code, out) == (2, "") and "1 trial failed (packed/a-contiguous-w2-fp64)" in err
    cut = results_file([timed("packed/a", TEN)], "cut.jsonl", end=False)
    assert blessed(capsys, tmp_path, cut)[0] == 2
    idle = results_file([timed("packed/a", TEN, verdict="SKIP")], "idle.jsonl")
    assert "nothing ran" in blessed(capsys, tmp_path, idle)[2]
    assert not (tmp_path / "kept").exists()
    assert blessed(capsys, tmp_path, sides[1], "--with-failures")[0] == 0
    assert "still wrong" in ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")[1]


def test_trials_of_a_baseline_are_kept_or_let_go_on_purpose(sides, results_file, tmp_path, capsys):
    blessed(capsys, tmp_path, sides[0])
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_text()
    part = results_file([timed("packed/b", SLOW, TEN)], "part.jsonl", time="2026-02-02T00:00:00+00:00")
    code, _, err = blessed(capsys, tmp_path, part)
    assert code == 2 and "3 trials of" in err and path.read_text() == before
    code, out, _ = blessed(capsys, tmp_path, path, part)
    assert code == 0 and len(record.read(path).trials) == 4
    assert "1 regression: 1 slower; 3 insignificant" in out
    assert blessed(capsys, tmp_path, part, "--drop")[0] == 0 and len(record.read(path).trials) == 1


def test_no_baseline_of_this_environment_names_the_nearest(sides, tmp_path, capsys):
    code, _, err = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")
    assert code == 2 and "holds none like it; ringcheck bless makes one" in err and err.count("\n") == 1
    blessed(capsys, tmp_path, sides[0])
    Path(sides[1]).write_text(Path(sides[1]).read_text().replace('"torch":"2.13.0"', '"torch":"2.14.0"'))
    err = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")[2]
    assert "differs in torch: 2.13.0 -> 2.14.0" in err


@pytest.mark.parametrize("path", sorted(baselines.HERE.glob("*/*.jsonl")), ids=lambda path: path.name)
def test_committed_baselines_lie_in_the_folder_of_their_key(path):
    assert {environment.folder(environment.key(run.header)) for run in record.read(path).runs} == {path.parent.name}
    assert (path.parent / baselines.NAME).exists()


def test_the_committed_baseline_is_what_bless_makes_of_the_records_beside_it():
    (folder,) = baselines.HERE.glob("cuda-2-x-nvidia-h200-*")
    (text,) = baselines.blessed([record.read(folder / "2xH200.jsonl")]).values()
    assert text == (folder / baselines.NAME).read_text()


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


@pytest.mark.parametrize("flags", [("--json", "--markdown"), ("--markdown", "--report"), ("--json", "--report")])
def test_one_file_for_two_outputs_is_refused(sides, tmp_path, capsys, flags):
    (tmp_path / "deep").mkdir()
    twice = tmp_path / "c", tmp_path / "deep" / ".." / "c"
    code, out, err = ran(capsys, *sides, flags[0], twice[0], flags[1], twice[1])
    assert (code, out, err.count("\n")) == (2, "", 1) and "named for two outputs" in err
    assert not (tmp_path / "c").exists()


def test_a_change_too_small_for_the_digits_shown_is_told_with_as_many_as_it_takes(results_file, capsys):
    both = [results_file([changed(timed("packed/a", TEN), "work.area_by_rank", area)], f"{area[1]}.jsonl")
            for area in ([10**6, 2 * 10**6], [10**6, 2 * 10**6 + 1])]
    (row,) = [line.split() for line in ran(capsys, *both)[1].splitlines() if "MORE IMBALANCE" in line]
    old, new, ratio = row[-3:]
    assert old != new and float(old) < float(new) and 1 < float(ratio) < 1.000001


@pytest.mark.parametrize("words", [["compare", "OLD", "NEW"], ["summary", "OLD"], ["build", "OLD", "-o", "PAGE"],
                                   ["summary", "--markdown", "NEW"], ["bless", "OLD", "--baselines", "KEPT"]])
@pytest.mark.parametrize("module", [False, True])
def test_what_cannot_be_said_ends_in_one_line_and_3(results_file, tmp_path, words, module):
    many = [timed(f"packed/{n}", TEN) for n in range(300)]
    given = {"OLD": results_file(many, "many.jsonl"), "NEW": results_file(many[:200], "fewer.jsonl"),
             "PAGE": tmp_path / "p.html", "KEPT": tmp_path / "kept"}
    name = f"reports.{words[0]}" if module else "ringcheck"
    command = [sys.executable, "-m", name, *(str(given.get(word, word)) for word in words[module:])]
    root = baselines.HERE.parents[1]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, cwd=root, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (
        3, f"ringcheck {words[0]}: stdout cannot be written: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(command, cwd=root, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (3, f"ringcheck {words[0]}: stdout cannot be written: Broken pipe\n")


def test_the_page_and_the_terminal_count_one_comparison_alike(sides, tmp_path, capsys):
    out = ran(capsys, *sides, "--report", tmp_path / "c.html")[1]
    page = (tmp_path / "c.html").read_text()
    total = out.splitlines()[-1].removeprefix("# ")
    assert total in page and f"Regressions <small>{total.split()[0]}</small>" in page


def test_help_and_readme_say_every_state(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    readme = (baselines.HERE.parents[1] / "README.md").read_text()
    assert set(states.MEANING) == set(states.STATES)
    for state, meaning in states.MEANING.items():
        assert re.search(f"^  {state} +{re.escape(meaning)}$", out, re.M) and f"`{state}`" in readme


def test_what_is_written_says_nothing_of_where_files_lie(sides, tmp_path, capsys):
    texts = []
    for folder in ("one", "two/deep"):
        (tmp_path / folder).mkdir(parents=True)
        paths = [shutil.copy(side, tmp_path / folder) for side in sides]
        targets = [tmp_path / folder / name for name in ("c.json", "c.md", "c.html")]
        ran(capsys, *paths, "--json", targets[0], "--markdown", targets[1], "--report", targets[2])
        texts.append([target.read_bytes() for target in targets])
    assert texts[0] == texts[1] and str(tmp_path).encode() not in b"".join(texts[0])


def test_a_baseline_is_never_replaced_by_one_that_cannot_be_read(sides, results_file, tmp_path, capsys):
    assert blessed(capsys, tmp_path, sides[0])[0] == 0
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_bytes()
    bad = results_file([timed(f"packed/{name}", TEN) for name in "abcd"], "bad.jsonl")
    bad.write_text(bad.read_text().replace('"step_s":[0.01', '"step_s":["x"', 1))
    code, out, err = blessed(capsys, tmp_path, bad)
    assert (code, out) == (2, "") and "field measurement.step_s is no number" in err and path.read_bytes() == before
    nan = results_file([timed(f"packed/{name}", [math.nan, 0.01, math.inf]) for name in "abcd"], "nan.jsonl")
    code, out, err = blessed(capsys, tmp_path, nan)
    assert (code, out) == (2, "") and "step_s: 2 of 3 are no time, such as nan" in err and path.read_bytes() == before
    path.write_text(path.read_text() + "[1]\n")
    code, _, err = blessed(capsys, tmp_path, sides[0])
    assert code == 2 and "the baseline before is damaged, --drop lets go of it" in err
    assert ran(capsys, "--baseline", sides[0], "--baselines", tmp_path / "kept")[0] == 2
    assert blessed(capsys, tmp_path, sides[0], "--drop")[0] == 0 and path.read_bytes() == before


def test_a_baseline_that_reads_back_as_another_is_not_written(sides, tmp_path, capsys, monkeypatch):
    assert blessed(capsys, tmp_path, sides[0])[0] == 0
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_bytes()
    line = baselines._line
    monkeypatch.setattr(baselines, "_line", lambda *told: line(*told).replace('"iters":3', '"iters":33'))
    code, _, err = blessed(capsys, tmp_path, sides[0])
    assert code == 2 and err.count("\n") == 1 and path.read_bytes() == before
