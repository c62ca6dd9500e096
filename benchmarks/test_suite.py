"""What the suite itself costs: trials a second on living ranks, the default catalogue, the truth of a long row.

pytest benchmarks/test_suite.py --benchmark-json=FILE; figures of one machine mean little beside those of another.
"""

import subprocess
import sys

import pytest

from cases import catalogue
from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from harness.clock import Timing
from harness.pool import Pool
from harness.trial import UNTIMED

TRIALS = 60
MIB = 1 << 20
LONG = """
import resource, torch
from cases.mask import Mask
from cases.rules.causal import Causal
from reference.dense import truth
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mask, shape = Mask((Causal(),)), (1, 4, 16384, 128)
tensors = [torch.randn(shape, dtype=torch.float64) for _ in range(4)]
truth(*tensors, mask, mask.rows(1, 16384, 4), None)
print(before * 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.fixture(scope="module")
def pool():
    pool = Pool(2)
    pool.run(small(0), "ring", UNTIMED)
    yield pool
    pool.close()


def small(seed: int):
    """256 tokens, 4/2 heads, D 32, fp64, forward and backward; a seed of its own gets a truth of its own."""
    scenario = Scenario("bench/small", "A1 A3", Mask((Causal(), Documents.packed([37, 101, 118]))), Shape())
    return scenario.at(2, "zigzag", "fp64", seed)


@pytest.mark.parametrize("truths", ["cached", "own"])
def test_trials_a_second_on_living_ranks(benchmark, pool, truths):
    cases = [small(seed if truths == "own" else 0) for seed in range(TRIALS)]

    def trials() -> None:
        assert all(pool.run(case, "ring", UNTIMED)["verdict"] == "PASS" for case in cases)

    benchmark.pedantic(trials, rounds=3)
    benchmark.extra_info["trials_per_second"] = TRIALS / benchmark.stats.stats.median


@pytest.mark.parametrize("iters", [0, 3])
def test_the_default_catalogue_at_world_2(benchmark, pool, iters):
    cases = [case for case in catalogue.select("default", worlds=(2,)) if case.ranks == 2]

    def whole() -> None:
        for case in cases:
            assert pool.run(case, "ring", Timing(1, iters))["verdict"] == "PASS", case.id

    benchmark.pedantic(whole, rounds=1)
    benchmark.extra_info["trials"] = len(cases)


def test_the_truth_of_16k_tokens_fits_in_two_gigabytes(benchmark):
    def peak() -> int:
        said = subprocess.run([sys.executable, "-c", LONG], check=True, capture_output=True, text=True).stdout
        return int(said.split()[1])

    found = benchmark.pedantic(peak, rounds=1)
    benchmark.extra_info["peak_mib"] = found / MIB
    assert found < 2048 * MIB
