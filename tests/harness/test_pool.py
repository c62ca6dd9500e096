"""The living pool: lost ranks become ERROR records that name every rank's last call, and the next case runs."""

import os
import signal
import time

import pytest

from harness.pool import Pool
from harness.trial import UNTIMED
from tests.harness.samples import causal

LOSSES = "tests.harness.losses"


def run(pool, spec="dense", limit=20.0):
    return pool.run(causal(), spec, UNTIMED, limit)


@pytest.mark.parametrize(("loss", "words", "frame"), [
    ("Raising", "rank 1 raised RuntimeError: no kernel for this shape", "in spoil (losses.py"),
    ("OutOfMemory", "rank 1 raised OutOfMemoryError: Tried to allocate 3.00 TiB", "in spoil (losses.py"),
    ("RaisesInBackward", "rank 1 raised RuntimeError: no backward for this shape", "in backward (losses.py"),
    ("KilledAfterSending", "rank 1 was killed by signal 9", "rank 0 "),
    ("TooLong", "rank 1 ", "rank 0"),
    ("RaisesUnsayable", "rank 1 raised Unsayable: (its message cannot be made)", "in spoil (losses.py"),
    ("RaisesAtLength", "rank 1 raised ValueError: no room room", "in spoil (losses.py"),
    ("Leaves", "rank 1 raised SystemExit: enough of it", "in spoil (losses.py"),
    ("Interrupts", "rank 1 raised KeyboardInterrupt in spoil (losses.py", "rank 0 "),
    ("Exits", "rank 1 exited with code 0", "rank 0 "),
    ("FailsToClose", "rank 1 raised OSError: still in use", "in close (losses.py"),
])
def test_a_lost_rank_is_named_and_replaced(pool, loss, words, frame):
    before = pool.restarts
    record = run(pool, f"{LOSSES}:{loss}")
    first = record["reason"].splitlines()[0]
    assert record["verdict"] == "ERROR" and first.startswith(words) and frame in first
    assert len(first) < 600 and len(record["reason"]) < 40_000
    assert record["case"]["id"] == causal().id and "ringcheck --ranks 2" in record["diagnosis"]["again"]
    assert run(pool)["verdict"] == "PASS" and pool.restarts == before + 1


@pytest.mark.parametrize(("loss", "words"), [("Hanging", "rank 1 in spoil (losses.py"),
                                             ("Stopped", "rank 1 stopped in ")])
def test_a_hang_ends_in_time_with_every_stack(pool, loss, words):
    run(pool)
    started = time.monotonic()
    record = run(pool, f"{LOSSES}:{loss}", limit=2.0)
    assert record["verdict"] == "ERROR" and time.monotonic() - started < 8
    first, *rest = record["reason"].splitlines()
    assert "no answer within 2 s" in first and words in first and "rank 0 in exchange (dense.py" in first
    assert "ranks part at collective out of step: rank 0: all_gather of 16384 bytes among ranks 0,1" in first
    assert "rank 1 made no call" in rest and {"rank 0:", "rank 1:"} <= set(rest)
    assert run(pool)["verdict"] == "PASS"


def test_a_killed_rank_leaves_its_last_call(pool):
    reason = run(pool, f"{LOSSES}:KilledAfterSending")["reason"].splitlines()
    assert any(line.startswith("rank 1 last made send of 12 bytes to rank 0 in spoil (losses.py:") for line in reason)
    assert "ranks part at" in reason[0]


def test_a_skipped_collective_is_the_one_that_is_named(pool):
    record = run(pool, f"{LOSSES}:SkipsACollective", limit=3.0)
    first = record["reason"].splitlines()[0]
    assert record["verdict"] == "ERROR" or record["verdict"] == "FAIL"
    assert "rank 0: all_reduce of 8 bytes among ranks 0,1 in spoil (losses.py:" in first
    assert "rank 1: all_gather of 16384 bytes" in first


def test_both_ends_of_an_unlike_transfer_are_told(pool):
    record = run(pool, f"{LOSSES}:UnlikeSizes")
    assert record["verdict"] == "FAIL"
    assert record["reason"].startswith("D6: the ends of a call do not fit: rank 0: send")
    assert "send of 40 bytes to rank 1" in record["reason"] and "recv of 120 bytes from rank 0" in record["reason"]
    lost = run(pool, f"{LOSSES}:TooLong")["reason"].splitlines()[0]
    assert "send of 120 bytes to rank 1" in lost and "recv of 40 bytes from rank 0" in lost


def test_a_broken_promise_of_one_rank_costs_no_rank(pool):
    run(pool)
    before = pool.restarts
    record = run(pool, "tests.harness.breakers:OnOneRank")
    assert record["verdict"] == "FAIL" and record["reason"] == "B1: step returned None on rank 1"
    assert pool.restarts == before


def test_ranks_whose_group_was_ended_are_replaced(pool):
    run(pool)
    before = pool.restarts
    record = run(pool, f"{LOSSES}:EndsTheGroup")
    assert record["verdict"] == "FAIL" and "default process group is left changed" in record["reason"]
    assert pool.restarts == before + 1 and run(pool)["verdict"] == "PASS"


def test_an_error_of_torch_itself_names_what_was_called(pool):
    record = run(pool, "tests.harness.breakers:Borrowed")
    assert record["verdict"] == "ERROR"
    assert "in the implementation's step, which is torch's or Python's own; " in record["reason"].splitlines()[0]


def test_an_idle_rank_that_dies_costs_no_case(pool):
    run(pool)
    os.kill(pool.pids()[0], signal.SIGKILL)
    time.sleep(0.3)
    assert run(pool)["verdict"] == "PASS"


def test_workers_end_with_the_pool():
    pool = Pool(1)
    assert pool.run(causal(1), "dense", UNTIMED)["verdict"] == "PASS"
    pid = pool.pids()[0]
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
