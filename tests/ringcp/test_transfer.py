"""Transfers: exactly the need, one hop ahead of the kernels, and masks gathered from shards."""

from dataclasses import dataclass, field

import pytest
import torch

import ringcp
from ringcp import kernels
from ringcp.exchange import GRADS, InProcess, Mailbox
from ringcp.kernels.demand import Demand
from ringcp.merge import Merged
from tests.ringcp.ring_ranks import draw, on_ranks, ring


@pytest.mark.parametrize(("mask", "layout", "keys"), [
    (ringcp.Mask(tokens=64), "contiguous", [32, 0]),
    (ringcp.Mask(tokens=64), "zigzag", [16, 32]),
    (ringcp.Mask(tokens=64, window=9), "contiguous", [8, 0]),
    (ringcp.Mask(tokens=64, documents=torch.arange(64)[None] // 32 + 1), "contiguous", [0, 0]),
    (ringcp.Mask(tokens=64, documents=torch.arange(64)[None] // 20 + 1), "contiguous", [12, 0]),
    (ringcp.Mask(tokens=64, causal=False), "contiguous", [32, 32]),
])
def test_bytes_are_the_need_and_nothing_more(mask, layout, keys):
    """Keys and values once forward and once backward, dK and dV back from who used them; fp32, two heads of 8 + 8."""
    found = ring(*draw(mask, dtype=torch.float32), mask, ringcp.make_layout(layout, 64, 2))
    token = 2 * (8 + 8) * 4
    assert found.sent == [2 * keys[0] * token + keys[1] * token, 2 * keys[1] * token + keys[0] * token]


@dataclass
class Diary(InProcess):
    """An exchange that writes down when transfers start and when they are waited for."""

    rank: int
    mailbox: Mailbox
    events: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__(self.rank, self.mailbox)

    def start(self, sends, receives, channel=0):
        kind = "grads" if channel == GRADS else "keys"
        self.events.append(f"start {kind}")
        wait = super().start(sends, receives, channel)

        def noted():
            self.events.append(f"wait {kind}")
            return wait()

        return noted


def test_the_next_transfer_is_in_flight_during_a_hops_kernel(monkeypatch):
    mask, layout = ringcp.Mask(tokens=48, causal=False), ringcp.make_layout("contiguous", 48, 3)
    q, k, v, dout = draw(mask)

    def work(exchange):
        diary = Diary(exchange.rank, exchange.mailbox)
        kernel = kernels.select(Demand("cpu", torch.float64, 8, 8))
        noted = type("Noted", (type(kernel),), {
            "forward": lambda self, *a: diary.events.append("kernel") or super(noted, self).forward(*a),
            "backward": lambda self, *a: diary.events.append("kernel") or super(noted, self).backward(*a)})
        ring_call = ringcp.attention.Ring(ringcp.plan.make_plan(mask, layout, exchange.rank), diary, noted(), 1.0)
        local = [layout.shard(x, exchange.rank) for x in (q, k, v)]
        out, lse = ring_call.forward(*local)
        forward, diary.events[:] = list(diary.events), []
        ring_call.backward(layout.shard(dout, exchange.rank), *local, out, lse, True)
        return forward, diary.events

    for forward, backward in on_ranks(3, work):
        assert forward == ["start keys", "kernel", "wait keys", "start keys", "kernel", "wait keys", "kernel"]
        assert backward == ["start keys", "kernel", "wait keys", "start keys", "kernel", "start grads",
                            "wait keys", "kernel", "wait grads", "start grads", "wait grads"]


def test_a_rank_that_never_sends_ends_the_wait_with_its_name():
    mailbox = Mailbox(2, timeout=0.05)
    with pytest.raises(TimeoutError, match="rank 0 waited 0.05 s for a message of rank 1"):
        mailbox.take(1, 0, 0)


@pytest.mark.parametrize("layout", ["contiguous", "zigzag", "striped", "zigzag-padded"])
def test_gather_mask_makes_whole_rows_from_shards(layout):
    documents, padding = torch.tensor([[1] * 4 + [2] * 7, [3] * 11]), torch.arange(22).view(2, 11) % 5 == 0
    selected = torch.randint(0, 3, (2, 2, 11, 2)).sort(-1).values
    regions = torch.tensor([[0] * 5 + [1] * 6] * 2)
    placed = ringcp.make_layout(layout, 11, 3)

    def work(exchange):
        shards = {name: placed.shard(whole, exchange.rank, 1) for name, whole in
                  (("documents", documents), ("padding", padding), ("token_regions", regions))}
        return ringcp.gather_mask(placed, group=exchange, window=4, regions=2,
                                  selected=placed.shard(selected, exchange.rank, 2), **shards)

    whole = ringcp.Mask(tokens=11, batch=2, window=4, documents=documents, padding=padding, token_regions=regions,
                        selected=selected, regions=2)
    assert all(mask == whole for mask in on_ranks(3, work))


@pytest.mark.parametrize("indexed", [False, True])
def test_merge_of_parts_is_the_whole_and_rows_without_keys_stay_zero(indexed):
    scores, values = torch.randn(3, 5, 12, dtype=torch.float64), torch.randn(12, 4, dtype=torch.float64)
    scores[1, 2] = -torch.inf
    scores[0, 0, :6] = -torch.inf
    scores[2] += 1e3
    merged = Merged(5, 3, 4, torch.float64, torch.float64, scores.device)
    for keys in (slice(0, 3), slice(3, 6), slice(6, 12)):
        part = scores[..., keys].logsumexp(-1)
        weights = (scores[..., keys] - part.nan_to_num(neginf=0.0)[..., None]).exp()
        partial = (weights @ values[keys]).transpose(0, 1)
        for rows in (slice(0, 2), slice(2, 5)):
            place = torch.arange(5)[rows] if indexed else rows
            merged.add(place, partial[rows], part[:, rows])
    out, lse = merged.result()
    live = torch.ones(3, 5, dtype=torch.bool)
    live[1, 2] = False
    torch.testing.assert_close(out.transpose(0, 1)[live], scores.softmax(-1)[live] @ values)
    torch.testing.assert_close(lse[live], scores.logsumexp(-1)[live])
    assert (out[2, 1] == 0).all() and lse[1, 2] == -torch.inf
