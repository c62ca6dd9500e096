"""The flat table: a row a trial, columns of one kind, CSV and Parquet, and what is left as it is."""

import csv
import io
import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reports
from reports import export, flat, metrics, record

ANYTHING = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def rows(path, samples=False):
    return list(flat.rows([record.read(path)], samples))


def read_csv(path):
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


@given(ANYTHING | st.just(10**400), st.sampled_from([str, int, float, bool, list]))
def test_a_value_fits_its_kind_or_is_none(value, kind):
    found = flat.fit(value, kind)
    assert found is None or type(found) is kind
    if kind is int and found is not None:
        assert -(2**63) < found < 2**63 and found == value
    if kind is str and found is not None:
        found.encode()


def test_a_row_holds_identity_verdict_and_every_metric(results_file, trial):
    path = results_file([trial(world=3, verdict="FAIL", ratio=9.0, diagnosis={"headline": "dk is wrong"})])
    (row,) = rows(path)
    assert {name: row[name] for name in ("id", "world", "dtype", "rules", "requirements", "spec", "verdict", "headline",
                                         "worst_tensor", "worst_ratio", "tokens", "time", "torch", "latest")} == {
        "id": "packed/even-contiguous-w3-fp64", "world": 3, "dtype": "fp64", "rules": "causal documents",
        "requirements": "A1 A3 B1", "spec": "ring", "verdict": "FAIL", "headline": "dk is wrong", "worst_tensor": "out",
        "worst_ratio": 9.0, "tokens": 256, "time": "2026-01-02T03:04:05+00:00", "torch": "2.13.0", "latest": True}
    one = record.read(path).trials[0]
    assert {"forward_ms", "tflops_step", "load_imbalance", "remote_share", "exposed_ms"} <= set(flat.measures())
    assert "times_of" not in flat.measures() and "strict_verdict" not in flat.measures()
    for name, made in flat.measures().items():
        assert row[name] == made(one), name


def test_columns_are_unique_documented_and_one_a_metric():
    named = flat.fields(samples=True)
    assert len({one.name for one in named}) == len(named) and all(one.about for one in named)
    assert {column.of.__name__ for column in metrics.COLUMNS} <= {one.name for one in named}


def test_samples_are_an_option(results_file, trial):
    path = results_file([trial()])
    assert rows(path, samples=True)[0]["samples_step_s"] == [0.006, 0.008, 0.007]
    assert not any(name.startswith("samples") for name in rows(path)[0])


def test_a_repeated_trial_is_there_twice_and_latest_once(results_file, trial):
    files = [record.read(results_file([trial(verdict="ERROR")], "a.jsonl")),
             record.read(results_file([trial()], "b.jsonl", time="2026-01-03T03:04:05+00:00"))]
    assert [(row["file"][-7:], row["latest"]) for row in flat.rows(files)] == [("a.jsonl", False), ("b.jsonl", True)]


def test_hostile_values_are_text_or_none(results_file, trial, tmp_path):
    one = trial(verdict="ERROR", reason="=HYPERLINK(1)\n\u202e", deviations=[{"tensor": None, "ratio": math.nan}],
                measurement=None, work=None)
    one["case"].update(tokens="<script>", heads=True, head_dim=10**30, dtype={"a": 1}, rules=None, layout=None)
    path = results_file([one, {**trial(), "case": {"id": "x", "name": "x", "world": 1}}])
    (row, other) = rows(path)
    assert row["tokens"] is row["heads"] is row["head_dim"] is row["rules"] is row["layout"] is other["tokens"] is None
    assert row["dtype"] == "{'a': 1}" and math.isnan(row["worst_ratio"])
    export.export([path], tmp_path / "x.csv")
    assert read_csv(tmp_path / "x.csv")[0]["reason"] == "'=HYPERLINK(1)\n\u202e"


@pytest.mark.parametrize(("changes", "message"), [
    ({"work": {"area_by_hop": [[1], [2, 3]]}}, "field work.area_by_hop is not square"),
    ({"work": {"flops_forward": "many"}}, "field work.flops_forward is no number"),
    ({"case": {"id": "x", "name": "x", "world": 0}}, "field case.world is below 1"),
    ({"case": {"id": "x", "name": "x", "world": 1, "seed": [7]}}, "field case.seed is no int"),
])
def test_what_no_metric_can_be_read_from_is_refused_with_its_name(results_file, trial, changes, message):
    with pytest.raises(ValueError, match=message):
        record.read(results_file([{**trial(), **changes}]), strict=True)


def test_csv_reads_back_and_is_the_same_for_the_same_records(results_file, trial, tmp_path, capsys):
    path = results_file([trial(), trial(world=3, ratio=math.inf, verdict="FAIL")])
    target = tmp_path / "deep" / "x.csv"
    for _ in range(2):
        assert export.main([str(path), "-o", str(target), "--samples"]) == 0
        assert capsys.readouterr().out == f"# 2 trials: {target}\n"
    first, second = read_csv(target)
    assert list(first) == [one.name for one in flat.fields(samples=True)] and [*target.parent.iterdir()] == [target]
    assert float(first["step_ms"]) == 7.0 and second["worst_ratio"] == "inf" and first["peak_mib"] == ""
    assert json.loads(first["samples_step_s"]) == [0.006, 0.008, 0.007]


def test_what_is_there_already_is_put_aside(results_file, trial, tmp_path, capsys):
    path, target = results_file([trial()]), tmp_path / "x.csv"
    target.write_text("mine\n")
    assert export.main([str(path), "-o", str(target)]) == 0
    assert (tmp_path / "x.1.csv").read_text() == "mine\n" and "kept as" in capsys.readouterr().out
    assert len(read_csv(target)) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    (["missing.jsonl", "-o", "x.csv"], "results file missing.jsonl cannot be read: No such file"),
    (["GIVEN", "-o", "GIVEN.txt"], "ends in neither .csv nor .parquet"),
    (["GIVEN", "-o", "GIVEN/x.csv"], "cannot be written: "),
    (["GIVEN", "-o", "LINK"], "would overwrite"),
])
def test_bad_input_is_one_line_and_code_2(results_file, trial, tmp_path, capsys, arguments, message):
    path = results_file([trial()])
    (tmp_path / "link.csv").symlink_to(path)
    before = path.read_bytes()
    words = [word.replace("GIVEN", str(path)).replace("LINK", str(tmp_path / "link.csv")) for word in arguments]
    assert export.main(words) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and path.read_bytes() == before


def test_without_pandas_a_frame_and_parquet_are_one_clear_line(results_file, trial, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    path = results_file([trial()])
    with pytest.raises(ImportError, match="reports.frame needs pandas: pip install 'ringcheck.frame.'"):
        reports.frame(path)
    assert export.main([str(path), "-o", str(tmp_path / "x.parquet")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Parquet needs pandas and pyarrow" in error
    assert not (tmp_path / "x.parquet").exists()
    assert export.main([str(path), "-o", str(tmp_path / "x.csv")]) == 0


def test_columns_are_listed(capsys):
    assert export.main(["--columns"]) == 0
    assert "exposed_ms                float  Median step less the median step" in capsys.readouterr().out


def test_a_frame_is_one_line(results_file, trial):
    pandas = pytest.importorskip("pandas")
    path = results_file([trial(), trial(world=3, measurement=None), trial(dtype="bf16", ratio=math.inf)])
    made = reports.frame(path, samples=True)
    assert isinstance(made, pandas.DataFrame) and list(made) == [one.name for one in flat.fields(samples=True)]
    assert made.step_ms.tolist()[0] == 7.0 and math.isnan(made.step_ms[1]) and made.worst_ratio[2] == math.inf
    assert str(made.world.dtype) == "Int64" and made.step_ms.dtype == float and made.latest.dtype == bool
    assert made.query("verdict == 'PASS'").groupby("world").step_ms.median()[2] == 7.0
    assert made.explode("samples_step_s").samples_step_s.tolist()[:3] == [0.006, 0.008, 0.007]
    assert reports.frame([path, path]).shape == (6, len(flat.fields()))


def test_a_frame_of_no_trial_keeps_its_columns(results_file):
    pytest.importorskip("pandas")
    made = reports.frame(results_file([]))
    assert made.shape == (0, len(flat.fields())) and made.step_ms.dtype == float


def test_parquet_reads_back(results_file, trial, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path, target = results_file([trial(), trial(world=3, measurement=None)]), tmp_path / "x.parquet"
    assert export.main([str(path), "-o", str(target), "--samples"]) == 0
    back = pandas.read_parquet(target)
    assert back.step_ms.tolist()[0] == 7.0 and back.world.tolist() == [2, 3]
    assert list(back.samples_step_s[0]) == [0.006, 0.008, 0.007] and back.samples_step_s[1] is None
    assert export.main([str(path), "-o", str(target), "--samples"]) == 0 and not list(tmp_path.glob("x.1*"))
