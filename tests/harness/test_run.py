"""The command line: one clear line and the right code for what is wrong, everything recorded before it kept."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from harness import arguments, run
from harness.adapters.dense import Dense
from reports import record

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
EVEN = ["--cases", "packed/even", "--layout", "zigzag", "--ranks", "1", "--iters", "0"]


class Shy(Dense):
    name = "shy"

    def refuses(self, case, setting):
        return "documents are not supported"


@pytest.mark.parametrize(("arguments", "words"), [
    (["--cases", "nosuch/case"], "nosuch/case"),
    (["--impl", "nobody"], "unknown implementation 'nobody': known are ring"),
    (["--impl", "no.module:name"], "no module named 'no'"),
    (["--impl", "harness.trial:Nothing"], "has no 'Nothing'"),
    (["--impl", "tests.harness.broken:Ring"], "tests.harness.broken cannot be imported: RuntimeError: no such driver"),
    (["--impl", "sabotage:none"], "unknown fault 'none'"),
    (["--impl", ","], "names no implementation"),
    (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    (["--ranks", "0"], "'0' is no list of rank counts"),
    (["--tokens", "8q"], "'8q' is no size"),
    (["--timeout", "-1"], "no number of seconds"),
    (["--layout", "spiral"], "unknown layout 'spiral'"),
    (["--dtype", "int8"], "unknown dtype 'int8'"),
    (["--pairs"], "go with --list"),
    (["--list", "--pairs", "--by-requirement"], "two lists; ask for one"),
    (["--count", "3"], "--count goes with --cases random"),
    (["--cases", "random", "--count", "0"], "--count 0 asks for no case"),
    (["--ranks", "1000000"], "1000000 ranks are more than 64"),
    (["--in-process", "--device", "cuda"], "on cpu only"),
    ([*EVEN, "--json", "/dev/null/results.jsonl"], "results file /dev/null/results.jsonl cannot be written"),
])
def test_bad_usage_is_one_line_and_code_2(arguments, words, capsys):
    assert run.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("ringcheck: ") and said.err.count("\n") == 1
    assert words in said.err


def test_torchrun_settles_the_world(monkeypatch, capsys):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    assert run.main(["--ranks", "3"]) == 2
    assert capsys.readouterr().err == "ringcheck: --ranks 3 but torchrun started 2 ranks\n"
    monkeypatch.setenv("RANK", "1")
    assert run.main(["--ranks", "3"]) == 2
    assert capsys.readouterr().err == "[rank 1] ringcheck: --ranks 3 but torchrun started 2 ranks\n"


def test_a_passing_run_is_recorded_and_shown(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--impl", "ring,dense", "--in-process", "--iters", "1", "--json", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    data = [line for line in shown if not line.startswith("#")]
    assert len(data) == 6 and all("PASS" in line and line.startswith("[") for line in data)
    other = [line for line in data if " dense " in line and "-contiguous-" not in line]
    assert all(line.endswith("PASS (contiguous layout)") for line in other) and data[0].endswith("PASS")
    assert shown[0].startswith("# ringcheck") and "impl ring,dense" in shown[0] and str(path) in shown[-1]
    found = record.read(path)
    assert found.counts == {"PASS": 6} and found.runs[0].end["exit_code"] == 0 and not found.warnings
    assert found.header["environment"]["torch"] and found.header["argv"][0] == "--cases"
    assert all(trial["measurement"]["iters"] == 1 for trial in found.trials)


def test_a_failure_is_code_1_and_repeated_last(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    command = [*EVEN, "--dtype", "fp64", "--impl", "sabotage:lse-in-base-two", "--in-process", "--json", str(path)]
    assert run.main(command) == 1
    shown = capsys.readouterr().out.splitlines()
    assert "FAIL lse" in next(line for line in shown if line.startswith("["))
    last = "\n".join(shown[-5:])
    again = "ringcheck --ranks 1 --impl sabotage:lse-in-base-two --cases packed/even-zigzag-w1-fp64 --seed 7"
    for word in ("# FAIL packed/even-zigzag-w1-fp64", "requirement  B2: ", "expected     lse[0, ",
                 "first wrong: rank 0, document", f"again        {again}"):
        assert word in last


def test_an_implementation_of_one_layout_is_asked_once_where_only_layouts_differ(tmp_path, capsys):
    command = ["--cases", "packed/even", "--ranks", "2", "--dtype", "fp64", "--impl", "ring,dense", "--iters", "0"]
    assert run.main([*command, "--in-process", "--json", str(tmp_path / "r.jsonl")]) == 0
    asked = {(found["implementation"]["name"], found["case"]["layout"])
             for found in record.read(tmp_path / "r.jsonl").trials}
    assert asked == {("ring", "contiguous"), ("ring", "zigzag"), ("ring", "striped"), ("dense", "contiguous")}
    assert "# dense has one layout, contiguous: 2 cases" in capsys.readouterr().out
    assert run.main([*command, "--in-process", "--layout", "zigzag", "--json", str(tmp_path / "z.jsonl")]) == 0
    assert len(record.read(tmp_path / "z.jsonl").trials) == 2


def test_a_list_is_printed_for_known_implementations_alone(capsys):
    assert run.main(["--list", "--cases", "packed/even", "--impl", "nobody"]) == 2
    assert "unknown implementation 'nobody'" in capsys.readouterr().err


def test_results_of_long_commands_keep_files_of_their_own():
    cases = ["--cases", *(f"packed/{name}" for name in ("even", "straddle", "short", "uneven", "two-rows"))]
    long = [arguments.parse([*cases, "--impl", name]).json.name for name in ("mine:a" + "x" * 30, "mine:b" + "x" * 30)]
    assert long[0] != long[1] and all(len(name) < 120 for name in long)


def test_fail_fast_ends_at_the_first_failure(tmp_path):
    path = tmp_path / "r.jsonl"
    command = [*EVEN, "--impl", "sabotage:lse-in-base-two", "--in-process", "--fail-fast", "--json", str(path)]
    assert run.main(command) == 1
    assert record.read(path).counts == {"FAIL": 1}


def test_nothing_but_refusals_is_code_2(tmp_path, capsys):
    command = [*EVEN, "--impl", "tests.harness.test_run:Shy", "--in-process", "--json", str(tmp_path / "r.jsonl")]
    assert run.main(command) == 2
    out = capsys.readouterr().out
    assert "# SKIP 3 cases: shy refuses: documents are not supported\n#   packed/even-zigzag-w1-fp64, " in out


def test_resume_leaves_out_what_a_cut_file_holds(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    assert run.main([*EVEN, "--in-process", "--json", str(path)]) == 0
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])
    capsys.readouterr()
    assert run.main([*EVEN, "--in-process", "--resume", "--json", str(path)]) == 0
    said = capsys.readouterr()
    assert "truncated last line" in said.err and "resumed: 1 trials" in said.out
    assert len([line for line in said.out.splitlines() if line.startswith("[")]) == len(lines) - 3
    assert record.read(path).counts == {"PASS": len(lines) - 2}


def test_listings_run_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run.main([*EVEN, "--list"]) == 0
    assert "packed/even-zigzag-w1-fp64" in capsys.readouterr().out
    assert run.main(["--list", "--by-requirement"]) == 0
    assert "  A6 " in capsys.readouterr().out
    assert run.main(["--list", "--pairs"]) == 0
    assert "# rule x world" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_recorded_before_a_signal_is_kept(tmp_path, interruptible, number):
    path = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "harness.run", "--cases", "packed/even", "--ranks", "2", "--dtype", "fp64",
               "--layout", "zigzag", "--impl", "dense,sabotage:hangs-on-one-rank", "--json", str(path), "--iters", "0"]
    started = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (path.exists() and path.read_text().count("\n") >= 2) and time.monotonic() < end:
        time.sleep(0.1)
    started.send_signal(number)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 3 and "# interrupted after 1 of 2 cases" in out and "Traceback" not in err
    found = record.read(path)
    assert found.counts == {"PASS": 1} and "no end line" in found.warnings[0]


def test_ctrl_c_while_torch_is_imported_is_one_line(tmp_path, interruptible):
    started = subprocess.Popen([sys.executable, "-m", "harness.run", "--cases", "packed", "--ranks", "2"], cwd=tmp_path,
                               env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.8)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=90)
    assert started.returncode == 3 and "Traceback" not in err and "interrupted" in out + err


def test_an_error_is_code_3_and_the_next_case_runs(tmp_path):
    path = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "harness.run", "--cases", "packed/even", "--ranks", "2", "--dtype", "fp64",
               "--layout", "zigzag", "--impl", "sabotage:killed-on-one-rank,dense", "--json", str(path), "--iters", "0"]
    ended = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, text=True, capture_output=True, timeout=90)
    assert ended.returncode == 3 and "1 passed, 0 failed, 0 skipped, 1 errors" in ended.stdout
    told = ended.stdout
    assert "# ERROR packed/even-zigzag-w2-fp64  sabotage:killed-on-one-rank  rank 1 was killed by signal 9" in told
    assert [trial["verdict"] for trial in record.read(path).trials] == ["ERROR", "PASS"]


def test_a_report_is_written_at_the_end(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert run.main([*EVEN, "--in-process", "--json", str(tmp_path / "r.jsonl"), "--report", str(page)]) == 0
    assert "packed/even-zigzag-w1-fp64" in page.read_text() and str(page) in capsys.readouterr().out


def test_importing_the_run_loads_no_gpu_package():
    code = ("import json, sys, harness.run; names = {name.split('.')[0] for name in sys.modules};"
            "gpu = {'triton', 'flash_attn', 'ffpa_attn', 'cutlass', 'transformers', 'jinja2'};"
            "print(json.dumps(sorted(names & gpu)))")
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=ENVIRONMENT, text=True, capture_output=True,
                           check=True)
    assert json.loads(ended.stdout) == []


def test_a_full_disk_keeps_what_was_recorded(tmp_path):
    path = tmp_path / "r.jsonl"
    command = [*EVEN, "--in-process", "--iters", "0", "--json", str(path)]
    assert run.main(command) == 0
    room = str(path.stat().st_size // 2)
    limited = ("import resource, sys; from harness import run; room = int(sys.argv.pop(1));"
               "resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)); sys.exit(run.main(sys.argv[1:]))")
    ended = subprocess.run([sys.executable, "-c", limited, room, *command], cwd=tmp_path, env=ENVIRONMENT, text=True,
                           capture_output=True, timeout=60)
    assert ended.returncode == 3 and "Traceback" not in ended.stderr
    assert "r.jsonl cannot be written: File too large; the " in ended.stderr and ended.stderr.count("\n") == 1
    kept = record.read(path)
    assert kept.counts["PASS"] >= 1 and path.read_bytes().endswith(b"\n") and len(kept.warnings) == 1
    assert run.main([*command, "--resume"]) == 0
    assert record.read(path).counts == {"PASS": 3}


def test_two_runs_never_write_one_file(tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    command = [*EVEN, "--in-process", "--json", str(path)]
    assert run.main(command) == 0
    before = path.read_bytes()
    with record.Writer(path, append=True):
        for more in ([], ["--resume"]):
            capsys.readouterr()
            assert run.main([*command, *more]) == 2
            assert capsys.readouterr().err == f"ringcheck: results file {path} is being written by another run\n"
    assert path.read_bytes() == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_cuda_without_a_gpu_is_refused_before_anything_starts():
    with pytest.raises(ValueError, match="--device cuda: torch sees no CUDA device"):
        arguments.parse(["--device", "cuda"])


def test_a_tier_chooses_cases_and_worlds_at_once():
    smoke, deep = arguments.parse(["--tier", "smoke"]), arguments.parse(["--tier", "deep", "--ranks", "2,3"])
    assert (smoke.cases, smoke.worlds, smoke.json.name) == (("smoke",), (1, 2, 3, 4), "smoke.jsonl")
    assert (deep.cases, deep.worlds) == (("all",), (2, 3))
    with pytest.raises(ValueError, match="--tier and --cases both choose cases"):
        arguments.parse(["--tier", "smoke", "--cases", "packed"])
