"""Groups inside a larger world, on a living pool of four ranks."""

import pytest

from cases import catalogue
from harness import arguments, running
from harness.pool import Pool
from harness.runners import Pools, Threads
from harness.trial import UNTIMED

RINGS = "tests.harness.rings"


@pytest.fixture(scope="module")
def four():
    with Pool(4) as made:
        yield made


def case(name, world):
    return catalogue.select(name, (world,), dtypes=("fp64",))[0]


@pytest.mark.parametrize(("name", "world"), [("strided", 2), ("mesh", 2), ("three-with-a-gap", 3), ("last-of-four", 1),
                                             ("rotated", 4)])
@pytest.mark.parametrize("spec", ["dense", "ring"])
def test_honest_rings_pass_wherever_their_group_stands(four, name, world, spec):
    asked = case(f"topology/{name}", world)
    record = four.run(asked, spec, UNTIMED, 30)
    assert record["verdict"] == "PASS" and record["case"]["id"] == asked.id
    assert record["case"]["digest"] == asked.digest


def test_a_place_in_the_world_is_no_place_in_the_group(four):
    asked = case("topology/strided", 2)
    record = four.run(asked, f"{RINGS}:OwnByGlobalRank", UNTIMED, 30)
    assert record["verdict"] == "FAIL" and record["reason"].startswith("ranks 0,2 of 4: B")
    assert record["diagnosis"]["again"].endswith(f"--cases {asked.id} --seed 7")
    assert four.run(case("topology/halves", 2), f"{RINGS}:OwnByGlobalRank", UNTIMED, 30)["verdict"] == "PASS"


def test_a_failure_of_another_group_is_told(four):
    record = four.run(case("topology/one-and-three", 1), f"{RINGS}:OwnByGlobalRank", UNTIMED, 30)
    assert record["verdict"] == "FAIL" and record["reason"].startswith("ranks 1,2,3 of 4: ")


def test_threads_refuse_groups_inside_a_world():
    record = Threads().run(case("topology/strided", 2), "ring", UNTIMED, 10)
    assert record["verdict"] == "SKIP" and "need processes" in record["reason"]


def test_torchrun_takes_the_groups_that_fill_its_world(monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    found = running.chosen(arguments.parse(["--cases", "topology", "packed/even"]))
    assert {asked.ranks for asked in found} == {4} and {asked.world for asked in found} == {1, 2, 3, 4}
    assert {asked.world for asked in found if asked.group == "packed"} == {4}
    with pytest.raises(ValueError, match="needs 3 ranks but torchrun started 4"):
        running.chosen(arguments.parse(["--cases", "topology", "packed/even-zigzag-w3-fp64"]))


def test_a_group_larger_than_the_gpus_of_a_machine_is_not_asked(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    record = Pools("cuda").run(case("topology/strided", 2), "ring", UNTIMED, 30)
    assert (record["verdict"], record["reason"]) == ("SKIP", "not asked: it takes 4 GPUs, torch sees 1 here")
