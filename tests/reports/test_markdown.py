"""The summary of a CI job: what it says, its size, and text of records that Markdown must not read as markup."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import markdown, record, summary, visible

WRONG = {"headline": "dk at the wrong rank", "requirement": "B4: gradients", "again": "ringcheck --cases x"}


def told(path, limit=markdown.LIMIT):
    return markdown.markdown([record.read(path)], limit)


def cells(text):
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]


def test_failures_come_first_and_every_table_has_as_many_cells_as_heads(results_file, trial):
    strict = trial(dtype="bf16")
    strict["deviations"].append({"tensor": "dv", "ratio": 7.0, "level": "strict"})
    text = told(results_file([trial(), trial(world=3, verdict="FAIL", ratio=9.0, diagnosis=WRONG), strict,
                              trial(world=4, verdict="SKIP", reason="no packing")], end=False, asked=9))
    assert text.startswith("## ringcheck: Cut: 4 of 9 trials; 1 failed of 3 trials\n")
    assert "2 PASS, 1 FAIL, 0 ERROR, 1 SKIP; strict level, reported apart: 0 of 1 hold" in text
    titles = re.findall(r"^(?:### |<details><summary>)([A-Z][a-z]+)", text, re.M)
    assert titles == ["Failures", "Strict", "Not", "By", "Speed", "Skipped", "All", "Environment"]
    assert ("| FAIL | ring | <code>packed/even-contiguous-w3-fp64</code> | dk at the wrong rank | B4: gradients | "
            "<code>ringcheck --cases x</code> |\n") in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1
    assert text.count("<details>") == text.count("</details>") == 2


def test_a_summary_keeps_its_size_by_whole_rows_and_counts_what_is_left_out(results_file, trial):
    trials = [trial(f"packed/n{n}", size=2, verdict="FAIL" if n % 2 else "PASS",
                    diagnosis={**WRONG, "headline": f"dk off by {n}"} if n % 2 else None) for n in range(400)]
    path = results_file(trials)
    whole = told(path)
    assert "Left out" not in whole
    for limit in (4096, 10_000, 40_000, len(whole.encode()) - 1):
        text = told(path, limit)
        assert len(text.encode()) <= limit and text.startswith("## ringcheck: 200 failed of 400 trials")
        rows = [row for row in cells(text) if row[0] in ("FAIL", "PASS")]
        full = set(map(tuple, cells(whole)))
        assert rows and all(tuple(row) in full for row in rows)
        (last,) = re.findall(r"\*\*Left out, so that this fits into .* bytes:\*\* (.*)\.\n$", text)
        out = {what: (int(n), int(all)) for n, all, what in re.findall(r"(\d+) of (\d+) ([a-z ]+)", last)}
        if "kinds of failure" in out:
            assert sum(len(row) == 6 and "B4" in row[4] for row in rows) == 200 - out["kinds of failure"][0]
        assert text.count("<details>") == text.count("</details>")


def test_failures_that_are_told_alike_are_one_row_and_each_is_in_the_table_of_all(results_file, trial):
    text = told(results_file([trial(f"packed/n{n}", size=2, verdict="FAIL", diagnosis=WRONG) for n in range(79)]))
    assert text.count("dk at the wrong rank") == 1 and text.count("B4: gradients") == 1
    assert "<code>packed/n0-contiguous-w2-fp64</code> and 78 more | dk" in text and text.count("\n| FAIL |") == 80


def test_a_summary_of_many_failures_with_long_texts_takes_a_mebibyte_at_most(results_file, trial):
    evil = {**WRONG, "headline": "|<b>é" * 100}
    many = [{**evil, "headline": f"{n} {evil['headline']}"} for n in range(1500)]
    text = told(results_file([trial(f"a/{n}", verdict="FAIL", diagnosis=one, size=2) for n, one in enumerate(many)]))
    assert (1 << 20) - 2000 < len(text.encode()) <= 1 << 20


def test_a_limit_that_holds_nothing_is_refused(results_file, trial, capsys):
    assert summary.main([str(results_file([trial()])), "--markdown", "--limit", "100"]) == 2
    assert capsys.readouterr().err == "ringcheck summary: a summary takes at least 4096 bytes, the limit is 100\n"


@given(st.text())
def test_a_cell_holds_no_markup_link_or_line_end(text):
    shown = markdown.cell(text)
    assert not re.search(r"[<>|`*_~\[\]!@\\\n\r]|&(?!#\d+;)|(?<!&)#|://|www\.", shown)
    assert visible.line(text) == visible.line(visible.line(text)) and len(visible.line(text)) <= 400


def test_hidden_characters_are_shown_by_their_code():
    assert visible.line("a\u202eb\x1b[31m\ud800\nc\td") == "a\\u202eb\\x1b[31m\\ud800 c d"
    assert visible.line("שלום é 漢字") == "שלום é 漢字"
    assert visible.line("x" * 500) == "x" * 399 + "…" and visible.first_line("\n \n two\nthree") == "two"


def test_hostile_records_are_text(results_file, trial):
    evil = "<script>alert(1)</script> | `x` @everyone ![i](https://a.b)\n# head"
    one = trial(verdict="ERROR", reason=evil, deviations=[], measurement=None, work=None)
    one["case"].update(id=evil, dtype=evil)
    one["implementation"].update(name=evil)
    two = trial(ratio=float("nan"), verdict="FAIL", diagnosis=None, reason=None)
    path = results_file([one, two, {**trial(world=3), "case": {"id": "x", "name": "x", "world": 3}}])
    text = told(path)
    assert "<script" not in text and "@everyone" not in text and "https://" not in text
    assert "&#60;script&#62;alert(1)" in text and "no reason given" not in text.split("\n")[0]
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_identical_records_give_identical_bytes(results_file, trial):
    trials = [trial(), trial(world=3, verdict="FAIL", diagnosis=WRONG)]
    path = results_file(trials)
    assert told(path) == told(path)


@pytest.mark.parametrize("flag", ["--markdown", "--annotations"])
def test_bad_input_is_one_line_and_code_2(tmp_path, capsys, flag):
    assert summary.main([str(tmp_path / "missing.jsonl"), flag]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "missing.jsonl cannot be read: No such file" in error


def test_the_command_line_prints_markdown(results_file, trial, capsys):
    path = results_file([trial()])
    assert summary.main([str(path), "--markdown"]) == 0
    assert capsys.readouterr().out == told(path)
