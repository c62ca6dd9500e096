"""`ringcheck compare` and `ringcheck bless` as commands: exit codes, files, baselines, what they print."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reports import bless, build, record
from reports.compare import baselines, environment, told
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

    def page(files, regressions=(), against=()):
        given.extend(regressions)
        told.extend(against)
        return "<!doctype html>"

    monkeypatch.setattr(build, "page", page)
    assert ran(capsys, *sides, "--report", tmp_path / "c.html")[0] == 1
    assert [row["state"] for row in given] == ["broke", "missing", "slower", "more bytes"]
    assert told[0].startswith(f"OLD: {sides[0]}") and told[1].startswith(f"NEW: {sides[1]}")


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
