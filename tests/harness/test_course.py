"""Courses: honest rings pass every one, rings with a memory or a habit fail the one that shows it."""

import pytest
import torch

from cases import catalogue
from harness import memory
from harness.adapters.dense import Dense
from harness.adapters.ring import Ring
from harness.arena import Arena
from tests.harness import rings
from tests.harness.test_trial import trial

NAMES = [scenario.name for scenario in catalogue.scenarios()
         if scenario.group in ("state", "poison", "schedule") and "late" not in scenario.name]


def case(name, world=2, dtype="fp64"):
    return catalogue.select(name, (world,), dtypes=(dtype,))[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("made", [Dense, Ring])
def test_honest_rings_pass(name, made):
    record = trial(case(name), made())
    assert record["verdict"] == "PASS", record["reason"]


@pytest.mark.parametrize(("made", "name", "words"), [
    (rings.CachedByShape, "state/freed", "D3: batch B, step 2: B3: out"),
    (rings.CachedByAddress, "state/refilled-in-flight", "D3: batch B, step 2: "),
    (rings.CachedByPadding, "state/only-documents", "D3: batch B, step 2: "),
    (rings.ReadsNewest, "state/checkpoint", "D4: batch A, checkpoint: B3: dq"),
    (rings.ReadsNewest, "state/back-to-the-first", "D3: batch A, step 2: B3: out"),
    (rings.OneBuffer, "state/two-in-flight", "D3: batch A, step 1: D3: lse changed after the forward"),
    (rings.Unsteady, "schedule/repeated", "D5: repeat 2 of the same inputs gives other bits of out"),
    (rings.ReadsUnwritten, "poison/fresh-packed", "B3: out off"),
    (rings.Obedient, "refuse/dropout", "D7: causal & dropout is not refused"),
])
def test_a_habit_shows(made, name, words):
    record = trial(case(name), made())
    assert record["verdict"] == "FAIL" and record["reason"].startswith(words)
    assert record["diagnosis"]["requirement"][:2] == words[:2] or made is rings.ReadsUnwritten
    assert record["diagnosis"]["again"].endswith(f"--cases {case(name).id} --seed 7")


@pytest.mark.parametrize("made", [rings.CachedByShape, rings.ReadsNewest, rings.OneBuffer, rings.Unsteady])
def test_one_step_hides_them(made):
    assert trial(case("mixed/window-packed-padded"), made())["verdict"] == "PASS"


def test_other_bits_are_allowed_where_nobody_declares_them_equal():
    undeclared = rings.Unsteady()
    undeclared.deterministic = False
    assert trial(case("schedule/repeated"), undeclared)["verdict"] == "PASS"
    strict = trial(case("schedule/every-bit"), undeclared)
    assert strict["verdict"] == "FAIL" and "other bits of out, dq, dk, dv on rank 0" in strict["reason"]


def test_memory_that_nobody_holds_is_used_again():
    arena, like = Arena(), torch.zeros(3, 4, dtype=torch.bool)
    first, second = arena.like(like), arena.like(like)
    place, view = first.data_ptr(), first[1:]
    del first
    assert second.data_ptr() != place != arena.like(like).data_ptr() and place % 64 == 0
    del view
    third = arena.like(like)
    assert third.data_ptr() == place and third._version == 0 and third.shape == like.shape
    assert arena.like(torch.zeros(2, 0)).shape == (2, 0)


def test_inputs_of_a_step_that_is_over_are_let_go():
    seen = []

    class Places(Ring):
        def open(self, case, group):
            session = super().open(case, group)
            load = session.load

            def noted(batch):
                step = load(batch)
                return lambda q, k, v: seen.append((group.rank, q.data_ptr(), q._version)) or step(q, k, v)

            session.load = noted
            return session

    assert trial(case("state/freed"), Places())["verdict"] == "PASS"
    assert len(seen) == 6 and len(set(seen)) == 2


def test_what_must_be_refused_passes_with_its_reason():
    record = trial(case("refuse/softcap"), Ring())
    assert (record["verdict"], record["reason"]) == ("PASS", "refuses: no mask rule softcap")


def test_fresh_memory_is_poisoned_inside_and_in_the_backward():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, grad):
            return grad + torch.empty_like(grad)

    x = torch.zeros(3, requires_grad=True)
    with memory.fresh("nan"):
        made = [torch.empty(2), x.new_empty(2), torch.empty_strided((2,), (1,)), torch.empty(2, dtype=torch.bfloat16)]
        assert all(bool(one.isnan().all()) for one in made)
        assert bool(torch.zeros(2).resize_(5)[2:].isnan().all()) and not torch.zeros(5).resize_(2).any()
        assert torch.empty(1, dtype=torch.int64).item() == torch.iinfo(torch.int64).max
        assert bool(torch.zeros(2).eq(0).all())
        assert bool(torch.autograd.grad(Double.apply(x).sum(), x)[0].isnan().all())
    with memory.fresh(None):
        assert torch.empty(2).fill_(1).eq(1).all()


def test_later_sessions_are_opened_for_the_layout_of_their_own_trial():
    for layout in ("contiguous", "zigzag", "striped"):
        own = catalogue.select("state/own-sessions", (2,), (layout,), ("fp64",))[0]
        record = trial(own, Ring())
        assert record["verdict"] == "PASS", (layout, record["reason"])
