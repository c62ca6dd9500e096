"""Results files: what is written comes back, whatever happened to the file in between."""

import json
import math

import pytest

from reports import record

TRIAL = {
    "case": {"id": "packed/even-zigzag-w2-fp64", "name": "packed/even", "world": 2},
    "implementation": {"name": "ring"},
    "verdict": "PASS",
    "deviations": [{"tensor": "out", "ratio": 0.25, "expected": -math.inf, "actual": math.nan}],
}


def write(path, trials=2, end=True):
    with record.Writer(path) as writer:
        writer.run({"argv": ["--cases", "packed"]})
        for _ in range(trials):
            writer.trial(TRIAL)
        if end:
            writer.end({"counts": {"PASS": trials}, "exit_code": 0})


def test_round_trip_keeps_records_and_non_finite_numbers(tmp_path):
    write(tmp_path / "deep" / "r.jsonl")
    results = record.read(tmp_path / "deep" / "r.jsonl")
    assert results.counts == {"PASS": 2} and results.warnings == []
    assert results.header["argv"] == ["--cases", "packed"] and results.runs[0].end["exit_code"] == 0
    deviation = results.trials[0]["deviations"][0]
    assert deviation["expected"] == -math.inf and math.isnan(deviation["actual"])


def test_the_file_is_strict_json_and_each_line_is_on_disk_at_once(tmp_path):
    writer = record.Writer(tmp_path / "r.jsonl")
    writer.trial({**TRIAL, "deviations": [{"ratio": math.inf}], "reason": "two\nlines"})
    (line,) = (tmp_path / "r.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail)["deviations"][0]["ratio"] == "inf"


def test_a_truncated_last_line_is_reported_and_the_rest_is_read(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-20])
    results = record.read(path)
    assert len(results.trials) == 2
    assert f"{path}:4: truncated last line; line left out" in results.warnings


def test_appending_after_a_cut_starts_a_line_of_its_own(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, trials=1, end=False)
    path.write_bytes(path.read_bytes()[:-9])
    with record.Writer(path, append=True) as writer:
        writer.run({"argv": ["--resume"]})
        writer.trial(TRIAL)
    results = record.read(path)
    assert [len(run.trials) for run in results.runs] == [0, 1]
    assert len(path.read_text().splitlines()) == 3 and not any("not JSON" in warning for warning in results.warnings)


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path):
    path = tmp_path / "r.jsonl"
    write(path, trials=1, end=False)
    path.write_bytes(path.read_bytes()[:-1])
    with record.Writer(path, append=True) as writer:
        writer.trial(TRIAL)
    assert len(record.read(path).trials) == 2


def test_an_empty_file_holds_no_record(tmp_path):
    (tmp_path / "r.jsonl").write_text("")
    with pytest.raises(ValueError, match="holds no record"):
        record.read(tmp_path / "r.jsonl")


def test_an_unwritable_file_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"results file .*file/r.jsonl cannot be written: ") as caught:
        record.Writer(tmp_path / "file" / "r.jsonl")
    assert "\n" not in str(caught.value)


def test_results_that_are_there_are_put_aside(tmp_path):
    path = tmp_path / "r.jsonl"
    for trials in (1, 2, 3):
        write(path, trials)
    assert [len(record.read(tmp_path / name).trials) for name in ("r.1.jsonl", "r.2.jsonl", "r.jsonl")] == [1, 2, 3]
    with record.Writer(path) as writer:
        assert writer.aside == tmp_path / "r.3.jsonl"
    with record.Writer(path) as writer:
        assert writer.aside is None and not (tmp_path / "r.4.jsonl").exists()


def test_a_run_cut_in_its_first_line_is_put_aside(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"kind":"run","schema":1,"argv":["--ca')
    write(path, 1)
    assert (tmp_path / "r.1.jsonl").read_text().endswith("--ca")


@pytest.mark.parametrize(
    "content", [b"notes\n", b'{"tokens": 8, "cu_seqlens": [0, 8]}\n', b"\x00\xff" * 99, b"[" * 99999]
)
@pytest.mark.parametrize("append", [False, True])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content, append):
    path = tmp_path / "batches.jsonl"
    path.write_bytes(content)
    with pytest.raises(record.Unwritable, match="is no results file of ringcheck; it is left as it is"):
        record.Writer(path, append)
    assert path.read_bytes() == content


def test_devices_take_records_and_a_full_one_is_one_clear_line():
    write("/dev/null")
    with pytest.raises(record.Unwritable, match="results file /dev/full cannot be written: No space left"):
        write("/dev/full")


def test_a_line_nested_too_deep_is_left_out(tmp_path):
    write(tmp_path / "r.jsonl", 1)
    with open(tmp_path / "r.jsonl", "a") as file:
        file.write("[" * 99999 + "\n")
    assert any("r.jsonl:4: not JSON" in warning for warning in record.read(tmp_path / "r.jsonl").warnings)
