"""What a step of the ring takes on two living ranks, by their own clocks: the round trip to them is no part of it."""

import pytest


@pytest.mark.benchmark(group="a step on two ranks, longest of both: 256 tokens, 4/2 heads, D 32")
@pytest.mark.parametrize("case", ["packed/straddle-zigzag-w2-fp64", "packed/straddle-striped-w2-bf16"])
def test_time_of_a_step(rank_benchmark, case):
    assert len(rank_benchmark(case, impl="ring", iters=20)["measurement"]["step_s"]) == 20
