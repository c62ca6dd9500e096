"""Courses and topologies: what is no course or topology, and what a group is asked."""

from dataclasses import replace

import pytest

from cases import catalogue
from cases.case import Scenario
from cases.course import Course
from cases.mask import Mask
from cases.topology import Topology

PLAIN = Scenario("topology/plain", "D2", Mask(), topology=Topology("0,2|1,3"))


@pytest.mark.parametrize(("steps", "words"), [
    ("forward A, backward A", "'forward A' comes before 'load A'"),
    ("load A, forward A", "the forward of A has no backward"),
    ("load A, peek A, backward A", "'backward A' has no forward"),
    ("load A, load B, forward A, backward B", "'backward B' has no forward"),
    ("load A, jump A", "'jump A' is no action"),
    ("load a", "'load a' is no action"),
])
def test_what_is_no_course_is_refused(steps, words):
    with pytest.raises(ValueError, match=words):
        Course(steps)


def test_a_course_knows_its_batches_and_recomputes():
    course = Course("load B, load A, offload A, reentrant B, backward B, backward A")
    assert course.batches == ("B", "A") and course.recomputes == ("reentrant", "offload")
    with pytest.raises(ValueError, match="unknown buffers 'old'"):
        Course(buffers="old")


@pytest.mark.parametrize("groups", ["0,2|1", "0,1|1,2", "1,2", "0;1", "0,1|"])
def test_groups_name_every_rank_once(groups):
    with pytest.raises(ValueError, match="topology"):
        Topology(groups + "|4" if groups == "0,2|1" else groups)


def test_groups_stand_inside_a_larger_world():
    assert [world for world in range(1, 9) if PLAIN.fits(world)] == [2]
    case = PLAIN.at(2, "zigzag", "fp64")
    assert (case.world, case.ranks) == (2, 4)
    first, second = case.of_group(0), case.of_group(1)
    assert first.truth_digest == case.truth_digest != second.truth_digest and first.ranks == second.ranks == 2
    with pytest.raises(ValueError, match="world 3 is not the size of the first group"):
        PLAIN.at(3, "zigzag", "fp64")


def test_circumstances_change_the_digest_but_not_the_truth():
    plain, strided = catalogue.select("state/refilled", (2,))[0], catalogue.select("state/two-in-flight", (2,))[0]
    other = replace(plain, course=strided.course)
    assert other.digest != plain.digest and other.truth_digest == plain.truth_digest


def test_chunks_are_handed_out_in_every_order():
    assert [Topology(order="rotated").chunk(rank, 3) for rank in range(3)] == [1, 2, 0]
    assert [Topology(order="reversed").chunk(rank, 3) for rank in range(3)] == [2, 1, 0]


def test_the_order_of_things_takes_fewer_dtypes_and_layouts():
    found = [case for case in catalogue.select("state/two-in-flight") if case.world == 3]
    assert len(found) == 2 and found[0].dtype == "fp64" != found[1].dtype
    assert {case.dtype for case in catalogue.select("poison/fresh-packed", (3,))} == {"fp64", "fp32", "bf16"}
    assert [case.dtype for case in catalogue.select("state/two-in-flight", (3,), dtypes=("bf16",))] == ["bf16"]
