"""The trace on its own: a mapped ring of calls that outlives its writer, and what several of them tell together."""

import subprocess
import sys
from pathlib import Path

import torch.distributed as dist

from harness import divergence, trace
from harness.trace import SLOTS, Call, Trace
from harness.wire import tapped

ROOT = Path(__file__).resolve().parents[2]
BOTH = (0, 1)


def gather(size=8, kind="all_gather", group="0"):
    return Call("0 forward", kind, group, BOTH, -1, 0, size, "step (mine.py:3)")


def send(peer, size=8, kind="send"):
    return Call("0 forward", kind, "0", BOTH, peer, 0, size, "step (mine.py:4)")


def test_calls_come_back_in_order_and_the_newest_stay(tmp_path):
    made = Trace(tmp_path / "t")
    for size in range(SLOTS + 5):
        made.write(gather(size))
    assert [call.bytes for call in made.calls()] == list(range(5, SLOTS + 5)) and trace.read(made.path) == made.calls()
    made.begin()
    assert made.calls() == [] and trace.read(tmp_path / "none") == []


def test_a_killed_writer_leaves_its_last_call(tmp_path):
    code = ("import os, sys; from harness.trace import Call, Trace; made = Trace(sys.argv[1]);"
            "made.write(Call('0 forward', 'send', '0', (0, 1), 1, 3, 64, 'step (mine.py:3)')); os.kill(os.getpid(), 9)")
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path / "t")], cwd=ROOT)
    assert ended.returncode == -9
    assert trace.read(tmp_path / "t") == [Call("0 forward", "send", "0", BOTH, 1, 3, 64, "step (mine.py:3)")]


def test_bytes_by_kind():
    four = (0, 1, 2, 3)
    moved = {kind: Call("", kind, "0", four, 1, 0, 80, "") for kind in
             ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "broadcast", "gather", "send", "recv")}
    assert {kind: (call.sent(0), call.received(0)) for kind, call in moved.items()} == {
        "all_gather": (240, 240), "all_reduce": (120, 120), "reduce_scatter": (60, 60), "all_to_all": (60, 60),
        "broadcast": (0, 80), "gather": (80, 0), "send": (80, 0), "recv": (0, 80)}
    assert (moved["broadcast"].sent(1), moved["gather"].received(1)) == (240, 240)


def test_equal_traces_do_not_part():
    calls = {0: [gather(), send(1), send(1, kind="recv")], 1: [gather(16), send(0, kind="recv"), send(0)]}
    assert divergence.first(calls) is None and divergence.unlike(calls) == []


def test_the_first_parting_is_named():
    early = {0: [gather(kind="all_reduce"), send(1)], 1: [gather(), send(0, kind="recv")]}
    assert divergence.first(early) == ("collective out of step: rank 0: all_reduce of 8 bytes among ranks 0,1 in step "
                                       "(mine.py:3); rank 1: all_gather of 8 bytes among ranks 0,1 in step (mine.py:3)")
    missing = {0: [gather(), send(1)], 1: [gather()]}
    assert divergence.first(missing) == ("rank 0: send of 8 bytes to rank 1 in step (mine.py:4), which the other end "
                                         "never makes")
    unlike = {0: [send(1, 24)], 1: [send(0, 8, "recv")]}
    assert "send of 24 bytes to rank 1" in divergence.first(unlike) and "recv of 8 bytes" in divergence.first(unlike)
    assert divergence.last_calls({0: [], 1: [send(0)]}) == [
        "rank 0 made no call", "rank 1 last made send of 8 bytes to rank 0 in step (mine.py:4) (call 1, 0 forward)"]


def test_nothing_stays_patched(tmp_path):
    before = dict(vars(dist.ProcessGroup))
    with tapped(Trace(tmp_path / "t")):
        assert vars(dist.ProcessGroup)["send"] is not before["send"]
    assert dict(vars(dist.ProcessGroup)) == before
