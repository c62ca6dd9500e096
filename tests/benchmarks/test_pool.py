"""How many trials a second a warm pool of two ranks runs: 256 tokens, 4/2 heads, D 32, forward and backward."""

import pytest

from cases.case import Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from harness.pool import Pool
from harness.trial import UNTIMED

MASKS = {"causal": Mask((Causal(),)), "packed": Mask((Causal(), Documents.packed([100, 60, 96])))}


@pytest.mark.benchmark(group="a trial on two living ranks: 256 tokens, 4/2 heads, D 32, fp64")
@pytest.mark.parametrize("what", list(MASKS))
def test_cost_of_a_trial(benchmark, what):
    """The truth is cached by the case's digest, as it is where cases differ in their layout."""
    case = Scenario(f"{what}/warm", "A1", MASKS[what], Shape(tokens=256)).at(2, "zigzag", "fp64")
    with Pool(2) as pool:
        pool.run(case, "ring", UNTIMED)
        record = benchmark(pool.run, case, "ring", UNTIMED)
    assert record["verdict"] == "PASS"
