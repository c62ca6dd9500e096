"""Keys that several segments share: their gradients are summed in turns, none of which names a token twice."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ringcp
from ringcp.calls import _rounds
from ringcp.merge import Total
from ringcp.plan import make_plan


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_turns_hold_every_slot_once_and_no_token_twice(tokens):
    tokens = torch.tensor(tokens)
    rounds = _rounds(tokens)
    assert bool(rounds) == (len(tokens.unique()) < len(tokens))
    for slots, named in rounds:
        assert torch.equal(tokens[slots], named) and len(named.unique()) == len(named)
    if rounds:
        assert torch.equal(torch.cat([slots for slots, _ in rounds]).sort().values, torch.arange(len(tokens)))


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.sampled_from([torch.float64, torch.float32]))
def test_a_sum_in_turns_is_the_sum(tokens, dtype):
    tokens = torch.tensor(tokens)
    part = torch.randn(len(tokens), 2, 3, dtype=torch.float64)
    total = Total((10, 2, 3), torch.float64, dtype, torch.device("cpu"))
    total.add(slice(2, 5), torch.ones(3, 2, 3, dtype=torch.float64))
    total.add(tokens, part, tuple(_rounds(tokens)))
    wanted = torch.zeros(10, 2, 3, dtype=torch.float64).index_add_(0, tokens, part)
    wanted[2:5] += 1
    assert total.result().dtype == dtype
    torch.testing.assert_close(total.result().double(), wanted, rtol=1e-5, atol=1e-5)


def test_windows_between_images_share_keys():
    types = torch.zeros(1, 64, dtype=torch.int64)
    types[:, 20:28] = types[:, 40:50] = 1
    mask = ringcp.Mask(tokens=64, window=16, token_types=types)
    work = make_plan(mask, ringcp.make_layout("contiguous", 64, 1), 0, "cpu").hops[0].work
    shared = [call for layer in work.calls for call in layer if call.repeated]
    assert shared and not work.simple
