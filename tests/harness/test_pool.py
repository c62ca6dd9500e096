"""The living pool: lost ranks become ERROR records that name them, and the next case runs."""

import os
import signal
import time

import pytest

from harness.trial import UNTIMED
from tests.harness.samples import causal


def run(pool, spec="dense", limit=20.0):
    return pool.run(causal(), spec, UNTIMED, limit)


@pytest.mark.parametrize(("fault", "words", "frame"), [
    ("raises-on-one-rank", "rank 1 raised RuntimeError: no kernel for this shape", "in step (behaviour.py"),
    ("exits-on-one-rank", "rank 1 exited with code 17", "rank 0"),
    ("killed-on-one-rank", "rank 1 was killed by signal 9", "rank 0"),
])
def test_a_lost_rank_is_named_and_replaced(pool, fault, words, frame):
    before = pool.restarts
    record = run(pool, f"sabotage:{fault}")
    first = record["reason"].splitlines()[0]
    assert record["verdict"] == "ERROR" and first.startswith(words) and frame in first
    assert record["case"]["id"] == causal().id and "ringcheck --ranks 2" in record["diagnosis"]["again"]
    assert run(pool)["verdict"] == "PASS" and pool.restarts == before + 1


@pytest.mark.parametrize(("fault", "words"), [("hangs-on-one-rank", "rank 1 in step (behaviour.py"),
                                              ("stopped-on-one-rank", "rank 1 stopped in step (behaviour.py")])
def test_a_hang_ends_in_time_with_every_stack(pool, fault, words):
    run(pool)
    started = time.monotonic()
    record = run(pool, f"sabotage:{fault}", limit=2.0)
    assert record["verdict"] == "ERROR" and time.monotonic() - started < 8
    first, *stacks = record["reason"].splitlines()
    assert "no answer within 2 s" in first and words in first and "rank 0 in exchange (dense.py" in first
    assert {"rank 0:", "rank 1:"} <= set(stacks)
    assert run(pool)["verdict"] == "PASS"


def test_an_idle_rank_that_dies_costs_no_case(pool):
    run(pool)
    os.kill(pool.pids()[0], signal.SIGKILL)
    time.sleep(0.3)
    assert run(pool)["verdict"] == "PASS"


def test_workers_end_with_the_pool():
    from harness.pool import Pool

    pool = Pool(1)
    assert pool.run(causal(1), "dense", UNTIMED)["verdict"] == "PASS"
    pid = pool.pids()[0]
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
