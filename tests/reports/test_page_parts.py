"""Parts of the page: their order, regressions, figures, anchors of trials, numbers as they sort."""

import re

import pytest

from reports import build, changes, metrics, record, rows
from reports.figure import Figure
from tests.reports.pages import Page, build_page


def test_the_order_of_the_page(results_file, trial):
    path = results_file([trial(), trial(dtype="bf16", verdict="FAIL", ratio=9)])
    text = build.page([record.read(path)], [CHANGE])
    places = [text.index(f'<section id="{name}"')
              for name in ("regressions", "failures", "figures", "trials", "environment", "reproduce")]
    assert places == sorted(places) and text.index("<header") < places[0]


CHANGE = {"state": "slower", "case": "packed/even-contiguous-w2-fp64", "implementation": "ring", "metric": "step_ms",
          "old": 10.0, "new": 13.0, "ratio": 1.3, "low": 1.2, "high": 1.4}


def test_regressions_are_shown_where_a_comparison_gives_them(results_file, trial):
    files = [record.read(results_file([trial()]))]
    assert "Regressions" not in Page(build.page(files)).text
    assert "Nothing is worse than the baseline" in Page(build.page(files, [])).text
    broke = {**CHANGE, "state": "broke", "case": "gone/x", "ratio": float("nan")}
    given = [{**CHANGE, "state": "faster"}, CHANGE, broke, {"state": "<b>odd</b>", "case": None}]
    text = build.page(files, given)
    assert '<header class="bad">' in text and "✗ 1 broke" in text and "<b>odd" not in text
    assert text.index("✗ broke") < text.index("▾ slower") < text.index("▴ faster")
    assert '<a href="#packed/even-contiguous-w2-fp64@ring">' in text and 'href="#gone' not in text
    assert "1.2 to 1.4" in text


def test_a_trial_that_is_slower_in_two_ways_counts_once():
    found = changes.changes([{**CHANGE, "metric": metric} for metric in ("step ms", "forward ms")], ())
    assert [row[:2] for row in found["headline"]] == [("slower", 1)] and found["trials"] == 1
    assert len(found["worse"]) == 2


def test_a_state_that_is_not_known_to_be_harmless_counts_as_worse():
    found = changes.changes([{**CHANGE, "state": state} for state in ("new", "grew", "same", "broke")], ())
    assert [row["state"] for row in found["worse"]] == ["broke", "grew"]
    assert [row["state"] for row in found["rest"]] == ["new", "same"]


def test_a_figure_of_the_gallery_has_its_numbers_and_its_metric(results_file, trial, monkeypatch):
    one = Figure(anchor="load-by-rank", title="Load", svg='<svg role="img"><title>t</title></svg>', caption="pairs",
                 head=("rank", "pairs"), rows=(("0", "<12>"),), metric="Load imbalance")
    monkeypatch.setattr(build, "gallery", lambda trials, files: [one])
    page = build_page(results_file([trial()]))
    assert 'id="load-by-rank"' in page and "&lt;12&gt;" in page
    assert "docs/metrics.md</code>, <code>Load imbalance" in page
    assert page.index(">Load</a>") < page.index('id="load-by-rank"')


def test_words_of_a_number_table_begin_at_the_left():
    rows_there = [("a/x", "ring", "2", "1.5e-6", "✗ 1/3"), ("b", "ring", "–", "nan", "–")]
    assert build.worded(rows_there) == "c2 c5" and build.worded([]) == ""


def test_every_svg_has_a_title_and_every_id_is_one(results_file, trial):
    page = Page(build_page(results_file([trial(), trial(), trial(dtype="bf16", verdict="FAIL", ratio=2)])))
    ids = [found["id"] for _, found in page.tags if "id" in found]
    assert len(ids) == len(set(ids))
    drawings = [at for at, (tag, found) in enumerate(page.tags) if tag == "svg" and "aria-hidden" not in found]
    assert drawings and all(page.tags[at][1]["role"] in ("img", "group") for at in drawings)
    assert all(page.tags[at + 1][0] == "title" for at in drawings)
    targets = [found["href"][1:] for tag, found in page.tags if tag == "a"]
    assert set(targets) <= set(ids)


def test_a_cell_of_the_matrix_leads_to_the_row_of_its_worst_trial(results_file, trial):
    trials = [trial(ratio=0.2), trial(ratio=0.7, layout="zigzag"), trial(world=3, verdict="FAIL", ratio=9),
              trial('packed/"<&>', world=3)]
    text = build_page(results_file(trials))
    page, matrix = Page(text), Page(re.search(r'<section class="figure" id="conformance">.*?</section>', text, re.S)[0])
    rows_there = {found["id"] for tag, found in page.tags if tag == "tr" and "id" in found}
    cells = [found["href"][1:] for tag, found in matrix.tags if tag == "a" and "class" not in found]
    assert len(cells) == 3 and set(cells) <= rows_there
    assert "packed/even-zigzag-w2-fp64@ring" in cells and "packed/even-contiguous-w2-fp64@ring" not in cells


def test_anchors_are_the_same_in_every_page_and_never_shared(trial):
    odd = trial("odd")
    odd["case"]["id"] = 'a b"<\u202e>' + "x" * 400
    again = trial()
    again["case"]["seed"] = 8
    trials = [trial(), again, trial(dtype="bf16"), odd]
    found = rows.anchors(trials)
    assert found[id(trials[0])] == "packed/even-contiguous-w2-fp64@ring" and len(set(found.values())) == 4
    assert rows.anchors(trials[2:])[id(odd)] == found[id(odd)]
    assert all(re.fullmatch(r"[A-Za-z0-9._/:@+=~-]{1,140}", name) for name in found.values())


@pytest.mark.parametrize(
    "value, shown, sorts",
    [(0.5, "0.50", None), (2.3e-6, "0.00", 2.3e-6), (float("nan"), "nan", "Infinity"),
     (float("-inf"), "-inf", "-Infinity"), (9306052905.65, "9.31e+09", None)],
)
def test_a_number_sorts_by_what_rounding_hides(trial, value, shown, sorts):
    told, key = rows.measurement(trial(), metrics.Column("x", "", lambda _: value))
    assert told == shown and (key == sorts or float(key) == sorts)
