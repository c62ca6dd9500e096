"""Nothing recorded is lost: results are put aside, inputs and foreign files left alone, resumed trials comparable."""

import json

import pytest

from harness import run, running
from reports import record

EVEN = ["--cases", "packed/even-zigzag-w1-fp64", "--ranks", "1", "--iters", "0", "--in-process"]


def said_lines(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("[")]


def test_a_second_run_keeps_the_results_of_the_first(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--json", str(path)]) == 0
    first = path.read_bytes()
    assert run.main([*EVEN, "--json", str(path)]) == 0
    assert (tmp_path / "r.1.jsonl").read_bytes() == first and record.read(path).counts == {"PASS": 1}
    assert f"# {path} held results already, kept as {tmp_path / 'r.1.jsonl'}" in said_lines(capsys)


@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_captured_batches_are_never_written_over(tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)
    line = json.dumps({"tokens": 16, "document_lengths": [7, 9]}) + "\n"
    (tmp_path / "batches.jsonl").write_text(line)
    (tmp_path / "other.jsonl").symlink_to("batches.jsonl")
    for name in ("batches.jsonl", "other.jsonl"):
        command = ["--cases", "batches.jsonl", *EVEN[2:], "--json", name, *more]
        assert run.main(command) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith("ringcheck: ") and said.err.count("\n") == 1
    assert (tmp_path / "batches.jsonl").read_text() == line


@pytest.mark.parametrize(("target", "words"), [
    ("r.jsonl", "would overwrite {here}/r.jsonl, from which it is made"),
    ("batches.jsonl", "would overwrite a file that is no HTML page"),
    ("notes", "cannot be written: Is a directory"),
    ("batches.jsonl/page.html", "cannot be written"),
    ("/proc/nowhere/page.html", "cannot be written: No such file"),
])
def test_a_page_that_cannot_be_written_is_found_before_the_run(tmp_path, capsys, target, words):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--json", str(path)]) == 0
    before = path.read_bytes()
    (tmp_path / "batches.jsonl").write_text('{"tokens": 16}\n')
    (tmp_path / "notes").mkdir()
    capsys.readouterr()
    assert run.main([*EVEN, "--json", str(path), "--report", str(tmp_path / target)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and words.format(here=tmp_path) in said.err
    assert path.read_bytes() == before and not (tmp_path / "r.1.jsonl").exists()
    assert (tmp_path / "batches.jsonl").read_text() == '{"tokens": 16}\n'


@pytest.mark.parametrize("content", [
    b"\x00\xff\xfe" * 300, b"[" * 99999, b'{"step": 1}\n', b"notes\n", b'{"kind": "run", "schema": 1, "settings": 5}\n',
    b'{"kind": "trial", "schema": 1, "case": {"id": "a", "name": "b", "world": 1}, "implementation": {},'
    b' "verdict": "PASS", "deviations": [1]}\n',
], ids=["binary", "deep", "foreign", "text", "run", "trial"])
def test_an_odd_file_is_one_line_and_left_as_it_is(tmp_path, capsys, content):
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    assert run.main([*EVEN, "--json", str(path), "--resume"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("ringcheck: ") and said.err.count("\n") == 1
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["a" * 300, "/dev/full", ".", "/dev/null/r.jsonl"])
@pytest.mark.parametrize("more", [[], ["--resume"]])
def test_a_place_for_results_that_is_none_is_one_line(tmp_path, monkeypatch, capsys, name, more):
    monkeypatch.chdir(tmp_path)
    assert run.main([*EVEN, "--json", name, *more]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("ringcheck: results file ") and said.err.count("\n") == 1


def test_an_empty_file_and_a_record_of_another_version_are_resumed(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    path.touch()
    assert run.main([*EVEN, "--json", str(path), "--resume"]) == 0
    bare = {"kind": "trial", "schema": 1, "case": {"id": "a", "name": "b", "world": 1}, "implementation": {}}
    with open(path, "a") as file:
        for verdict in ("FAIL", "ERROR", "SKIP"):
            file.write(json.dumps({**bare, "case": {**bare["case"], "id": verdict}, "verdict": verdict}) + "\n")
    assert run.main([*EVEN, "--json", str(path), "--resume"]) == 3
    assert "4 cases: 1 passed, 1 failed, 1 skipped, 1 errors" in capsys.readouterr().out


@pytest.mark.parametrize(("more", "repeated", "words"), [
    (["--truth", "probes"], True, "1 are repeated, made with another truth"),
    (["--iters", "2"], True, "1 are repeated, made with another iters"),
    (["--truth", "relations", "--iters", "1"], True, "made with another iters, truth"),
    (["--warmup", "3"], False, "1 of them were made with warmup 1, not 3"),
    (["--timeout", "9"], False, "1 of them were made with timeout 120.0, not 9.0"),
    ([], False, "1 trials of"),
])
def test_resume_repeats_what_was_asked_otherwise_and_says_the_rest(tmp_path, capsys, more, repeated, words):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--json", str(path)]) == 0
    capsys.readouterr()
    assert run.main([*EVEN, *more, "--json", str(path), "--resume"]) == 0
    out = capsys.readouterr().out
    assert words in out and out.count("\n[1/1] ") == repeated and "# 1 cases: 1 passed" in out
    again = [*EVEN, *more, "--json", str(path), "--resume"]
    assert run.main(again) == 0 and "\n[1/1]" not in capsys.readouterr().out


def test_a_refusal_to_run_as_threads_is_asked_again_of_processes(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    command = [*EVEN, "--impl", "tests.harness.test_kept:Slow", "--json", str(path)]
    assert run.main(command) == 2
    command.remove("--in-process")
    assert run.main([*command, "--resume"]) == 2
    out = capsys.readouterr().out
    assert "made with another backend" in out and "Slow refuses: never\n" in out


def test_a_header_says_how_many_trials_were_asked(tmp_path):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--impl", "ring,dense", "--json", str(path)]) == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:2]) + "\n")
    assert run.main([*EVEN, "--impl", "ring,dense", "--json", str(path), "--resume"]) == 0
    asked = [(one.header["settings"]["asked"], one.header["settings"]["kept"]) for one in record.read(path).runs]
    assert asked == [(2, 0), (2, 1)]


def test_a_page_that_fails_at_the_end_is_an_error_and_the_results_are_kept(tmp_path, monkeypatch, capsys):
    from reports import keep

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keep, "write_whole", full)
    path, page = tmp_path / "r.jsonl", tmp_path / "page.html"
    assert run.main([*EVEN, "--json", str(path), "--report", str(page)]) == 3
    wrong = f"report {page} cannot be written: No space left on device"
    assert capsys.readouterr().err == f"ringcheck: {wrong}; the results are kept in {path}\n"
    assert record.read(path).counts == {"PASS": 1}


class Slow(running.load("dense").__class__):
    name, in_process = "Slow", False

    def refuses(self, case, setting):
        return "never"
