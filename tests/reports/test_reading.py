"""Damaged results files: every good record is kept, whatever else is named by file, line and field."""

import json
import math
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import build, record, view
from reports.annotations import annotations
from reports.compare import comparison, told
from reports.export import export
from reports.markdown import markdown
from reports.summary import summary
from tests.reports.compared import changed
from tests.reports.pages import Page
from tests.reports.trials import HEADER, make_trial

GOOD, OTHER = make_trial(size=4), make_trial(size=4, dtype="bf16")
END = {"kind": "end", "schema": 1, "counts": {}, "seconds": 1.0, "exit_code": 0}


def put(path, *lines):
    """A results file of these records, texts and bytes."""
    data = [one if isinstance(one, bytes) else (one if isinstance(one, str) else json.dumps(one)).encode()
            for one in lines]
    path.write_bytes(b"\n".join(data) + b"\n")
    return path


@pytest.fixture
def file(tmp_path):
    def write(*lines, name="r.jsonl"):
        return put(tmp_path / name, *lines)
    return write


LEFT_OUT = [
    (GOOD | {"schema": 99}, "schema 99 is unknown, this version reads 1"),
    (GOOD | {"kind": "???"}, "not a ringcheck record: kind is '???', known are run, trial, end"),
    (GOOD | {"kind": ["x"] * 99}, "not a ringcheck record: kind is ['x', "),
    ([1, 2], "not a ringcheck record: kind is None"),
    ("7", "not a ringcheck record: kind is None"),
    (GOOD | {"case": None}, "field case is missing or no dict"),
    (GOOD | {"implementation": None}, "field implementation is missing or no dict"),
    (changed(GOOD, "case.id", None), "field case.id is missing or no str"),
    (changed(GOOD, "case.world", 0), "field case.world is below 1"),
    (changed(GOOD, "case.world", 10**400), "field case.world is no number"),
    (changed(GOOD, "case.seed", "x"), "field case.seed is no int"),
    (changed(GOOD, "implementation.spec", 5), "field implementation.spec is no str"),
    ('{"kind":"trial","schema":1,"case":{"id":"a', "not JSON"),
    (b"\x00\xff\xfe garbage", "not JSON"),
    ("[" * 99999, "not JSON"),
]
WITHOUT = [
    ("measurement.step_s", [None, 0.1], "measurement.step_s is no number"),
    ("measurement.step_s", ["x"], "measurement.step_s is no number"),
    ("measurement", "fast", "measurement is no dict"),
    ("deviations", "</script><script>alert(1)</script>", "deviations is no list"),
    ("deviations", [1], "deviations is no dict"),
    ("deviations", [{"ratio": "many"}], "deviations.ratio is no number: 'many'"),
    ("diagnosis", "dk", "diagnosis is no dict"),
    ("diagnosis", {"headline": ["x"]}, "diagnosis.headline is no str"),
    ("picture", {"allowed": [[1.0]], "owner": []}, "picture.owner does not fit picture.allowed"),
    ("work.area_by_hop", [[1, 2], [3]], "work.area_by_hop is not square"),
    ("case.requirements", "A1", "case.requirements is no list"),
    ("seconds", 10**400, "seconds is no number"),
]


@pytest.mark.parametrize(("bad", "words"), LEFT_OUT, ids=[words[:30] for _, words in LEFT_OUT])
def test_a_line_that_cannot_stand_is_left_out_named_and_counted(file, bad, words):
    found = record.read(file(HEADER, GOOD, bad, OTHER, END))
    assert [trial["case"]["dtype"] for trial in found.trials] == ["fp64", "bf16"] and len(found.runs) == 1
    (left,) = found.left_out
    assert left.startswith(f"{found.path}:3: {words}") and left.endswith("; line left out") and len(left) < 400
    text = build.page([found])
    assert "1 line could not be read; all 2 trials passed" in text and '<header class="idle">' in text
    assert f"r.jsonl:3: {words[:20]}" in Page(text).text and Page(text).text.count("<script") == 0


@pytest.mark.parametrize(("place", "value", "words"), WITHOUT, ids=[words[:40] for _, _, words in WITHOUT])
def test_a_field_that_holds_something_else_is_taken_out_and_the_rest_stands(file, place, value, words):
    path = file(HEADER, changed(GOOD, place, value), OTHER, END)
    found = record.read(path)
    assert found.left_out == [f"{path}:2: field {words}; field left out"] and len(found.trials) == 2
    part = found.trials[0]
    for name in place.split("."):
        part = part[name]
    assert part is None or place == "diagnosis" and part["headline"] is None
    text = build.page([found])
    assert "1 field could not be read; all 2 trials passed" in text and text.count("<script>") == 1
    with pytest.raises(ValueError, match="r.jsonl:2: field "):
        record.read(path, strict=True)


@pytest.mark.parametrize("verdict", ["WEIRD", None, 5, "pass", ""])
def test_an_unknown_verdict_is_no_pass_and_hides_no_earlier_record_of_its_trial(file, verdict):
    found = record.read(file(HEADER, GOOD, GOOD | {"verdict": verdict}, OTHER, END))
    trials = view.latest([found])
    assert [trial["verdict"] for trial in trials] == ["ERROR", "PASS"] and len(found.left_out) == 1
    assert "field verdict is" in trials[0]["reason"] and "not known" in trials[0]["reason"]
    assert "1 field could not be read; 1 ended in error of 2 trials" in build.page([found])


def test_trials_behind_a_lost_header_belong_to_no_other_run(file):
    found = record.read(file(HEADER, GOOD, HEADER | {"schema": 99}, OTHER, END))
    assert [(bool(run.header), len(run.trials)) for run in found.runs] == [(True, 1), (False, 1)]
    found = record.read(file(HEADER, GOOD, END, b'{"kind":"run","schema":1,"x', OTHER, END))
    assert [bool(run.header) for run in found.runs] == [True, False]


def test_a_line_that_was_left_out_is_not_told_as_a_trial_that_never_ran(file):
    asked = HEADER | {"settings": HEADER["settings"] | {"asked": 2}}
    assert view.cuts([record.read(file(asked, GOOD, OTHER | {"schema": 2}, END))]) == []


def test_a_file_without_a_record_is_told_beside_others_and_fatal_alone(file, tmp_path, capsys):
    bad, good = file(GOOD | {"schema": 9}, name="bad.jsonl"), file(HEADER, GOOD, END, name="good.jsonl")
    target = str(tmp_path / "x.html")
    assert build.main([str(bad), "-o", target]) == 2 and not (tmp_path / "x.html").exists()
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "bad.jsonl: holds no record" in error and "schema 9 is unknown" in error
    assert build.main([str(bad), str(good), "-o", target]) == 0
    said = capsys.readouterr()
    assert said.out == f"# 1 line and 1 file could not be read; 1 trial passed: {target}\n"
    assert said.err.splitlines() == [
        f"ringcheck build: {bad}:1: schema 9 is unknown, this version reads 1; line left out",
        f"ringcheck build: {bad}: holds no record of a run or trial"]


def test_every_way_to_tell_results_says_what_is_left_out(file, tmp_path):
    path = file(HEADER, GOOD, "{", changed(OTHER, "deviations", 1), END)
    files = [record.read(path)]
    assert summary(files).startswith("# 1 line and 1 field could not be read; all 2 trials passed\n")
    assert "r.jsonl:3: not JSON; line left out" in summary(files)
    assert "1 line and 1 field could not be read" in markdown(files).splitlines()[0]
    assert "r.jsonl:4: field deviations is no list; field left out" in markdown(files)
    (line,) = annotations(files)
    assert line.startswith("::warning title=ringcheck%3A damaged results::1 line and 1 field could not be read%0A")
    count, _, left = export([path], tmp_path / "x.csv")
    assert count == 2 and len(left) == 2
    with pytest.warns(UserWarning, match="r.jsonl:3: not JSON"):
        from reports import frame
        pytest.importorskip("pandas")
        assert len(frame(path)) == 2


def test_many_damaged_lines_are_counted_and_do_not_fill_the_page(file):
    found = record.read(file(HEADER, GOOD, *["{"] * 5000, END))
    text = build.page([found])
    assert "5000 lines could not be read" in text and text.count("not JSON") <= build.LEFT_OUT
    assert summary([found]).count("\n") < 40 and markdown([found]).count("not JSON") < 40


HOSTILE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.sampled_from(["", "nan", "\ud800", "\u202e<script>alert(1)</script>", "x" * 5000, 10**400, -1, 0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "ratio"]), inner, max_size=2),
    max_leaves=4)


def places(value, at=()):
    """Every place of a record."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*at, name)
        yield from places(inner, (*at, name))


TOLD = {"headline": "dk off", "shrunk": {"case": {"tokens": 1}, "again": "x"},
        "recovered": {"sentence": "s", "grid": ["o."], "legend": "l"}}
TRANSFER = {"start": 0.0, "end": 0.2, "kind": "send", "peer": 1, "bytes": 8, "hop": 1, "phase": "forward"}
LANE = {"phases": [["forward", 0.0, 1.0]], "waits": [[0.1, 0.2, 1]], "transfers": [TRANSFER]}
FULL = make_trial(size=2, verdict="FAIL", diagnosis=TOLD, timeline={"step_s": 1.0, "ranks": [LANE] * 2},
                  error_maps=[{"tensor": "dk", "by": ["tokens", "heads"], "edges": [0, 2], "ratios": [[1.5, 0.5]]}])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([("head", *at) for at in places(HEADER)]
                                          + [("trial", *at) for at in places(FULL)]
                                          + [("end", *at) for at in places(END)]), HOSTILE), min_size=1, max_size=3))
def test_a_record_with_anything_anywhere_is_never_fatal_and_the_good_one_beside_it_is_kept(tmp_path, changes):
    made = json.loads(json.dumps({"head": HEADER, "trial": FULL, "end": END}))
    for at, value in changes:
        part = made
        try:
            for name in at[:-1]:
                part = part[name]
            part[at[-1]] = value
        except (TypeError, LookupError):
            pass  # another change took this place away
    path = put(tmp_path / "r.jsonl", made["head"], made["trial"], OTHER, made["end"])
    good = put(tmp_path / "good.jsonl", HEADER, OTHER, END)
    found = record.read(path)
    assert OTHER["case"]["id"] in [trial["case"]["id"] for trial in found.trials]
    text = build.page([found])
    assert text.encode() and Page(text).text and text.count("<script>") == 1 and "\u202e" not in text
    assert summary([found]).encode("utf-8", "backslashreplace") and markdown([found]).encode() is not None
    assert all(line.startswith("::") for line in annotations([found]))
    export([path], tmp_path / "x.csv")
    for sides in ((found, record.read(good)), (record.read(good), found)):
        compared = comparison.compare(*([one] for one in sides))
        assert told.text(compared).encode() and told.markdown(compared) and told.as_json(compared)
        assert bool(compared.damaged) == bool(found.damage) and (compared.code == 2 or not found.damage)


def test_non_finite_numbers_that_a_run_writes_are_read_back(tmp_path):
    made = changed(changed(GOOD, "measurement.bytes_sent", [math.nan, 1.0]), "seconds", math.inf)
    with record.Writer(tmp_path / "r.jsonl") as writer:
        writer.trial(made)
    found = record.read(tmp_path / "r.jsonl", strict=True)
    assert math.isnan(found.trials[0]["measurement"]["bytes_sent"][0]) and found.trials[0]["seconds"] == math.inf


def test_a_byte_order_mark_costs_no_header(file):
    found = record.read(file(b"\xef\xbb\xbf" + json.dumps(HEADER).encode(), GOOD, END))
    assert found.header["environment"] and not found.damage


@pytest.mark.parametrize("schema", [True, 1.0, "1", None])
def test_a_schema_is_the_number_and_nothing_like_it(file, schema):
    assert "is unknown" in record.read(file(HEADER, GOOD | {"schema": schema}, OTHER)).left_out[0]


def test_of_runs_of_one_second_the_worse_verdict_counts_in_whatever_order(file):
    one, two = (record.read(file(HEADER, GOOD | {"verdict": verdict}, END, name=f"{verdict}.jsonl"))
                for verdict in ("PASS", "FAIL"))
    for files in ((one, two), (two, one)):
        assert [trial["verdict"] for trial in view.latest(files)] == ["FAIL"]
    resumed = HEADER | {"argv": ["--resume"]}
    found = record.read(file(HEADER, GOOD | {"verdict": "ERROR"}, resumed, GOOD, END))
    assert [trial["verdict"] for trial in view.latest([found])] == ["PASS"]


def test_a_page_is_the_same_wherever_files_lie_and_in_whatever_order_they_are_named(tmp_path):
    texts = []
    for folder in ("a", "b/c"):
        (tmp_path / folder).mkdir(parents=True)
        paths = [put(tmp_path / folder / name, HEADER, trial, "{", END) for name, trial in (("x", GOOD), ("y", OTHER))]
        texts += [build.page(record.read_all(order)) for order in (paths, paths[::-1])]
    assert len(set(texts)) == 1 and str(tmp_path) not in texts[0]


@given(st.lists(st.tuples(*map(st.sampled_from, ("abc", "abc", "xy"))), min_size=1, max_size=6))
def test_names_tell_files_apart_and_are_as_short_as_can_be(paths):
    files = [record.Results("/".join(("", "root", *path))) for path in paths]
    names = view.names(files)
    assert len(set(names)) == len(set(paths)) and all(one.path.endswith(f"/{name}") for one, name in zip(files, names))
    if len({path[-1] for path in paths}) == len(set(paths)):
        assert all("/" not in name for name in names)


def test_marks_of_direction_stand_in_a_page_by_their_code(file):
    evil = "\u202eabc\u2066\u200f\x1b"
    one = changed(changed(GOOD, "case.mask", evil), "reason", evil)
    text = build.page([record.read(file(HEADER, one | {"verdict": "FAIL"}, END))])
    assert "\\u202eabc\\u2066\\u200f\\x1b" in text
    assert not any(unicodedata.category(one) in ("Cf", "Cc") for one in set(text) - set("\n\t"))


def test_a_summary_is_a_few_lines_of_text_that_stays_in_its_line(tmp_path):
    evil = "x\n::error::forged\x1b[31m\u202e"
    trials = [make_trial(f"packed/n{n}{evil}", size=2, verdict="FAIL" if n % 3 else "PASS",
                         reason=f"{n} {evil}", diagnosis=None) for n in range(200)]
    told_ = summary([record.read(put(tmp_path / "r.jsonl", HEADER, *trials, END))])
    lines = told_.split("\n")
    assert len(lines) < 30 and all(line.isprintable() for line in lines) and not any(
        line.startswith("::") for line in lines)
    assert "#   and 128 more kinds of failure" in lines and "#   and 62 more timed trials" in lines


def test_texts_without_end_do_not_fill_a_page(file):
    def page(*trials):
        return build.page([record.read(file(HEADER, *trials, END))])

    plain = len(page(GOOD, OTHER))
    for place in ("case.id", "case.dtype", "case.mask", "implementation.name", "implementation.spec",
                  "implementation.layout", "reason"):
        assert len(page(changed(GOOD, place, "y" * 10**6), OTHER)) < plain + 60_000, place
    one, two = (changed(GOOD, "case.id", "y" * 5000 + end) for end in "ab")
    assert page(one, two).count("more characters, ") > 1
    requirements = [changed(GOOD, "case.requirements", ["A" * 10**6])]
    assert len(page(*requirements)) < plain + 60_000
