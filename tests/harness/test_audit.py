"""Bytes: counted for every implementation, never absent where keys are needed, exact at the strict level."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import catalogue
from cases.case import LAYOUTS
from cases.work import standard
from harness import audit
from harness.adapters.ring import Ring
from harness.ranks import run_threads
from harness.trial import UNTIMED, run_trial
from ringcp.layout import make_layout
from tests.harness.samples import causal, mixed

LOCAL = "tests.harness.losses:LocalOnly"


def case(name, dtype="fp64"):
    return catalogue.select(name, (2,), ("contiguous",), (dtype,))[0]


@pytest.mark.parametrize("dtype", ["fp64", "bf16"])
@pytest.mark.parametrize("name", ["bytes-causal", "bytes-window", "bytes-packed"])
def test_the_ring_moves_exactly_what_the_mask_needs(pool, name, dtype):
    record = pool.run(case(f"audit/{name}", dtype), "ring", UNTIMED)
    need = record["work"]["need_bytes"]
    wide = 1 if dtype == "fp64" else 2
    assert record["verdict"] == "PASS" and sum(need) > 1 << 14
    assert sum(record["traffic"]["bytes_sent"]) == (2 + wide) * sum(need) == sum(record["traffic"]["bytes_received"])
    assert max(record["traffic"]["messages"]) <= 3


def test_gathering_everything_is_legal_until_the_strict_level(pool):
    assert pool.run(case("audit/causal"), "dense", UNTIMED)["verdict"] == "PASS"
    record = pool.run(case("audit/bytes-window"), "dense", UNTIMED)
    assert record["verdict"] == "FAIL" and record["reason"].startswith("D9: rank 0 sends 2.78 times the bytes")
    assert record["traffic"]["bytes_sent"] == [786432 * 2, 786432 * 2]


def test_attention_that_stays_at_home_is_told_as_that(pool):
    record = pool.run(causal(), LOCAL, UNTIMED)
    assert record["verdict"] == "FAIL" and record["traffic"]["bytes_sent"] == [0, 0]
    assert record["reason"] == "D9: rank 1 attends 32 keys of other ranks, yet no bytes came to it in a forward"


def test_no_bytes_are_right_where_no_rank_needs_any(pool):
    record = pool.run(case("audit/own-documents"), LOCAL, UNTIMED)
    assert record["verdict"] == "PASS" and record["traffic"]["messages"] == [0, 0]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 8))
def test_the_standard_layouts_are_those_of_the_ring(tokens, world):
    """Two definitions that know nothing of each other."""
    found = standard(tokens, world)
    for name in LAYOUTS:
        parts = make_layout(name, tokens, world).positions
        assert (name in found) == all(map(len, parts))
        assert name not in found or all(map(torch.equal, found[name], parts))


@pytest.mark.parametrize("world, dtype", [(2, "fp64"), (3, "bf16"), (8, "fp32")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_record_tells_the_work_of_every_standard_layout(world, dtype, layout):
    asked = mixed(world, dtype, layout)
    outcome = run_threads(world, lambda ranks: run_trial(asked, Ring(), ranks, UNTIMED), 90)
    work = outcome.results[0]["work"]
    assert set(work["layouts"]) == set(LAYOUTS)
    assert work["layouts"][layout] == {name: work[name] for name in ("area_by_rank", "area_by_hop", "need_bytes")}
    assert {sum(one["area_by_rank"]) for one in work["layouts"].values()} == {work["area"]}
    assert len({str(one) for one in work["layouts"].values()}) == 3


def test_what_says_nothing_or_takes_long_is_left_out(monkeypatch):
    def layouts(asked):
        parts = [part.expand(1, -1) for part in make_layout("contiguous", asked.shape.tokens, asked.world).positions]
        return audit.work(asked, asked.mask, parts)["layouts"]

    assert layouts(causal(1)) is None and set(layouts(causal(4, tokens=5))) == {"zigzag", "striped"}
    audit._work.cache_clear()
    monkeypatch.setattr(audit, "LARGEST_COMPARED", 40)
    assert layouts(causal(2, tokens=42)) is None and layouts(causal(2, tokens=40))
