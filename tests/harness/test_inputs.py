"""Numbers of a case: shared by worlds and dtypes, sharded and put together again, really strided, really poisoned."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import inputs
from harness.problem import problem_of
from tests.harness.samples import causal, mixed


def test_worlds_share_their_numbers_and_dtypes_round_them():
    wide, other, narrow = (inputs.draw(case) for case in (causal(2), causal(3), causal(2, "bf16")))
    assert torch.equal(wide.q, other.q) and torch.equal(wide.dout, other.dout)
    assert torch.equal(wide.k.bfloat16(), narrow.k)
    assert not torch.equal(wide.q, inputs.draw(causal(2), seed=8).q)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 4), st.booleans(), st.randoms())
def test_put_undoes_take(tokens, world, by_row, random):
    orders = [random.sample(range(tokens), tokens) for _ in range(2 if by_row else 1)]
    slots = [order + [-1] * (-tokens % world) for order in orders]
    positions = torch.tensor(slots).expand(2, -1).view(2, world, -1).unbind(1)
    whole = torch.randn(2, 3, tokens, 5)
    parts = [inputs.take(whole, part, fill=7.0) for part in positions]
    assert torch.equal(inputs.put(parts, list(positions), tokens), whole)
    for part, held in zip(parts, positions, strict=True):
        assert bool((part.transpose(1, 2)[held < 0] == 7.0).all())


@pytest.mark.parametrize("strides", ["dense", "unbind", "transposed"])
def test_strides_are_present_in_the_local_tensors(strides):
    case = causal(strides=strides)
    positions = torch.arange(32)[None]
    local = inputs.shard(inputs.draw(case), positions, case)
    plain = inputs.shard(inputs.draw(case), positions, causal())
    assert torch.equal(local.k, plain.k)
    assert local.k.is_contiguous() == (strides == "dense")
    assert local.k.stride(2) == {"dense": 32, "unbind": 96, "transposed": 64}[strides]


def test_an_expanded_dout_stays_expanded():
    case = causal(dout="expanded")
    local = inputs.shard(inputs.draw(case), torch.arange(32)[None], case)
    assert local.dout.stride(2) == 0 and local.dout.shape[2] == 32


def test_poison_lies_in_padded_tokens_and_nowhere_else():
    case = replace(mixed(), inputs=replace(mixed().inputs, poison="nan"))
    problem = problem_of(case, ())
    padded = problem.rows.padded[0]
    for tensor in problem.given.tensors():
        assert bool(tensor[0, :, padded].isnan().all()) and not bool(tensor[0, :, ~padded].isnan().any())
    assert problem.truth.out.isfinite().all()


@pytest.mark.parametrize("options", [{"strides": "diagonal"}, {"dout": "none"}, {"poison": "tiny"}, {"grads": "qx"}])
def test_unknown_kinds_of_inputs_are_refused(options):
    (name, value), = options.items()
    with pytest.raises(ValueError, match=f"inputs.{name} .*{value}"):
        causal(**options)


def test_numbers_are_renewed_in_the_tensors_that_were_used():
    local = inputs.shard(inputs.draw(causal()), torch.arange(32)[None], causal())
    before = [x.clone() for x in local.tensors()]
    places = [x.data_ptr() for x in local.tensors()]
    inputs.renewed(local, torch.Generator().manual_seed(1))
    assert [x.data_ptr() for x in local.tensors()] == places
    assert not any(torch.equal(x, y) for x, y in zip(before, local.tensors(), strict=True))


def test_a_dout_of_a_sum_has_no_stride():
    local = inputs.shard(inputs.draw(causal(dout="sum")), torch.arange(32)[None], causal(dout="sum"))
    assert not any(local.dout.stride()) and bool((local.dout == 1).all()) and local.dout.shape[2] == 32


def test_unlike_strides_are_of_four_kinds():
    case = causal(strides="unlike")
    local = inputs.shard(inputs.draw(case), torch.arange(32)[None], case)
    plain = inputs.shard(inputs.draw(causal()), torch.arange(32)[None], causal())
    assert len({x[:, :2].stride() for x in local.tensors()}) == 4
    assert all(torch.equal(x, y) for x, y in zip(local.tensors(), plain.tensors(), strict=True))


def test_expanded_heads_are_one_in_memory():
    case = causal(strides="expanded-keys", dout="expanded-heads")
    local = inputs.shard(inputs.draw(case), torch.arange(32)[None], case)
    assert local.k.stride(1) == local.v.stride(1) == local.dout.stride(1) == 0 < local.q.stride(1)
    assert 0 not in (local.k.stride(2), local.dout.stride(2)) and local.k.shape[1] == case.shape.kv_heads > 1
    again = inputs.another(local, case, 3)
    inputs.renewed(again, torch.Generator().manual_seed(1))
    assert again.k.shape == local.k.shape


@pytest.mark.parametrize("options", [{}, {"dout": "expanded"}, {"strides": "transposed"}, {"dout": "expanded-heads"},
                                     {"strides": "expanded-keys"}, {"strides": "unlike"}])
def test_what_a_rank_does_to_its_part_stays_there(options):
    problem = problem_of(causal(2, **options), ())
    before = [x.clone() for x in problem.given.tensors()]
    for x in inputs.shard(problem.given, torch.arange(32)[None], problem.case).tensors():
        x.untyped_storage().fill_(7)
    assert all(torch.equal(x, kept) for x, kept in zip(problem.given.tensors(), before, strict=True))
