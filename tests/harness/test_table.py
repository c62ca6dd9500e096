"""What a table says at its end: equal things together, implementations apart, commands that repeat what was asked."""

import io
import shlex
import sys

import pytest

from cases import catalogue
from harness import arguments, repeat, run
from harness.table import Table

EVEN = ["--cases", "packed/even", "--layout", "zigzag", "--ranks", "1", "--iters", "0", "--in-process"]


def made(name, verdict="PASS", spec="ring", reason=None, **changes):
    case = {"id": name, "tokens": 8, "heads": 4, "kv_heads": 2, "dtype": "fp64", "world": 1, "level": "required"}
    return {"case": case, "implementation": {"name": spec, "spec": spec}, "verdict": verdict, "reason": reason,
            "truth": "dense", "deviations": [], "measurement": None, "work": None,
            "diagnosis": {"again": f"ringcheck --cases {name}"} if verdict == "ERROR" else None, **changes}


def told(records, implementations=("ring",)):
    stream = io.StringIO()
    table = Table(stream, len(records), implementations)
    for record in records:
        table.row(record)
    table.end(records, 1.0, "r.jsonl")
    return stream.getvalue()


def test_equal_skips_and_errors_are_told_once_with_the_ids_behind_them():
    skipped = [made(f"packed/n{n}", "SKIP", reason="no packing") for n in range(40)]
    broken = [made(f"window/n{n}", "ERROR", reason="rank 1 hangs\nstack") for n in range(3)]
    out = told([*skipped, *broken, made("full/other", "ERROR", reason="rank 0 hangs"), made("a/b", "SKIP", reason="x")])
    assert "# SKIP 40 cases: ring refuses: no packing\n#   packed/n0, packed/n1, packed/n2 and 37 more\n" in out
    assert ("# ERROR window/n0  rank 1 hangs\n#   stack\n#   also         window/n1, window/n2\n"
            "#   again        ringcheck --cases window/n0\n# ERROR full/other  rank 0 hangs\n") in out
    assert out.endswith("# SKIP a/b: ring refuses: x\n") and out.count("no packing") == out.count("stack") == 1


def test_several_implementations_are_named_in_every_line():
    records = [made("a/b"), made("a/b", "SKIP", "my:ring", "no"), made("c/d", "SKIP", "ring", "no"),
               made("c/d", "ERROR", "my:ring", "hangs")]
    lines = told(records, ["ring", "my:ring"]).splitlines()
    assert [line.split()[2] for line in lines[:4]] == ["ring", "my:ring", "ring", "my:ring"]
    assert lines[4:6] == ["#   ring     1 passed, 0 failed, 1 skipped, 0 errors",
                          "#   my:ring  0 passed, 0 failed, 1 skipped, 1 errors"]
    assert "# ERROR c/d  my:ring  hangs" in lines and "# SKIP a/b: my:ring refuses: no" in lines


def test_failures_of_several_implementations_are_named(tmp_path, capsys):
    command = [*EVEN, "--dtype", "fp64", "--impl", "ring,sabotage:lse-in-base-two", "--json", str(tmp_path / "r.jsonl")]
    assert run.main(command) == 1
    out = capsys.readouterr().out
    assert "# FAIL packed/even-zigzag-w1-fp64  sabotage:lse-in-base-two  lse" in out
    names = next(line for line in out.splitlines() if " tokens " in line)
    rows = [line for line in out.splitlines() if line.startswith("[")]
    assert names.index("impl") == rows[0].index("ring ") and names.index("verdict") == rows[0].index("PASS")


def test_rows_of_strict_cases_are_marked(tmp_path, capsys):
    strict = next(case for case in catalogue.select("all", (1,), dtypes=("fp64",)) if case.strict)
    assert run.main(["--cases", strict.id, *EVEN[4:], "--json", str(tmp_path / "r.jsonl")]) == 0
    assert capsys.readouterr().out.splitlines()[4].endswith("PASS (strict)")


@pytest.mark.parametrize("more", [
    "--timeout 9", "--device cuda", "--truth probes", "--in-process", "--iters 0 --warmup 5",
    "--truth dense --timeout 2.5 --iters 7"])
def test_a_command_repeats_its_case_as_it_was_asked(monkeypatch, more):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    settings = arguments.parse(["--impl", "my:ring", *more.split()])
    (case,) = catalogue.select("packed/even-zigzag-w3-bf16", (3,))
    words = shlex.split(repeat.command(case, "my:ring", settings))
    assert words[0] == "ringcheck"
    again = arguments.parse(words[1:])
    assert (again.cases, again.worlds, again.implementations) == ((case.id,), (3,), ("my:ring",))
    for name in ("timing", "timeout", "device", "truth", "in_process", "seed"):
        assert getattr(again, name) == getattr(settings, name)


@pytest.mark.parametrize(("program", "start"), [
    ("/venv/bin/ringcheck", "ringcheck --ranks 2 "), ("/x/ringcheck/__main__.py", "python -m ringcheck --ranks 2 "),
    ("/x/harness/run.py", "python -m harness.run --ranks 2 "), ("/x/pytest/__main__.py", "ringcheck --ranks 2 ")])
def test_a_command_starts_as_this_run_was_started(monkeypatch, program, start):
    (case,) = catalogue.select("packed/even-zigzag-w2-fp64", (2,))
    monkeypatch.setattr(sys, "argv", [program])
    assert repeat.command(case, "ring", arguments.parse([])).startswith(start + "--impl ring")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert repeat.command(case, "ring", arguments.parse([])).startswith("torchrun --nproc-per-node 2 -m ")
