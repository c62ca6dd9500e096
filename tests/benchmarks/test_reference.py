"""What the truth and the twin of a small problem cost: 256 tokens, 4/2 heads, D 32."""

import pytest
import torch

from cases.mask import Mask
from cases.rules.causal import Causal
from reference.dense import truth
from reference.twin import twin


def drawn(dtype):
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, heads, 256, 32) for heads in (4, 2, 2, 4)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


@pytest.mark.benchmark(group="reference: 256 tokens, 4/2 heads, D 32")
@pytest.mark.parametrize("what", ["truth", "truth with terms", "twin"])
def test_cost_of_a_small_problem(benchmark, what):
    inputs = drawn(torch.float64 if what == "truth" else torch.bfloat16)
    mask = Mask((Causal(),))
    rows = mask.rows(1, 256, 2)
    if what == "twin":
        found = benchmark(twin, *inputs, mask, rows)
    else:
        found = benchmark(truth, *inputs, mask, rows, terms=what != "truth")
    assert found.out.isfinite().all()
