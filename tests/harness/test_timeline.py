"""The timeline of a step: what ranks post, when they wait, and that looking changes nothing."""

import json

import torch
import torch.distributed as dist

from harness.adapters.dense import Dense
from harness.adapters.ring import Ring
from harness.clock import Timing
from harness.implementation import Group
from harness.pool import Pool
from harness.ranks import run_threads
from harness.recorder import Posted, Recorder
from harness.timeline import FEW, MOST, hops, joined
from harness.trace import Call
from harness.trial import run_trial
from reports import fields
from tests.harness.passing import LATE
from tests.harness.samples import causal

TIMED = Timing(warmup=1, iters=2)
PASSING = "tests.harness.passing"


def timed(pool, spec, world=2, **options):
    record = pool.run(causal(world), spec, TIMED, 60.0, **options)
    assert record["verdict"] == "PASS", record["reason"]
    fields.check("trial", record)
    return record


def looked_at(line, world):
    """What holds of every timeline."""
    assert len(line["ranks"]) == world
    for rank in line["ranks"]:
        (first, start, half), (second, again, end) = rank["phases"]
        assert (first, second) == ("forward", "backward") and 0 == start < half == again < end <= line["step_s"]
        assert all(0 <= one["start"] <= one["end"] <= end for one in rank["transfers"])
        edges = [edge for wait in rank["waits"] for edge in wait[:2]]
        assert edges == sorted(edges) and all(0 <= edge <= end for edge in edges)
    assert line["step_s"] == max(rank["phases"][1][2] for rank in line["ranks"])


def test_our_ring_shows_its_hops_and_their_bytes(pool):
    record = timed(pool, "ring")
    line = record["timeline"]
    looked_at(line, 2)
    for rank, own in enumerate(line["ranks"]):
        assert {one["peer"] for one in own["transfers"]} <= {1 - rank}
        assert {one["hop"] for one in own["transfers"]} == {1} and own["waits"]
    moved = [sum(one["bytes"] for one in own["transfers"] if one["kind"] == "send") for own in line["ranks"]]
    assert moved == record["traffic"]["bytes_sent"]
    arrived = [sum(one["bytes"] for one in own["transfers"] if one["kind"] == "receive") for own in line["ranks"]]
    assert arrived == record["traffic"]["bytes_received"]


def test_the_measured_steps_are_as_many_as_before_and_move_as_much(pool):
    record = timed(pool, "ring")
    measured = record["measurement"]
    assert len(measured["step_s"]) == 2 and measured["bytes_sent"] == record["traffic"]["bytes_sent"]
    calls = [[call.phase for call in own] for own in pool.calls().values()]
    assert all(phases.count("timed") == 3 * phases.count("timeline") > 0 for phases in calls)


def test_a_collective_has_a_name_and_no_hop(pool):
    line = timed(pool, "dense")["timeline"]
    looked_at(line, 2)
    for rank in line["ranks"]:
        assert [(one["kind"], one["phase"], one["peer"], one["hop"]) for one in rank["transfers"]] == [
            ("all_gather", phase, None, None) for phase in ("forward", "forward", "backward", "backward")]
        assert rank["waits"] and all(one["end"] > one["start"] for one in rank["transfers"])


def test_a_functional_collective_is_waited_for_as_well(pool):
    for rank in timed(pool, f"{PASSING}:Functional")["timeline"]["ranks"]:
        assert [one["kind"] for one in rank["transfers"]] == ["all_gather"] * 4
        assert len(rank["waits"]) == 4


def test_who_is_late_shows_in_the_waits_of_the_others(pool):
    line = timed(pool, f"{PASSING}:Late")["timeline"]
    looked_at(line, 2)
    waited = [sum(end - start for start, end, _ in rank["waits"]) for rank in line["ranks"]]
    assert waited[0] > LATE and line["step_s"] > 4 * LATE


def test_what_nobody_waits_for_ends_with_the_step(pool):
    for rank in timed(pool, f"{PASSING}:Unwaited")["timeline"]["ranks"]:
        free = [one for one in rank["transfers"] if one["bytes"] == 12]
        assert [one["end"] for one in free] == [rank["phases"][1][2]] * 2


def test_hops_of_three_ranks_direct_and_passed_on():
    with Pool(3) as pool:
        ring = timed(pool, "ring", 3)["timeline"]
        passed = timed(pool, f"{PASSING}:Neighbours", 3)["timeline"]
    looked_at(ring, 3)
    looked_at(passed, 3)
    for rank, own in enumerate(ring["ranks"]):
        for one in own["transfers"]:
            way = one["peer"] - rank if one["kind"] == "send" else rank - one["peer"]
            assert one["hop"] == way % 3
    for own in passed["ranks"]:
        forward = [one for one in own["transfers"] if one["phase"] == "forward"]
        assert [one["hop"] for one in forward if one["kind"] == "receive"] == [1, 2, 3, 4]
        assert {one["hop"] for one in forward if one["kind"] == "send"} == {1, 2, 3, 4}


def test_threads_and_a_single_rank_have_none():
    for world in (1, 2):
        outcome = run_threads(world, lambda ranks: run_trial(causal(ranks.group.size), Ring(), ranks, TIMED), 60)
        record = outcome.results[0]
        assert record["verdict"] == "PASS" and record["timeline"] is None and record["measurement"]


def test_an_untimed_trial_has_none(pool):
    assert pool.run(causal(), "ring", Timing(iters=0), 60.0)["timeline"] is None


def test_a_step_of_very_many_calls_has_none(pool):
    assert timed(pool, f"{__name__}:Chatty")["timeline"] is None


def test_a_passing_case_of_many_calls_is_short_and_a_bench_is_told_whole(pool):
    short, whole = (pool.run(causal(), f"{__name__}:Talkative", Timing(1, 1, bound), 60.0) for bound in (False, True))
    assert short["timeline"] is None and short["verdict"] == "PASS" and short["measurement"]
    looked_at(whole["timeline"], 2)
    assert len(whole["timeline"]["ranks"][0]["transfers"]) > FEW // 2


def test_a_timeline_of_a_case_takes_a_few_kilobytes(pool):
    told = json.dumps(timed(pool, "ring")["timeline"], separators=(",", ":"))
    assert len(told) < 2048
    assert len(json.dumps(posted_line(), separators=(",", ":"))) * FEW < 6 * 1024


def posted_line():
    """A transfer as long as one of a record gets."""
    return {"start": 0.1234567, "end": 0.1234567, "kind": "receive", "peer": 3, "bytes": 12345678, "hop": 3,
            "phase": "backward"}


class Chatty(Dense):
    """Meets the other ranks more often than anybody would draw."""

    in_process = False
    calls = MOST

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def chatty(q, k, v):
            for _ in range(self.calls):
                dist.barrier(group.process_group)
            return step(q, k, v)

        return chatty


class Talkative(Chatty):
    """Meets them more often than a case of many is told."""

    calls = FEW // 2


def posted(kind, peer, waited, tag=0, phase="forward"):
    return Posted(Call(phase, kind, "0", (2, 5, 7, 9), peer, tag, 8, ""), phase, waited, 0.0)


def test_hops_follow_from_peers_inside_their_group():
    group = Group(1, 4, (2, 5, 7, 9), None)
    direct = [posted("recv", 2, 0), posted("send", 7, 0), posted("recv", 9, 1), posted("send", 9, 1)]
    assert hops(direct, group) == [1, 1, 2, 2]
    both = direct + [posted("recv", 2, 2, tag=1), posted("recv", 2, 3, phase="backward")]
    assert hops(both, group)[4:] == [1, 1]
    passed = [posted("recv", 2, 0), posted("recv", 2, 0), posted("recv", 2, 2), posted("recv", 2, 4)]
    assert hops(passed, group) == [1, 1, 2, 3]
    assert hops([posted("recv", 4, 0), posted("all_gather", -1, 0)], group) == [None, None]


def test_waits_of_one_hop_are_joined_where_nothing_is_between():
    assert joined([(0.0, 1.0, 1), (1.000001, 2.0, 1), (2.0, 3.0, 2), (4.0, 5.0, 2)]) == [
        [0.0, 2.0, 1], [2.0, 3.0, 2], [4.0, 5.0, 2]]


def test_nothing_stays_patched():
    before = dist.Work.wait, torch.ops._c10d_functional.wait_tensor
    with Recorder().hearing():
        assert dist.Work.wait is not before[0]
    assert before == (dist.Work.wait, torch.ops._c10d_functional.wait_tensor)
