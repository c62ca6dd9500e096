"""Records that hold anything at all: the page shows them, or the field that is wrong is named."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import build, record
from tests.reports.pages import Page

SCALARS = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
           | st.sampled_from(["\ud800", "\u202e<b>", "\0"]))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = [*(f"case.{name}" for name in ("dtype", "mask", "tokens", "heads", "head_dim", "value_dim", "level", "world",
                                        "group", "layout", "seed", "id", "digest")),
          *(f"work.{name}" for name in ("area", "area_by_rank", "area_by_hop", "need_bytes")),
          *(f"implementation.{name}" for name in ("name", "spec", "device", "kernel", "layout")),
          "verdict", "reason", "diagnosis", "deviations", "measurement", "measurement.step_s", "work", "picture",
          "seconds"]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed=st.dictionaries(st.sampled_from(PLACES), ANYTHING, min_size=1, max_size=4))
def test_a_record_of_anything_is_shown_or_refused_by_its_field(results_file, trial, tmp_path, changed):
    one = trial(size=4)
    for place, value in changed.items():
        inside = one
        *path, name = place.split(".")
        for step in path:
            inside = inside[step] if isinstance(inside.get(step), dict) else {}
        inside[name] = value
    for old in tmp_path.glob("*"):
        old.unlink()
    path = results_file([one, trial()])
    try:
        files = [record.read(path)]
    except ValueError as error:
        assert "field" in str(error)
        return
    text = build.page(files)
    assert text.encode() and Page(text).text and text.count("<script>") == 1
