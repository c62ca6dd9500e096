"""The page: self-contained, deterministic, honest about failures, safe against hostile text, small for many trials."""

import re
from html.parser import HTMLParser

import pytest

from reports import build, figures, record, view
from reports.summary import summary

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Tags of a page, checked to be balanced, and its visible text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.feed(text)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def build_page(path):
    return build.page([record.read(path)])


def test_the_page_needs_nothing_from_outside_and_no_script(results_file, trial):
    page = Page(build_page(results_file([trial(), trial(world=3)])))
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "img", "iframe", "object"}
    assert all(
        value.startswith("#") for _, found in page.tags for key, value in found.items() if key in ("href", "src")
    )
    assert "url(" not in build_page(results_file([trial()]))


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
    assert "1 ended in error of 1 trials" in text and "[rank 1] ring.py:12 recv" in text


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
    assert not {"script", "img"} & {tag for tag, _ in page.tags}
    assert page.text.count("<script>alert(1)</script>") >= 10


def test_tables_have_captions_and_scopes(results_file, trial):
    page = Page(build_page(results_file([trial(), trial(verdict="SKIP", reason="no")])))
    names = [tag for tag, _ in page.tags]
    assert names.count("table") == names.count("caption") > 3
    assert all("scope" in found for tag, found in page.tags if tag == "th")


def test_fifteen_hundred_trials_stay_small_and_pictures_are_not_repeated(results_file, trial):
    trials = [
        trial(f"group{n % 10}/case{n}", world, layout, dtype, size=48)
        for n in range(40)
        for layout in ("contiguous", "zigzag", "striped")
        for world in (1, 2, 3, 4)
        for dtype in ("fp64", "fp32", "bf16")
    ]
    text = build_page(results_file(trials))
    assert len(trials) == 1440 and text.count('<svg class="mask"') == 40 * 3
    assert len(text) < 2_500_000


def test_a_cut_file_and_an_empty_run_are_told(results_file, trial):
    text = Page(build_page(results_file([trial(verdict="SKIP", reason="refused")], end=False))).text
    assert "Nothing ran" in text and "no end line" in text and "cut before its end" in text


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
    for (rank, level), boxes in figures._boxes(allowed, owner):
        for left, top, width, height in boxes:
            for y in range(top, top + height):
                for x in range(left, left + width):
                    assert (x, y) not in covered and owner[y] == rank
                    covered[x, y] = level
    assert covered == {(x, y): 2 if allowed[y][x] == 1.0 else 1 for y in range(9) for x in range(9) if allowed[y][x]}
