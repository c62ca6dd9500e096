"""What `ringcheck compare` prints and writes: tables, Markdown, JSON, pages, and a stdout that takes no more."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports import build
from reports.compare import baselines, states, told
from reports.compare.command import main
from tests.reports.compared import TEN, changed, ran, timed


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
