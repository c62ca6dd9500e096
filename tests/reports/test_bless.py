"""`ringcheck bless` and the baselines that it keeps: what is blessed, what is refused, what is found again."""

import json
import math
from pathlib import Path

import pytest

from reports import bless, record
from reports.compare import baselines, environment
from tests.reports.compared import SLOW, TEN, ran, timed


def blessed(capsys, tmp_path, *words):
    code = bless.main([*map(str, words), "--baselines", str(tmp_path / "kept")])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_blessed_file_is_found_by_the_environment_and_says_the_same_as_what_it_was_made_of(sides, tmp_path, capsys):
    code, out, _ = blessed(capsys, tmp_path, sides[0])
    (path,) = (tmp_path / "kept").glob("*/*")
    assert code == 0 and "the first baseline of this environment" in out
    assert path.name == "blessed.jsonl" and path.stat().st_size < 0.7 * Path(sides[0]).stat().st_size
    plain = ran(capsys, *sides, "--json", tmp_path / "a.json")
    pruned = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept", "--json", tmp_path / "b.json")
    assert plain[0] == pruned[0] == 1
    rows = [json.loads((tmp_path / name).read_text())["rows"] for name in ("a.json", "b.json")]
    assert rows[0] == rows[1]
    again = record.read(path)
    assert again.warnings == [] and baselines.blessed([again]) == {environment.key(again.header): path.read_text()}


def test_equal_records_are_blessed_to_equal_bytes_in_whatever_order(results_file):
    made = [timed(f"packed/{name}", TEN) for name in "abc"]
    files = [record.read(results_file(trials, f"{n}.jsonl")) for n, trials in enumerate((made, made[::-1]))]
    split = [record.read(results_file([one], f"s{n}.jsonl")) for n, one in enumerate(made)]
    texts = [baselines.blessed(one) for one in ([files[0]], [files[1]], split, split[::-1])]
    assert all(text == texts[0] for text in texts) and len(texts[0]) == 1


def test_what_nothing_should_be_held_to_is_not_blessed(sides, results_file, tmp_path, capsys):
    code, out, err = blessed(capsys, tmp_path, sides[1])
    assert (code, out) == (2, "") and "1 trial failed (packed/a-contiguous-w2-fp64)" in err
    cut = results_file([timed("packed/a", TEN)], "cut.jsonl", end=False)
    assert blessed(capsys, tmp_path, cut)[0] == 2
    idle = results_file([timed("packed/a", TEN, verdict="SKIP")], "idle.jsonl")
    assert "nothing ran" in blessed(capsys, tmp_path, idle)[2]
    assert not (tmp_path / "kept").exists()
    assert blessed(capsys, tmp_path, sides[1], "--with-failures")[0] == 0
    assert "still wrong" in ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")[1]


def test_trials_of_a_baseline_are_kept_or_let_go_on_purpose(sides, results_file, tmp_path, capsys):
    blessed(capsys, tmp_path, sides[0])
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_text()
    part = results_file([timed("packed/b", SLOW, TEN)], "part.jsonl", time="2026-02-02T00:00:00+00:00")
    code, _, err = blessed(capsys, tmp_path, part)
    assert code == 2 and "3 trials of" in err and path.read_text() == before
    code, out, _ = blessed(capsys, tmp_path, path, part)
    assert code == 0 and len(record.read(path).trials) == 4
    assert "1 regression: 1 slower; 3 insignificant" in out
    assert blessed(capsys, tmp_path, part, "--drop")[0] == 0 and len(record.read(path).trials) == 1


def test_no_baseline_of_this_environment_names_the_nearest(sides, tmp_path, capsys):
    code, _, err = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")
    assert code == 2 and "holds none like it; ringcheck bless makes one" in err and err.count("\n") == 1
    blessed(capsys, tmp_path, sides[0])
    Path(sides[1]).write_text(Path(sides[1]).read_text().replace('"torch":"2.13.0"', '"torch":"2.14.0"'))
    err = ran(capsys, "--baseline", sides[1], "--baselines", tmp_path / "kept")[2]
    assert "differs in torch: 2.13.0 -> 2.14.0" in err


@pytest.mark.parametrize("path", sorted(baselines.HERE.glob("*/*.jsonl")), ids=lambda path: path.name)
def test_committed_baselines_lie_in_the_folder_of_their_key(path):
    assert {environment.folder(environment.key(run.header)) for run in record.read(path).runs} == {path.parent.name}
    assert (path.parent / baselines.NAME).exists()


def test_the_committed_baseline_is_what_bless_makes_of_the_records_beside_it():
    (folder,) = baselines.HERE.glob("cuda-2-x-nvidia-h200-*")
    (text,) = baselines.blessed([record.read(folder / "2xH200.jsonl")]).values()
    assert text == (folder / baselines.NAME).read_text()


def test_a_baseline_is_never_replaced_by_one_that_cannot_be_read(sides, results_file, tmp_path, capsys):
    assert blessed(capsys, tmp_path, sides[0])[0] == 0
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_bytes()
    bad = results_file([timed(f"packed/{name}", TEN) for name in "abcd"], "bad.jsonl")
    bad.write_text(bad.read_text().replace('"step_s":[0.01', '"step_s":["x"', 1))
    code, out, err = blessed(capsys, tmp_path, bad)
    assert (code, out) == (2, "") and "field measurement.step_s is no number" in err and path.read_bytes() == before
    nan = results_file([timed(f"packed/{name}", [math.nan, 0.01, math.inf]) for name in "abcd"], "nan.jsonl")
    code, out, err = blessed(capsys, tmp_path, nan)
    assert (code, out) == (2, "") and "step_s: 2 of 3 are no time, such as nan" in err and path.read_bytes() == before
    path.write_text(path.read_text() + "[1]\n")
    code, _, err = blessed(capsys, tmp_path, sides[0])
    assert code == 2 and "the baseline before is damaged, --drop lets go of it" in err
    assert ran(capsys, "--baseline", sides[0], "--baselines", tmp_path / "kept")[0] == 2
    assert blessed(capsys, tmp_path, sides[0], "--drop")[0] == 0 and path.read_bytes() == before


def test_a_baseline_that_reads_back_as_another_is_not_written(sides, tmp_path, capsys, monkeypatch):
    assert blessed(capsys, tmp_path, sides[0])[0] == 0
    (path,) = (tmp_path / "kept").glob("*/*")
    before = path.read_bytes()
    line = baselines._line
    monkeypatch.setattr(baselines, "_line", lambda *told: line(*told).replace('"iters":3', '"iters":33'))
    code, _, err = blessed(capsys, tmp_path, sides[0])
    assert code == 2 and err.count("\n") == 1 and path.read_bytes() == before
