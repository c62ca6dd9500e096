"""Courses and topologies: what is no course or topology, and what a group is asked."""

from dataclasses import replace

import pytest
import torch

from cases import catalogue, generate
from cases.case import Scenario
from cases.course import Course
from cases.mask import Mask
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.topology import Topology

PLAIN = Scenario("topology/plain", "D2", Mask(), topology=Topology("0,2|1,3"))


@pytest.mark.parametrize(("steps", "words"), [
    ("forward A, backward A", "'forward A' comes before 'load A'"),
    ("load A, forward A", "the forward of A has no backward"),
    ("load A, peek A, backward A", "'backward A' has no forward"),
    ("load A, load B, forward A, backward B", "'backward B' has no forward"),
    ("load A, jump A", "'jump A' is no action"),
    ("load a", "'load a' is no action"),
    ("load A, forward A first, backward A", "'forward A first' is no action"),
    ("load A, load B, forward B, backward A first, backward B", "'backward A' has no forward"),
])
def test_what_is_no_course_is_refused(steps, words):
    with pytest.raises(ValueError, match=words):
        Course(steps)


def test_a_course_knows_its_batches_and_recomputes():
    course = Course("load B, load A, offload A, reentrant B, backward B, backward A")
    assert course.batches == ("B", "A") and course.recomputes == ("reentrant", "offload")
    with pytest.raises(ValueError, match="unknown buffers 'old'"):
        Course(buffers="old")


def test_a_backward_may_be_that_of_the_oldest_forward():
    course = Course("load A, forward A, forward A, backward A first, backward A")
    assert course.actions[-2:] == (("backward first", "A"), ("backward", "A"))
    case = replace(catalogue.select("state/layers", (2,))[0], course=course)
    assert generate.from_replay(generate.replay(case)) == case


def test_batch_c_differs_where_caches_do_not_look():
    case, = catalogue.select("state/only-documents", (2,), dtypes=("fp64",))
    rows = [case.batch(letter).rows() for letter in "AC"]
    edges = [row.documents[:, 1:] != row.documents[:, :-1] for row in rows]
    assert torch.equal(*edges) and not torch.equal(rows[0].documents, rows[1].documents)
    case, = catalogue.select("state/only-padding", (2,), dtypes=("fp64",))
    rows = [case.batch(letter).rows() for letter in "AC"]
    assert (rows[0].padding != rows[1].padding).nonzero()[:, 1].tolist() == [0, 0]
    assert torch.equal(rows[0].documents, rows[1].documents)


@pytest.mark.parametrize(("ids", "joined"), [
    (((1, 3), (2, 4), (3, 1)), ((1, 3), (2, 4), (1, 1))), (((1, 3), (2, 4), (1, 1)), ((1, 3), (2, 4), (3, 1))),
    (((0, 3), (2, 4), (0, 1)), ((0, 3), (3, 4), (0, 1)))])
def test_edges_stay_where_other_runs_are_joined(ids, joined):
    assert Documents((ids,)).another(8, 2).ids == (joined,)


@pytest.mark.parametrize("ids", [((1, 8),), ((1, 4), (2, 4))])
def test_documents_without_a_run_between_are_rolled(ids):
    assert Documents((ids,)).another(8, 2).ids != (ids,) or len(ids) == 1


def test_the_first_token_turns():
    assert Padding((((2, 3),), ((0, 1),), ((0, 4),))).another(8, 2).spans == (((0, 1), (2, 3)), (), ((1, 4),))


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
