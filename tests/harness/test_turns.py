"""Implementations that are asked together take turns lap by lap, are each verified, and lose nothing to one another."""

import pytest
import torch

from harness import limits, run, trials
from harness.adapters.dense import Dense
from harness.clock import Timing
from harness.pool import Pool
from harness.ranks import run_threads
from harness.turns import alone, alternate
from reports import record
from tests.harness.samples import causal

TIMED = Timing(warmup=1, iters=2)


def pausing(name, pauses, told):
    for number in range(pauses):
        told.append(f"{name}{number}")
        yield
    return name.upper()


def test_turns_alternate_until_each_has_ended():
    told, begun = [], []
    made = {"a": pausing("a", 3, told), "b": pausing("b", 1, told), "c": pausing("c", 0, told)}
    assert alternate(made, begun.append) == {"a": "A", "b": "B", "c": "C"}
    assert told == ["a0", "b0", "a1", "a2"] and begun == ["a", "b", "c", "a", "b", "a", "a"]
    assert alone(pausing("d", 4, told)) == "D"


class Counted(Dense):
    """Notes who runs, rank 0's steps only."""

    log: list = []

    def __init__(self, name):
        self.name = name

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def noted(q, k, v):
            if group.rank == 0:
                self.log.append((self.name, q.detach().clone()))
            return step(q, k, v)

        return noted


@pytest.mark.parametrize("kind", ["dense", "probes"])
def test_laps_alternate_on_the_same_numbers_and_each_is_verified_after(kind):
    Counted.log, case = [], causal(2)
    made = {name: Counted(name) for name in ("one", "two")}
    outcome = run_threads(2, lambda ranks: trials.run_turns(kind, case, made, ranks, TIMED), 60)
    assert not outcome.raised and outcome.results[1] == [None, None]
    records = outcome.results[0]
    assert [found["verdict"] for found in records] == ["PASS", "PASS"]
    assert [found["measurement"]["beside"] for found in records] == [["two"], ["one"]]
    assert all(len(found["measurement"]["step_s"]) == 2 for found in records)
    laps = Counted.log[-8:-2]
    assert [name for name, _ in laps] == ["one", "two"] * 3
    for (_, numbers), (_, others) in zip(laps[::2], laps[1::2], strict=True):
        assert torch.equal(numbers, others)
    last = Counted.log[-2:]
    assert [name for name, _ in last] == ["one", "two"] and torch.equal(last[0][1], last[1][1])


class Shy(Dense):
    name = "shy"

    def refuses(self, case, setting):
        return "nothing of the kind"


class LateError(Dense):
    """Wrong from its fourth call on."""

    def load(self, case, group, batch):
        step, calls = super().load(case, group, batch), []

        def late(q, k, v):
            calls.append(None)
            out, lse = step(q, k, v)
            return (out * 1.01 if len(calls) > 3 else out), lse

        return late


def test_a_refusal_or_a_failure_of_one_leaves_the_other_timed():
    made = {"shy": Shy(), "dense": Dense(), "late": LateError()}
    outcome = run_threads(1, lambda ranks: trials.run_turns("dense", causal(1), made, ranks, Timing(1, 3)), 60)
    assert [found["verdict"] for found in outcome.results[0]] == ["SKIP", "PASS", "FAIL"]
    assert "after timing" in outcome.results[0][2]["diagnosis"]["headline"]


def test_only_several_timed_implementations_alternate():
    case, specs = causal(2), ["ring", "dense"]
    assert trials.alternates("dense", case, TIMED, specs) and trials.alternates("probes", case, TIMED, specs)
    assert not trials.alternates("dense", case, TIMED, ["ring"])
    assert not trials.alternates("dense", case, Timing(iters=0), specs)
    assert not trials.alternates("relations", case, TIMED, specs)


def test_a_rank_lost_in_turns_is_replaced_and_who_lost_it_takes_no_more(tmp_path):
    path, broken = tmp_path / "r.jsonl", "tests.harness.losses:Raising"
    code = run.main(["--cases", "packed/even-zigzag-w2-fp64,packed/even-zigzag-w2-fp32", "--ranks", "2", "--iters", "2",
                     "--json", str(path), "--impl", f"ring,{broken},dense", "--timeout", "20"])
    found = record.read(path).trials
    assert code == 3 and [one["verdict"] for one in found] == ["PASS", "ERROR", "PASS"] * 2
    assert "no kernel for this shape" in found[1]["reason"]
    beside = [one["measurement"].get("beside") for one in found if one["measurement"]]
    assert beside == [None, None, ["dense"], ["ring"]]


def test_traffic_of_one_is_not_counted_for_the_other(pool: Pool):
    one, other = pool.take_turns(causal(), ["ring", "dense"], TIMED, 60, "dense")
    assert one["verdict"] == other["verdict"] == "PASS"
    alone_one, alone_other = (pool.run(causal(), spec, TIMED) for spec in ("ring", "dense"))
    assert (one["traffic"], other["traffic"]) == (alone_one["traffic"], alone_other["traffic"])
    assert other["measurement"]["bytes_sent"] == alone_other["measurement"]["bytes_sent"]


def timed(layout, area=(8, 8), bound=None):
    return {"implementation": {"layout": layout}, "work": {"area_by_rank": list(area), "area_by_hop": []},
            "measurement": {"bound_step_s": bound, "bound_kernel": bound and "fast", "bound_forward_s": bound}}


def test_a_bound_is_shared_by_those_who_hold_the_same_tokens():
    own, alike = timed("zigzag", bound=[1.0]), timed("zigzag")
    apart, uneven = timed("contiguous"), timed("zigzag", (7, 9))
    limits.shared([own, alike, apart, uneven, {"measurement": None}])
    assert alike["measurement"] == own["measurement"]
    assert apart["measurement"]["bound_step_s"] is None is uneven["measurement"]["bound_step_s"]
