"""Bytes: counted for every implementation, never absent where keys are needed, exact at the strict level."""

import pytest

from cases import catalogue
from harness.trial import UNTIMED
from tests.harness.samples import causal

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
