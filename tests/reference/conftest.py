"""Random inputs and masks that the tests of the reference share."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.window import Window


def masks(tokens: int) -> dict[str, Mask]:
    """One of each kind, with dead rows and unseen keys among them."""
    third, rest = tokens // 3, tokens - tokens // 3 - 5
    padding = Padding((((0, 2), (third, third + 3)),))
    return {
        "causal": Mask((Causal(),)),
        "full": Mask(),
        "window": Mask((Causal(), Window(7))),
        "packed": Mask((Causal(), Documents(((((1, third), (2, rest), (0, 5))),)))),
        "padded": Mask((Causal(), padding)),
        "regions": Mask((Causal(), Regions.even(tokens, 4, Router(seed=3, top_k=2, own=False)))),
        "mixed": Mask((Causal(), Window(third), Documents.packed([third, tokens - third]), padding)),
    }


@pytest.fixture
def draw() -> Callable[..., list[Tensor]]:
    """Signed normal q, k, v, dout of a seed."""
    def drawn(tokens: int, heads: int = 4, kv_heads: int = 2, dim: int = 32, value_dim: int | None = None,
              batch: int = 1, dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        value_dim = value_dim or dim
        shapes = [(heads, dim), (kv_heads, dim), (kv_heads, value_dim), (heads, value_dim)]
        return [torch.randn(batch, h, tokens, d, generator=generator, dtype=torch.float64).to(dtype) for h, d in shapes]

    return drawn


@pytest.fixture(params=sorted(masks(12)))
def make_mask(request) -> Callable[[int], Mask]:
    """Each kind of mask in turn, for any number of tokens."""
    return lambda tokens: masks(tokens)[request.param]
