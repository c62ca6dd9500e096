"""Numbers of a record, whatever they are: what the writer writes the reader takes, and gives back as it was."""

import math
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reports import fields, record
from reports.compare import baselines, comparison, told
from tests.reports.compared import side
from tests.reports.trials import HEADER, make_trial

ANY = st.one_of(st.floats(), st.integers(-(10**320), 10**320),
                st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1.0, 10**300, True, 0]))
LISTS = st.lists(ANY, max_size=4)
PLACES = {
    **{("measurement", name): LISTS for name, form in fields.FORMS["trial"]["measurement"].items()
       if form == fields.NUMBERS},
    **{("work", name): ANY for name in ("area", "flops_forward", "flops_backward")},
    **{("work", name): LISTS for name in ("area_by_rank", "need_bytes")},
    ("traffic", "bytes_sent"): LISTS, ("traffic", "messages"): LISTS, ("timeline", "step_s"): ANY,
    **{("deviations", 0, name): ANY for name in ("ratio", "error", "allowance", "expected", "actual")},
    ("seconds",): ANY,
}
FILLED = st.lists(st.sampled_from(sorted(PLACES, key=str)).flatmap(lambda at: st.tuples(st.just(at), PLACES[at])),
                  min_size=1, max_size=5, unique_by=lambda one: one[0])
ONE_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def filled(values):
    """A trial with these values in these places."""
    trial = {**deepcopy(make_trial()), "timeline": {}, "traffic": {}, "picture": None}
    for (*above, last), value in values:
        part = trial
        for name in above:
            part = part[name]
        part[last] = value
    return trial


def at(trial, place):
    for name in place:
        trial = trial[name]
    return trial


def kept(value):
    """What is to come back: whole numbers that no float could hold are infinite."""
    if isinstance(value, list):
        return [kept(item) for item in value]
    beyond = isinstance(value, int) and abs(value) > fields.LARGEST
    return value if not beyond else math.inf if value > 0 else -math.inf


def written(path, trial, end=None):
    path.unlink(missing_ok=True)
    with record.Writer(path) as writer:
        writer.run(HEADER)
        writer.trial(trial)
        writer.end({"counts": {}, "seconds": end, "exit_code": 0})
    return record.read(path, strict=True)


@ONE_FILE
@given(FILLED, st.none() | ANY)
def test_whatever_number_is_written_is_read_back_and_never_refused(tmp_path, values, end):
    found = written(tmp_path / "any.jsonl", filled(values), end)
    assert found.damage == [] and repr(found.runs[0].end["seconds"]) == repr(kept(end) if end is not None else None)
    for place, value in values:
        assert repr(at(found.trials[0], place)) == repr(kept(value))


@ONE_FILE
@given(FILLED, FILLED)
def test_a_comparison_and_a_baseline_survive_whatever_numbers_there_are(tmp_path, before, after):
    old, new = ([written(tmp_path / f"{name}.jsonl", filled(values))]
                for name, values in (("old", before), ("new", after)))
    for pair in ((old, new), (old, old), (old, side([make_trial()])), (side([make_trial()]), new)):
        found = comparison.compare(*pair)
        assert told.markdown(found) and told.as_json(found) and found.code in (0, 1, 2)
        assert all(line.isprintable() and len(line) < 1100 for line in told.text(found, every=True).splitlines())
    ((key, text),) = baselines.blessed(old).items()
    path = tmp_path / "blessed.jsonl"
    path.write_text(text)
    assert baselines.blessed([record.read(path, strict=True)]) == {key: text}


@pytest.mark.parametrize("name", ["bytes_sent", "extra_bytes", "step_s"])
def test_one_number_that_is_none_leaves_the_rest_of_the_file(tmp_path, name):
    found = written(tmp_path / "r.jsonl", filled([(("measurement", name), [math.nan, 1.0])]))
    assert math.isnan(found.trials[0]["measurement"][name][0]) and found.trials[0]["measurement"]["messages"] == [2, 2]
