"""Kernels alone answer what the ring answers, and a silent exchange moves nothing."""

import pytest
import torch

import ringcp
from ringcp import alone
from ringcp.exchange import GRADS, Receive, Send
from ringcp.kernels import Eager
from ringcp.kernels.banded import Banded
from ringcp.kernels.demand import Demand
from ringcp.kernels.shape import heads_first, tokens_first
from ringcp.merge import Merged
from ringcp.plan import whole_work
from ringcp.spans import spans
from ringcp.work import Work

IDS = torch.tensor([[1] * 30 + [2] * 17 + [0] * 5 + [3] * 44])
MASKS = {
    "causal": ringcp.Mask(tokens=96),
    "documents": ringcp.Mask(tokens=96, documents=IDS),
    "window": ringcp.Mask(tokens=96, window=20, documents=IDS),
    "images": ringcp.Mask(tokens=96, window=8, token_types=(torch.arange(96) // 24 % 2)[None]),
}


def numbers(tokens):
    torch.manual_seed(0)
    return (torch.randn(1, heads, tokens, 16, dtype=torch.float64) for heads in (4, 2, 2, 4))


@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
@pytest.mark.parametrize("name", MASKS)
def test_whole_work_is_all_that_a_rank_asks_and_no_more(name, layout):
    mask, placed = MASKS[name], ringcp.make_layout(layout, 96, 3)
    for rank, held in enumerate(placed.positions):
        work = whole_work(mask, placed, rank)
        asked = spans(mask)[:, :, held]
        length = (asked[..., 1] - asked[..., 0]).clamp(min=0)
        assert torch.equal((work.spans[..., 1] - work.spans[..., 0]).clamp(min=0).sum(-1), length.sum(-1))
        seen = {key for start, end in asked[length > 0].tolist() for key in range(start, end)}
        assert work.keys == len(seen) and int(work.spans.max()) <= work.keys


class Spelled(Banded):
    """Bands by plain operations, as segments of unequal length, to see what pieces hand to a kernel."""

    name = "spelled"

    def __init__(self):
        self.calls = []

    def ragged(self, q, k, v, call, scale):
        self.calls.append((call, len(q), len(k)))
        out, lse = torch.zeros_like(q), torch.zeros(q.shape[1], len(q), dtype=q.dtype)
        return out, lse

    def ragged_backward(self, dout, q, k, v, out, lse, call, scale):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)

    def dense(self, q, k, v, call, scale):
        out, lse = self.ragged(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), call, scale)
        return out.view(q.shape), lse.unflatten(1, q.shape[:2]).transpose(0, 1)

    def dense_backward(self, dout, q, k, v, out, lse, call, scale):
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)


@pytest.mark.parametrize("name", MASKS)
def test_a_call_covers_its_piece_so_that_nothing_is_gathered_or_merged(name):
    placed = ringcp.make_layout("zigzag", 96, 2)
    work, kernel = whole_work(MASKS[name], placed, 1), Spelled()
    alone.alone(kernel, work, 0.25, *numbers(48))()()
    assert len(kernel.calls) == sum(map(len, work.calls)) > 0
    for call, queries, keys in kernel.calls:
        assert (call.queries, call.keys) == (slice(0, queries), slice(0, keys))
        assert queries == int(call.starts[0][-1]) and keys == int(call.starts[1][-1])


def test_a_piece_answers_as_its_kernel_does():
    work, kernel = whole_work(MASKS["window"], ringcp.make_layout("contiguous", 96, 2), 1), Eager()
    q, k, v, dout = numbers(48)
    keys = torch.randn(1, 2, work.keys, 16, dtype=torch.float64)
    piece = alone.Piece(work, q, keys, keys, dout)
    out, lse = piece.forward(kernel, 0.25)
    into = Merged(48, 4, 16, torch.float64, torch.float64, q.device)
    kernel.forward(q, keys, keys, work, 0.25, into)
    assert torch.equal(out, heads_first(into.result()[0], 1)) and torch.equal(lse[0], into.result()[1])
    assert [tuple(x.shape) for x in piece.backward(kernel, 0.25, out, lse)] == [
        tuple(tokens_first(x)[0].shape) for x in (q, keys, keys)]


def test_silence_gives_buffers_of_the_right_form_and_counts_nothing():
    silent = alone.Silent(0, 2)
    item = Receive(1, (3, 2), torch.bfloat16, torch.device("cpu"))
    (one,) = silent.start([Send(1, torch.ones(4))], [item])()
    (other,) = silent.start([], [item], GRADS)()
    assert (tuple(one.shape), one.dtype) == ((3, 2), torch.bfloat16) and other is not one
    assert silent.traffic.bytes == 0 and silent.start([], [item])()[0] is one


def test_plain_operations_are_a_candidate_only_where_nothing_else_runs():
    assert [kernel.name for kernel in alone.candidates(Demand("cpu", torch.float32, 32, 32))] == ["torch-cpu"]


def test_an_empty_rank_has_nothing_to_run():
    mask = ringcp.Mask(tokens=8, documents=torch.tensor([[1] * 4 + [0] * 4]))
    work = whole_work(mask, ringcp.make_layout("contiguous", 8, 2), 1)
    assert isinstance(work, Work) and work.keys == 0
    alone.alone(Spelled(), work, 0.25, *numbers(4))()()
