"""Every figure, whatever records hold: well-formed, no style of its own, the same bytes twice, no words over words."""

import copy
import json
import math
import re
from itertools import combinations
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import figures, reading, view
from reports.figures import svg
from reports.gallery import FIGURES, gallery
from reports.record import Results, Run
from tests.reports.trials import complete

EVIL = "<script>alert(1)</script>\"'&\x00\ud800\u202e" + "a-very-long-name-" * 40
SVG = "{http://www.w3.org/2000/svg}"
FINITE = re.compile(r"(?<![A-Za-z])(nan|inf)", re.IGNORECASE)
SHAPES = {"svg", "title", "g", "path", "rect", "text", "a"}
ATTRIBUTES = {"class", "viewBox", "role", "width", "height", "x", "y", "d", "stroke-dasharray", "preserveAspectRatio",
              "href", "tabindex"}


def words_of(root):
    """Boxes of all words: left, top, right, bottom and the words, from classes as figures.css sets them."""
    found = []

    def walk(node, inherited):
        names = inherited | set((node.get("class") or "").split())
        if node.tag.removeprefix(SVG) == "text" and (node.text or "").strip():
            size = 11 if "head" in names else 9 if names & {"hop", "small"} else 10
            wide, x, y = svg.wide(node.text, size), float(node.get("x")), float(node.get("y"))
            left = x - wide if "end" in names else x - wide / 2 if names & {"tick", "mid", "hop"} else x
            found.append((left, y - 0.72 * size, left + wide, y + 0.12 * size, node.text))
        for child in node:
            walk(child, names)

    walk(root, set())
    return found


def checked(figure):
    """The parsed drawing of a figure that keeps the rules of all figures."""
    root = ElementTree.fromstring(figure.svg.encode())
    assert root.get("role") == ("img" if root.find(".//a") is None else "group")
    assert root[0].tag == "title" and root[0].text.strip()
    for node in root.iter():
        assert node.tag in SHAPES and set(node.attrib) <= ATTRIBUTES, (node.tag, node.attrib)
        assert not any(FINITE.search(node.get(name) or "") for name in ("d", "x", "y", "width", "height", "viewBox"))
    assert figure.rows and all(len(row) == len(figure.head) for row in figure.rows)
    assert all(isinstance(cell, str) for row in figure.rows for cell in row) and figure.caption and figure.metric
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", figure.anchor)
    return root


def uncrossed(root):
    """Words neither lie over each other nor leave the drawing."""
    boxes, wide, high = words_of(root), float(root.get("width")), float(root.get("height"))
    for left, top, right, bottom, told in boxes:
        assert left >= -1 and right <= wide + 1 and top >= -1 and bottom <= high + 1, told
    for one, other in combinations(boxes, 2):
        beside = one[2] <= other[0] + 0.5 or other[2] <= one[0] + 0.5
        assert beside or one[3] <= other[1] + 0.5 or other[3] <= one[1] + 0.5, (one, other)


def several(trial, count, name="ring"):
    made = [
        complete(f"{name}-{index}-{name[::-1]}", world, tokens * world, dtype=dtype, verdict=verdict)
        for index in range(count)
        for world, tokens in ((1, 512), (1, 2048), (2, 512), (2, 1024), (8, 256))
        for dtype, verdict in (("bf16", "PASS"), ("fp32", ("FAIL", "PASS", "ERROR", "SKIP")[index % 4]))
    ]
    days = [Run({"time": f"2026-01-0{day}T00:00:00"}, copy.deepcopy(made)) for day in (1, 2)]
    files = [Results("days.jsonl", [day]) for day in days]
    for index, one in enumerate(files[0].runs[0].trials):
        one["measurement"]["step_s"] = [0.01 * (1 + index)]
        one["verdict"] = "PASS" if index % 2 else "FAIL"
    return made, files


@pytest.mark.parametrize("count, name", [(1, "ring"), (2, "ring"), (5, EVIL), (8, "ring-flash-attn:zigzag-varlen")])
def test_every_figure_is_drawn_and_no_words_cover_others(trial, count, name):
    trials, files = several(trial, count, name)
    if count == 5:
        for one in trials:
            one["case"].update(name=EVIL, group=EVIL, mask=EVIL, rules=[EVIL], id=one["case"]["id"] + EVIL)
            one["implementation"]["layout"] = EVIL
    made = gallery(trials, files)
    assert len(made) == len(FIGURES) == len({figure.anchor for figure in made})
    for figure in made:
        uncrossed(checked(figure))
    assert made == gallery(trials, files)


def test_a_figure_without_data_is_none(trial):
    bare = trial(measurement=None, work=None, deviations=[])
    bare["case"]["requirements"] = []
    assert [figure.anchor for figure in gallery([bare], [])] == ["conformance"]
    assert gallery([], []) == []
    for name in ("measurement", "work", "timeline", "error_maps", "deviations"):
        for empty in (None, {}, []):
            for figure in gallery([trial(**{name: empty})], []):
                checked(figure)


def test_hostile_names_stay_words(trial):
    trials, files = several(trial, 3, EVIL)
    for figure in gallery(trials, files):
        assert "<script" not in figure.svg and "\x00" not in figure.svg and "\u202e" not in figure.svg
        figure.svg.encode()


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 1, math.nan, math.inf, -math.inf, 1e-320, 1e308, 10**400]),
    st.sampled_from(["inf", "nan", EVIL]),
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=9),
    st.sampled_from([[], {}, [[]], [None, [], {}]]),
    st.lists(st.floats(), max_size=4),
    st.lists(st.lists(st.floats(), max_size=3), max_size=3),
)


def leaves(value, path=()):
    """Paths of everything inside a record."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in inside:
        yield (*path, key)
        yield from leaves(item, (*path, key))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_values_never_raise_and_stay_well_formed(trial, data):
    one = complete("ring", 2, 512, ratio=data.draw(st.sampled_from([0.5, math.nan, math.inf])))
    paths = [path for path in leaves(one) if path[0] not in ("kind", "schema", "picture")]
    for path in data.draw(st.lists(st.sampled_from(paths), min_size=1, max_size=8, unique=True)):
        before, place = copy.deepcopy(one), one
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = data.draw(ODD)
            reading.mended(one)
        except (ValueError, LookupError, TypeError):
            one = before
    trials = [one, complete("ring", 4, 512), complete("ring", 2, 512, layout="zigzag")]
    files = [Results(name, [Run({"time": name}, trials)]) for name in ("1", "2")]
    for figure in gallery(trials, files):
        checked(figure)


@settings(max_examples=60, deadline=None)
@given(headers=st.lists(st.dictionaries(st.sampled_from(["time", "environment", "settings"]), ODD), max_size=4))
def test_history_bears_any_header(headers):
    one = {
        "case": {"id": "a", "name": "a", "world": 1},
        "implementation": {"name": "ring"},
        "verdict": "PASS",
        "measurement": {"step_s": [0.5]},
    }
    files = [Results("x", [Run(header, [one])]) for header in headers]
    for figure in gallery([one], files):
        checked(figure)


def test_thousands_of_trials_stay_small(trial):
    base = json.dumps(complete("ring", 2, 512))
    trials = []
    for index in range(1500):
        one = json.loads(base)
        one["case"].update(
            id=f"g{index % 9}/case{index}-w{index % 7 + 1}-bf16",
            name=f"g/case{index // 14}",
            group=f"g{index % 9}",
            world=index % 7 + 1,
            tokens=64 * (index % 7 + 1) if index % 2 else 64 * (1 + index // 7 % 50),
            dtype="bf16",
        )
        one["verdict"] = "FAIL" if index % 10 == 0 else "PASS"
        trials.append(one)
    made = gallery(trials, [Results("a", [Run({"time": "1"}, trials)]), Results("b", [Run({"time": "2"}, trials)])])
    assert len(made) == len(FIGURES)
    for figure in made:
        assert len(figure.svg) < 300_000, figure.anchor
        root = checked(figure)
        if figure.anchor in ("samples", "history", "load"):
            uncrossed(root)


@given(st.text(max_size=60), st.integers(1, 40))
def test_cut_words_fit_and_are_clean(words, room):
    told = svg.cut(words, room)
    assert svg.columns(told) <= room
    ElementTree.fromstring(f"<svg>{svg.text(0, 0, words)}</svg>".encode())
    if svg.columns(svg.clean(words)) <= room:
        assert told == svg.clean(words)


@given(st.lists(st.lists(st.floats(), min_size=1, max_size=4), min_size=2, max_size=4), st.text(max_size=200))
def test_older_figures_bear_odd_values(area, label):
    for drawn in (
        figures.hops(area, label),
        figures.bars(area[0], label),
        figures.budgets({label: [*area[0], 10**400]}, label),
    ):
        ElementTree.fromstring(drawn.encode())
        assert not FINITE.search("".join(re.findall(r' (?:d|x|y|width|height)="([^"]*)"', drawn)))


def test_view_labels_are_what_figures_show(trial):
    trials, files = several(trial, 2)
    told = {view.labels(trials)(one) for one in trials}
    for figure in gallery(trials, files):
        shown = {cell for row in figure.rows for cell in row}
        assert any(any(label in cell for label in told) for cell in shown) or figure.anchor == "load"
