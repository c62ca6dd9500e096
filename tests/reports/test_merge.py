"""Merging: every header and trial once, whatever the order; damaged input is named; nothing is written over."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import merge, record, view
from reports.merge import Shard, merged


@pytest.fixture
def shards(results_file, trial):
    """Three nodes' files: one resumed, one cut."""
    one = results_file([trial(), trial(world=3)], "a.jsonl", time="2026-01-01T00:00:00+00:00", asked=2)
    two = results_file([trial(dtype="bf16", verdict="FAIL")], "b.jsonl", time="2026-01-03T00:00:00+00:00", asked=9,
                       end=False)
    three = results_file([trial(verdict="ERROR")], "c.jsonl", time="2026-01-02T00:00:00+00:00")
    return [one, two, three]


def lines(path):
    return sorted(path.read_text().splitlines())


def run(paths, target, *more):
    return merge.main([*map(str, paths), "-o", str(target), *more])


def test_every_line_of_every_shard_is_kept_in_the_order_of_time(shards, tmp_path, capsys):
    assert run(shards, tmp_path / "all.jsonl") == 0
    assert lines(tmp_path / "all.jsonl") == sorted(itertools.chain(*map(lines, shards)))
    found = record.read(tmp_path / "all.jsonl")
    assert [one.header["time"][:10] for one in found.runs] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert view.counts(view.latest([found])) == view.counts(view.latest(map(record.read, shards)))
    out = capsys.readouterr().out
    assert f"# 4 trials, 3 runs of 3 files: {tmp_path / 'all.jsonl'}\n" in out
    assert "# a run of 2026-01-03T00:00:00+00:00 has no end: it was cut, or goes on\n" in out


def test_order_does_not_matter_and_merging_again_changes_nothing(shards, tmp_path):
    made = set()
    for number, order in enumerate(itertools.permutations(shards)):
        assert run(order, tmp_path / "m" / f"{number}.jsonl") == 0
        made.add((tmp_path / "m" / f"{number}.jsonl").read_bytes())
    assert len(made) == 1
    first = tmp_path / "m" / "0.jsonl"
    assert run(shards, first) == 0 and run([first, *shards, first], tmp_path / "again.jsonl") == 0
    assert {first.read_bytes(), (tmp_path / "again.jsonl").read_bytes()} == made


def line(kind, **fields):
    return json.dumps({"kind": kind, "schema": 1, **fields}).encode()


TRIALS = [line("trial", case={"id": str(n), "name": "x", "world": 1}, implementation={}, verdict="PASS")
          for n in range(4)]
HEADS = [line("run", time=time, argv=[str(n)]) for time in ("a", "b", None) for n in range(2)]
RUNS = st.builds(lambda head, trials, end: (head, *trials, *end), st.sampled_from(HEADS),
                 st.lists(st.sampled_from(TRIALS), max_size=3), st.lists(st.just(line("end")), max_size=1))
SHARDS = st.builds(lambda runs, loose: Shard("x", runs, loose), st.lists(RUNS, max_size=3),
                   st.lists(st.sampled_from([*TRIALS, line("end")]), max_size=2))


@given(st.lists(SHARDS, max_size=4), st.randoms())
def test_merging_is_a_union(shards, random):
    runs = merged(shards)
    given_lines = {line for one in shards for line in [*itertools.chain(*one.runs), *one.loose]}
    assert {line for one in runs for line in one} == given_lines
    shuffled = random.sample(shards, len(shards))
    assert merged(shuffled) == runs == merged([*shards, *shards])
    loose = [one for one in runs if merge.kind_of(one[0]) != "run"]
    assert len(loose) <= 1 and runs[: len(loose)] == loose
    again = Shard("m", runs[len(loose):], [line for one in loose for line in one])
    assert merged([again]) == runs == merged([again, *shards])


def test_an_earlier_state_of_a_run_is_not_there_twice(shards, tmp_path):
    whole = shards[0].read_text().splitlines(keepends=True)
    (tmp_path / "early.jsonl").write_text("".join(whole[:2]))
    assert run([tmp_path / "early.jsonl", shards[0]], tmp_path / "m.jsonl") == 0
    assert (tmp_path / "m.jsonl").read_text() == "".join(whole)


@pytest.mark.parametrize(("change", "message"), [
    (lambda data: data[:-9], ":4: not JSON, or cut"),
    (lambda data: data.replace(b'{"kind":"trial"', b'{"kind":"tri\xff', 1), ":2: not JSON, or cut"),
    (lambda data: data.replace(b'"schema":1', b'"schema":9', 1), ":1: schema 9 is unknown, this version reads 1"),
    (lambda data: data + b"[1]\n", ":5: not a ringcheck record: kind is None, known are run, trial, end"),
    (lambda data: data.replace(b'"verdict"', b'"verdikt"', 1), ":2: field verdict is missing or no str"),
    (lambda data: b"", ": holds no record of a run or trial"),
])
def test_damaged_input_is_named_and_refused_unless_told_to_go_on(shards, tmp_path, capsys, change, message):
    bad, target = shards[0], tmp_path / "m.jsonl"
    bad.write_bytes(change(bad.read_bytes()))
    before = bad.read_bytes()
    assert run(shards, target) == 2
    error = capsys.readouterr().err
    assert error == f"ringcheck merge: {bad}{message}; --damaged takes what can be read\n"
    assert not target.exists() and bad.read_bytes() == before
    assert run(shards, target, "--damaged") == 0
    became = "kept as it is" if "verdict" in message else "left out"
    assert capsys.readouterr().err == f"ringcheck merge: {became}: {bad}{message}\n"
    kept = {line for path in shards for line in path.read_bytes().split(b"\n")}
    assert set(target.read_bytes().split(b"\n")) <= kept and len(record.read(target).trials) >= 2


def test_trials_without_their_header_join_no_other_run(shards, tmp_path):
    loose = tmp_path / "loose.jsonl"
    loose.write_text("".join(shards[0].read_text().splitlines(keepends=True)[1:3]))
    assert run([shards[2], loose], tmp_path / "m.jsonl") == 0
    assert [len(one.trials) for one in record.read(tmp_path / "m.jsonl").runs] == [2, 1]


def test_nothing_else_is_written_over(shards, tmp_path, capsys):
    target, notes = tmp_path / "m.jsonl", tmp_path / "notes.txt"
    assert run(shards[:2], target) == 0 and run(shards, target) == 0
    assert len(record.read(target).trials) == 4
    notes.write_text("mine\n")
    (tmp_path / "link.jsonl").symlink_to(shards[0])
    before = {path: path.read_bytes() for path in [*shards, target, notes]}
    for target_, words in ((target, "holds what these files do not"), (notes, "holds what these files do not"),
                           (shards[0], "would overwrite"), (tmp_path / "link.jsonl", "would overwrite"),
                           (tmp_path, "Is a directory"), (notes / "x", "cannot be written")):
        capsys.readouterr()
        assert run(shards[:1], target_) == 2
        error = capsys.readouterr().err
        assert words in error and error.count("\n") == 1, error
    assert before == {path: path.read_bytes() for path in before} and not list(tmp_path.glob(".*"))


def test_a_file_that_a_run_still_writes_is_left_to_it(shards, tmp_path, capsys):
    target = tmp_path / "m.jsonl"
    assert run(shards, target) == 0
    with record.Writer(target, append=True):
        assert run(shards, target) == 2
    assert "is a results file that a run still writes" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path, capsys):
    assert run([tmp_path / "no.jsonl"], tmp_path / "m.jsonl", "--damaged") == 2
    assert "no.jsonl cannot be read: No such file" in capsys.readouterr().err


def test_a_cut_shard_is_told_also_behind_a_whole_one(shards, tmp_path, results_file, trial):
    late = results_file([trial()], "d.jsonl", time="2026-01-09T00:00:00+00:00")
    assert run([*shards, late], tmp_path / "m.jsonl") == 0
    (cut,) = view.cuts([record.read(tmp_path / "m.jsonl")])
    assert (cut.done, cut.asked) == (1, 9)


def test_a_run_that_was_resumed_is_not_cut(results_file, trial):
    path = results_file([trial()], end=False, asked=2)
    header = record.read(path).header
    with record.Writer(path, append=True) as writer:
        writer.run({**header, "argv": [*header["argv"], "--resume"], "settings": {**header["settings"], "kept": 1}})
        writer.trial(trial(world=3))
        writer.end({"counts": {}, "seconds": 1.0, "exit_code": 0})
    assert view.cuts([record.read(path)]) == []


def test_numbers_of_a_run_that_are_none_are_left_out(results_file, trial):
    (cut,) = view.cuts([record.read(results_file([trial()], end=False, asked="many", kept=[1]))])
    assert str(cut) == "cut after 1 trial"
