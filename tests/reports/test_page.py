"""The page: self-contained, deterministic, honest about failures, safe against hostile text."""

import base64
import hashlib
import re

import pytest

from reports import build, figures, record, view
from reports.summary import summary
from tests.reports.pages import Page, build_page, page_of


def test_the_page_needs_nothing_from_outside(results_file, trial):
    text = build_page(results_file([trial(), trial(world=3, verdict="FAIL", ratio=9)]))
    page = Page(text)
    names = [tag for tag, _ in page.tags]
    assert not {"link", "img", "iframe", "object", "form", "base"} & set(names) and names.count("script") == 1
    assert all(
        value.startswith("#") for _, found in page.tags for key, value in found.items() if key in ("href", "src")
    )
    assert "url(" not in text.replace("url(#", "") and "@import" not in text
    assert not [key for _, found in page.tags for key in found if key == "style" or key.startswith("on")]


def test_the_policy_lets_in_the_one_style_and_the_one_script_and_nothing_else(results_file, trial):
    text = build_page(results_file([trial()]))
    policy = next(found["content"] for _, found in Page(text).tags if found.get("http-equiv"))
    said = dict(part.split(" ", 1) for part in policy.split("; "))
    assert said["default-src"] == "'none'" and "unsafe" not in policy
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        [inside] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.S)
        assert said[name] == f"'sha256-{base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()}'"


def test_figures_of_benches_are_columns_only_where_some_trial_has_them(trial):
    lacking = dict.fromkeys(("bound_forward_s", "bound_step_s", "extra_bytes"))
    plain = trial(measurement=trial()["measurement"] | lacking)
    heads = [re.findall(r'data-key="([^"]+)"', page_of([one])) for one in (trial(), plain)]
    assert {"bound-share", "exposed-ms", "extra-gib"} <= set(heads[0])
    assert "exposed-ms" in heads[1] and not {"bound-share", "extra-gib"} & set(heads[1])


def test_identical_records_give_identical_bytes(results_file, trial):
    path = results_file([trial(), trial(dtype="bf16")])
    assert build_page(path) == build_page(path)


def test_failures_come_first_with_diagnosis_and_command(results_file, trial):
    diagnosis = {
        "headline": "dk arrives at the wrong rank",
        "requirement": "B4: to the owner",
        "expected": "-0.31",
        "actual": "0.0",
        "place": "rank 0, token 255",
        "again": "ringcheck --ranks 2 --cases packed/even",
    }
    text = Page(
        build_page(results_file([trial(), trial(dtype="bf16", verdict="FAIL", ratio=810, diagnosis=diagnosis)]))
    ).text
    assert "1 failed of 2 trials" in text
    for words in diagnosis.values():
        assert text.index("What went wrong") < text.index(words) < text.index("Masks and load")


def test_a_failure_shows_what_was_read_back_and_the_smallest_case(results_file, trial):
    recovered = {"tensor": "out", "sentence": "query 1 sees key 2: the key is later", "grid": ["#X.", "##o"],
                 "ranks": "001", "legend": "# right   X seen and not allowed", "counts": {"extra": 1}}
    shrunk = {"case": {"tokens": 1, "mask": "causal"}, "replay": "replay:{}", "again": "ringcheck --cases x",
              "complete": True}
    diagnosis = {"headline": "the rule causal is ignored", "recovered": recovered, "shrunk": shrunk, "again": "y"}
    page = build_page(results_file([trial(verdict="FAIL", ratio=9, diagnosis=diagnosis)]))
    assert "query 1 sees key 2" in page and "#X.\n##o" in page and recovered["legend"] in page
    assert "1 token, causal: nothing smaller fails" in page and "ringcheck --cases x" in page


def test_an_error_shows_the_stacks_of_ranks(results_file, trial):
    one = trial(
        verdict="ERROR",
        deviations=[],
        measurement=None,
        work=None,
        picture=None,
        reason="rank 1 hangs\n[rank 1] ring.py:12 recv",
    )
    text = Page(build_page(results_file([one]))).text
    assert "1 ended in error of 1 trial" in text and "[rank 1] ring.py:12 recv" in text


def test_strict_is_told_apart_and_does_not_fail_the_run(results_file, trial):
    one = trial()
    one["deviations"].append({"tensor": "dv", "ratio": 7.0, "level": "strict", "where": {"rank": 1}})
    text = Page(build_page(results_file([one, trial(dtype="bf16")]))).text
    assert "All 2 trials passed" in text and "0 of 1 hold" in text and "Strict rules not met" in text


def test_hostile_text_is_shown_as_text(results_file, trial):
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
    one = trial(
        verdict="FAIL",
        reason=evil,
        diagnosis={name: evil for name in ("headline", "requirement", "expected", "actual", "place", "again")},
    )
    for name in ("id", "name", "group", "mask", "layout", "dtype", "tokens", "note"):
        one["case"][name] = evil
    one["implementation"].update(name=evil, layout=evil)
    page = Page(build_page(results_file([one, trial(verdict="SKIP", reason=evil)], name="a&b.jsonl")))
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == 1 and not {"img", "iframe"} & set(names)
    assert page.text.count("<script>alert(1)</script>") >= 10


def test_tables_have_captions_and_scopes(results_file, trial):
    page = Page(build_page(results_file([trial(), trial(verdict="SKIP", reason="no")])))
    names = [tag for tag, _ in page.tags]
    assert names.count("table") == names.count("caption") > 3
    assert all("scope" in found for tag, found in page.tags if tag == "th")


def test_a_cut_file_and_an_empty_run_are_told(results_file, trial):
    text = Page(build_page(results_file([trial(verdict="SKIP", reason="refused")], end=False))).text
    assert "Cut after 1 trial; nothing ran" in text and "no end line" not in text and "cut before its end" in text


def test_a_cut_run_says_how_much_of_it_is_missing(results_file, trial):
    path = results_file([trial()], end=False, asked=5, kept=1)
    whole = build_page(path)
    assert "Cut: 2 of 5 trials; 1 trial passed" in Page(whole).text and 'class="idle"' in whole
    assert summary([record.read(path)]).startswith("# Cut: 2 of 5 trials; 1 trial passed\n")
    early = results_file([trial(verdict="FAIL")], "early.jsonl", asked=5)
    assert "Ended early: 1 of 5 trials; 1 failed of 1 trial" in Page(build_page(early)).text
    done = build_page(results_file([trial()], "whole.jsonl", asked=3, kept=2))
    assert "Not whole" not in done and 'class="good"' in done


def test_several_implementations_are_told_apart_everywhere(results_file, trial):
    def made(name, spec, **changes):
        one = trial(**changes)
        one["implementation"].update(name=name, spec=spec)
        return one

    strict = made("other", "my:other")
    strict["deviations"].append({"tensor": "dv", "ratio": 7.0, "level": "strict"})
    path = results_file([made("ring", "ring"), made("ring", "mine:ring", verdict="FAIL", ratio=5.0), strict,
                         made("other", "my:other", dtype="bf16", verdict="SKIP", reason="no")])
    text, lines = Page(build_page(path)).text, summary([record.read(path)])
    assert "Under test: mine:ring, other, ring" in text
    assert "1 failed of 3 trials" in text and text.count("by group of cases") == 3
    assert re.search(r"Worst strict deviation.*? other dv", text) and re.search(r"Why trials.*? no other 1", text)
    assert "#   mine:ring  PASS 0  FAIL 1" in lines and "packed/even-contiguous-w2-fp64  mine:ring" in lines
    assert "# skipped 1: other: no" in lines


def test_one_implementation_needs_no_name(results_file, trial):
    lines = summary([record.read(results_file([trial(), trial(dtype="bf16", verdict="SKIP", reason="no")]))])
    assert "  ring" not in lines and "# skipped 1: no" in lines


def test_the_later_run_counts_whatever_the_order_of_files(results_file, trial):
    old = record.read(results_file([trial(verdict="ERROR")], "r.jsonl", time="2026-01-01T00:00:00+00:00"))
    new = record.read(results_file([trial()], "a.jsonl", time="2026-01-02T00:00:00+00:00"))
    assert view.counts(view.latest([new, old]))["PASS"] == 1 == view.counts(view.latest([old, new]))["PASS"]


def test_equal_errors_are_one_line_of_the_summary(results_file, trial):
    trials = [trial(f"packed/n{n}", verdict="ERROR", reason="rank 1 hangs\nstack") for n in range(9)]
    ids = "packed/n0-contiguous-w2-fp64, packed/n1-contiguous-w2-fp64, packed/n2-contiguous-w2-fp64"
    assert f"\nERROR {ids} and 6 more  rank 1 hangs\n# largest" in summary([record.read(results_file(trials))])


def test_a_page_takes_the_place_of_a_page_and_of_nothing_else(results_file, trial, tmp_path, capsys):
    path = results_file([trial()])
    before = path.read_bytes()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine\n")
    (tmp_path / "link.html").symlink_to(path)
    for target, words in ((path, "would overwrite"), (tmp_path / "link.html", "from which it is made"),
                          (notes, "would overwrite a file that is no HTML page"), (tmp_path, "Is a directory")):
        assert build.main([str(path), "-o", str(target)]) == 2
        assert words in capsys.readouterr().err
    assert path.read_bytes() == before and notes.read_text() == "mine\n"
    for _ in range(2):
        assert build.main([str(path), "-o", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert not list(tmp_path.glob(".page*"))


def test_a_trial_run_again_counts_as_its_last_run(results_file, trial):
    files = [record.read(results_file([trial(verdict="ERROR"), trial()]))]
    assert view.counts(view.latest(files)) == {"PASS": 1, "FAIL": 0, "ERROR": 0, "SKIP": 0}


def test_the_summary_names_worst_and_slowest(results_file, trial):
    text = summary(
        [
            record.read(
                results_file([trial(), trial(dtype="bf16", ratio=0.6), trial(world=3, verdict="FAIL", ratio=9.0)])
            )
        ]
    )
    assert "1 failed of 3 trials" in text and "PASS 2  FAIL 1" in text
    assert text.index("9  out  packed/even-contiguous-w3-fp64") < text.index("0.6  out  packed/even-contiguous-w2-bf16")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["missing.jsonl"], "results file missing.jsonl cannot be read: No such file"),
        (["GIVEN", "-o", "GIVEN/no.html"], "cannot be written"),
        (["GIVEN", "-o", "/proc/nowhere/no.html"], "cannot be written: No such file"),
    ],
)
def test_command_line_errors_are_one_line_and_exit_2(results_file, trial, capsys, arguments, message):
    given = str(results_file([trial()]))
    assert build.main([word.replace("GIVEN", given) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_rectangles_of_a_mask_cover_each_allowed_cell_once():
    allowed = [[1.0 if (x + y) % 3 else 0.4 if x > y else 0.0 for x in range(9)] for y in range(9)]
    owner = [y // 3 for y in range(9)]
    covered = {}
    for (rank, level), boxes in figures.masks.boxes(allowed, owner):
        for left, top, width, height in boxes:
            for y in range(top, top + height):
                for x in range(left, left + width):
                    assert (x, y) not in covered and owner[y] == rank
                    covered[x, y] = level
    assert covered == {(x, y): 2 if allowed[y][x] == 1.0 else 1 for y in range(9) for x in range(9) if allowed[y][x]}
