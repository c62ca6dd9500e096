"""Timelines, error maps and loads of layouts in a record: whole ones are read, foreign and damaged ones are named."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import fields, record

LINE = {"phases": [["forward", 0.0, 1.0], ["backward", 1.0, 2.5]], "waits": [[0.25, 0.5, 1], [1.5, 2.0, None]],
        "transfers": [{"start": 0.0, "end": 0.5, "kind": "send", "peer": 1, "bytes": 64, "hop": 1, "phase": "forward"},
                      {"start": 1.0, "end": 2.0, "kind": "all_reduce", "peer": None, "bytes": 8, "hop": None,
                       "phase": "backward"}]}
LOAD = {"area_by_rank": [6, 9], "area_by_hop": [[6, 0], [4, 5]], "need_bytes": [0, 64]}
TRIAL = {
    "kind": "trial", "schema": 1, "case": {"id": "a-w2", "name": "a", "world": 2}, "implementation": {"name": "ring"},
    "verdict": "FAIL", "timeline": {"step_s": 2.5, "ranks": [LINE, LINE]},
    "error_maps": [{"tensor": "out", "by": ["tokens", "heads"], "edges": [0, 3, 7], "ratios": [[0.5, 2], ["inf", 0.0]]},
                   {"tensor": "out", "by": ["ranks", "owners"], "ratios": [[0.5, "nan"], [1.5, 0.0]]}],
    "work": {"area": 15, **LOAD, "layouts": {"contiguous": LOAD, "zigzag": LOAD}},
}


def changed(path, value):
    """TRIAL with something else at "a.0.b"."""
    trial = json.loads(json.dumps(TRIAL))
    *way, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    at = trial
    for part in way:
        at = at[part]
    at[last] = value
    return trial


def test_a_whole_record_is_read(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(TRIAL) + "\n")
    (trial,) = record.read(path).trials
    assert trial["timeline"] == TRIAL["timeline"] and trial["error_maps"] == TRIAL["error_maps"]
    assert trial["work"] == TRIAL["work"]


def test_an_older_record_is_read():
    fields.check("trial", {name: TRIAL[name] for name in ("case", "implementation", "verdict")})


@pytest.mark.parametrize("path", [
    "timeline", "error_maps", "work", "work.layouts", "work.layouts.zigzag", "work.layouts.contiguous.need_bytes",
    "timeline.ranks", "timeline.ranks.0.waits", "timeline.ranks.0.transfers", "timeline.ranks.0.transfers.0.hop",
    "error_maps.0.edges"])
def test_null_is_nowhere_wrong(path):
    fields.check("trial", changed(path, None))


@pytest.mark.parametrize("path, value, message", [
    ("timeline", [], "timeline is no dict"),
    ("timeline.step_s", "2", "timeline.step_s is no number"),
    ("timeline.ranks", {}, "timeline.ranks is no list"),
    ("timeline.ranks.0", 3, "timeline.ranks is no dict"),
    ("timeline.ranks.0.phases.0", ["forward", 0.0], "timeline.ranks.phases holds no name with a start and an end"),
    ("timeline.ranks.1.phases.1", ["backward", 2.0, 1.0], "timeline.ranks.phases holds no name with"),
    ("timeline.ranks.0.phases.0", [0.0, 0.0, 1.0], "timeline.ranks.phases holds no name with"),
    ("timeline.ranks.0.phases.0", ["forward", 0.0, float("nan")], "timeline.ranks.phases holds no name with"),
    ("timeline.ranks.0.transfers.0.kind", 3, "timeline.ranks.transfers.kind is no str"),
    ("timeline.ranks.0.transfers.0.peer", "1", "timeline.ranks.transfers.peer is no int"),
    ("timeline.ranks.0.transfers.0.end", -1.0, "timeline.ranks.transfers holds no start with an end"),
    ("timeline.ranks.0.transfers.0.end", float("inf"), "timeline.ranks.transfers holds no start with an end"),
    ("timeline.ranks.0.waits.0", [0.5], "timeline.ranks.waits holds no start and end with a hop"),
    ("timeline.ranks.0.waits.0", [0.5, 0.25, 1], "timeline.ranks.waits holds no start and end"),
    ("timeline.ranks.0.waits.0", [0.5, "late", 1], "timeline.ranks.waits is no number"),
    ("error_maps", {}, "error_maps is no list"),
    ("error_maps.0.by", "tokens", "error_maps.by is no list"),
    ("error_maps.0.edges", [0, 3], "error_maps.edges does not fit error_maps.ratios"),
    ("error_maps.0.edges", [0, 3, 3], "error_maps.edges does not fit error_maps.ratios"),
    ("error_maps.0.ratios", [[1.0], [1.0, 2.0]], "error_maps.ratios has rows of unlike lengths"),
    ("error_maps.1.ratios.0.0", "<script>", "error_maps.ratios is no number: '<script>'"),
    ("error_maps.1.ratios.0.0", "x" * 9999, "error_maps.ratios is no number: 'x{40}'$"),
    ("error_maps.1.ratios.0.0", None, "error_maps.ratios is no number"),
    ("work.layouts", [], "work.layouts is no dict"),
    ("work.layouts.zigzag", "even", "work.layouts.zigzag is no dict"),
    ("work.layouts.zigzag.area_by_rank", [1], "work.layouts.zigzag is not for equally many ranks everywhere"),
    ("work.layouts.zigzag.area_by_hop", [[1, 2], [3]], "work.layouts.zigzag is not for equally many ranks"),
    ("work.layouts.contiguous.need_bytes", ["much", 0], "work.layouts.contiguous.need_bytes is no number"),
])
def test_what_is_foreign_or_damaged_is_named_by_its_field_and_taken_out(tmp_path, path, value, message):
    file = tmp_path / "r.jsonl"
    file.write_text(json.dumps(changed(path, value)) + "\n")
    with pytest.raises(ValueError, match=f"r.jsonl:1: field {message}"):
        record.read(file, strict=True)
    found = record.read(file)
    assert re.match(f".*r.jsonl:1: field {message.rstrip('$')}.*; field left out", found.left_out[0])
    (trial,) = found.trials
    top, inner = path.split(".")[0], "layouts"
    assert trial[top] is None if top != "work" else trial["work"][inner] is None and trial["work"]["area"]


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3))
PLACES = ("timeline", "timeline.ranks", "timeline.ranks.0", "timeline.ranks.0.phases", "timeline.ranks.0.phases.0",
          "timeline.ranks.0.waits", "timeline.ranks.0.waits.1", "timeline.ranks.0.transfers", "error_maps",
          "timeline.ranks.0.transfers.1", "error_maps.0", "error_maps.0.ratios", "error_maps.0.ratios.1",
          "error_maps.0.edges", "work", "work.layouts", "work.layouts.zigzag", "work.layouts.zigzag.area_by_hop")


@given(st.sampled_from(PLACES), JSON)
def test_anything_else_is_read_or_refused_in_words(path, value):
    try:
        fields.check("trial", changed(path, value))
    except ValueError as error:
        assert str(error).startswith("field ")
