"""Bench cases: chosen only when they are asked for, in the layouts that fit them, and small enough to try on CPU."""

import pytest

from cases import bench, catalogue

WORLD = {"worlds": (2,)}


def test_bench_cases_are_chosen_by_their_group_alone():
    asked = {case.id for case in catalogue.select("bench", **WORLD)}
    assert {case.id for case in catalogue.select("bench/*", **WORLD)} == asked
    assert {case.name for case in catalogue.select("bench", **WORLD)} == {one.name for one in bench.CASES}
    for pattern in ("default", "all", "*-bf16", "smoke"):
        assert bench.GROUP not in {case.group for case in catalogue.select(pattern, **WORLD)}, pattern


def test_bench_cases_keep_to_their_own_layouts_and_dtype_until_somebody_chooses():
    found = catalogue.select("bench/documents-4k", **WORLD)
    assert [(case.layout, case.dtype) for case in found] == [("zigzag", "bf16"), ("contiguous", "bf16")]
    assert len(catalogue.select("bench/documents-4k", worlds=(1,))) == 1
    chosen = catalogue.select("bench/documents-4k", **WORLD, layouts=("striped",), dtypes=("fp64",))
    assert [(case.layout, case.dtype) for case in chosen] == [("striped", "fp64")]


@pytest.mark.parametrize("scenario", bench.CASES, ids=lambda scenario: scenario.name)
def test_a_bench_case_fits_its_metadata_at_any_size(scenario):
    assert scenario.shape.tokens >= 32 << 10 and scenario.inputs.strides == "transposed"
    for tokens in (scenario.shape.tokens, 2048, 256):
        (case, *_) = catalogue.select(scenario.name, **WORLD, tokens=tokens)
        assert case.rows().padded.shape == (1, tokens) and not case.rows().padded.any()


def test_real_images_are_vision_tokens_in_a_window():
    (case,) = catalogue.select("bench/images-32k", **WORLD)
    assert str(case.mask) == "causal & window(1024) & vision.overlay & documents"
    assert int((case.rows().token_types == 1).sum()) > 1000
