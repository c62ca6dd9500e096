"""Slow links: how much of a transfer's latency a step of the ring shows."""

import time

import torch

import ringcp
from ringcp.exchange import InProcess, Mailbox
from tests.ringcp.ring_ranks import draw, on_mailbox

LATENCY, WORLD, REPEATS = 0.02, 2, 7
MASK = ringcp.Mask(tokens=3072, causal=False)
LAYOUT = ringcp.make_layout("contiguous", MASK.tokens, WORLD)
TRANSFERS_IN_TURN, TRANSFERS_HIDDEN = 3, 2


def step_seconds(latency: float, tensors: list[torch.Tensor]) -> float:
    """One forward and backward on all ranks, as wall time."""

    def work(exchange: InProcess) -> None:
        local = [LAYOUT.shard(x, exchange.rank).requires_grad_() for x in tensors[:3]]
        out, _ = ringcp.ring_attention(*local, mask=MASK, layout=LAYOUT, group=exchange)
        out.backward(LAYOUT.shard(tensors[3], exchange.rank))

    started = time.perf_counter()
    on_mailbox(Mailbox(WORLD, latency=latency), work)
    return time.perf_counter() - started


def test_a_step_hides_the_latency_that_kernels_can_cover(benchmark):
    """Keys forward, keys backward and gradients are three transfers in turn; all but the gradients' last can hide."""
    torch.set_num_threads(1)
    tensors = draw(MASK, head_dim=32, value_dim=32, dtype=torch.float32)
    step_seconds(0.0, tensors)
    pairs = [(step_seconds(0.0, tensors), step_seconds(LATENCY, tensors)) for _ in range(REPEATS)]
    growth = sorted(slow - fast for fast, slow in pairs)[REPEATS // 2]
    benchmark.extra_info.update(growth_ms=growth * 1e3, in_turn_ms=TRANSFERS_IN_TURN * LATENCY * 1e3)
    benchmark.pedantic(step_seconds, (LATENCY, tensors), rounds=3)
    assert growth < (TRANSFERS_IN_TURN - TRANSFERS_HIDDEN + 0.5) * LATENCY
