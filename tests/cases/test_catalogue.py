"""The catalogue: honest requirements, full coverage, and selection by pattern."""

from dataclasses import replace

import pytest
import torch

from cases import catalogue, coverage, generate, smoke, work
from cases.case import DTYPES, LAYOUTS, MORE_LAYOUTS, WORLDS, Place, Scenario
from cases.course import FORWARDS, WITHOUT_GRAD
from cases.mask import Mask
from cases.rules.regions import Regions
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.topology import Topology

SCENARIOS = catalogue.scenarios()
DEFAULT = catalogue.select("default")
EACH = [max((case for case in DEFAULT if case.name == name), key=lambda case: case.world)
        for name in dict.fromkeys(case.name for case in DEFAULT)]
BY_RULE = {"A1": "causal", "A2": "window", "A3": "documents", "A4": "padding", "A5": "vision", "A6": "regions"}


def pairs(mask, case):
    rows = case.rows()
    i = torch.arange(rows.tokens)
    return mask.allowed(rows, i, i).expand(rows.batch, rows.groups, -1, -1)


def broken(case, requirement):
    """The allowed pairs of the case when an implementation ignores, or slips in, the rule of a requirement."""
    name = BY_RULE[requirement]
    rest = tuple(rule for rule in case.mask.rules if rule.name != name)
    if requirement in ("A3", "A4"):
        return _without_ids_or_pads(case, requirement)
    own = next(rule for rule in case.mask.rules if rule.name == name)
    if isinstance(own, Window) and own.size >= case.shape.tokens:
        return pairs(Mask((*rest, replace(own, size=case.shape.tokens // 2))), case)
    if isinstance(own, Vision) and own.variant == "none":
        return pairs(Mask((*rest, replace(own, variant="overlay"))), case)
    return pairs(Mask(rest), case)


def _without_ids_or_pads(case, requirement):
    rows = case.rows()
    i = torch.arange(rows.tokens)
    if requirement == "A4":
        seen = replace(rows, padding=None, documents=None if rows.documents is None else rows.documents.clamp(min=1))
        return case.mask.allowed(seen, i, i).expand(rows.batch, rows.groups, -1, -1)
    mask = Mask(tuple(rule for rule in case.mask.rules if rule.name != "documents"))
    return mask.allowed(rows, i, i).expand(rows.batch, rows.groups, -1, -1)


@pytest.mark.parametrize("case", EACH, ids=lambda case: case.name)
def test_a_case_names_only_rules_that_show_in_it(case):
    true = pairs(case.mask, case)
    for requirement in set(case.requirements) & set(BY_RULE):
        assert not torch.equal(true, broken(case, requirement)), f"{requirement} does not show in {case.name}"
    shape, inputs, asked = case.shape, case.inputs, set(case.requirements)
    assert ("B3" in asked) == bool(work.dead_rows(case.mask, case.rows()).any())
    poisoned = inputs.poison or inputs.strides == "tail" or case.course.memory
    assert ("B5" in asked) == bool(poisoned)
    assert ("B8" in asked) == (inputs.grads != "qkv" or any(verb in WITHOUT_GRAD for verb, _ in case.course.actions))
    assert ("D1" in asked) != case.refused == ("D7" in asked)
    assert ("D2" in asked) == (case.topology != Topology())
    calls = [verb for verb, _ in case.course.actions if verb in FORWARDS]
    assert ("D3" in asked) == (len(calls) > 1 or len(case.course.batches) > 1)
    assert ("D4" in asked) == bool(case.course.recomputes)
    assert ("D5" in asked) == (case.course.repeats > 1)
    assert "D6" not in asked or 0 in area_by_rank(case), "every rank has something to do"
    assert "D8" not in asked or "D6" in asked or case.course.late
    assert "D9" not in asked or case.name == "audit/own-documents" or max(need(case)) > 0
    assert "A7" not in asked or len(case.mask.rules) > 2
    assert "A8" not in asked or shape.heads > shape.kv_heads or shape.v_dim != shape.head_dim
    assert "A9" not in asked or case.scale is not None or shape.head_dim not in (32, 64, 128)
    assert "B7" not in asked or inputs.strides != "dense" or inputs.dout != "random"
    if inputs.poison:
        assert work.dead_keys(case.mask, case.rows()).all(1).any(), "poison has nowhere to stand"


VARIANTS = {"inclusive", "symmetric", "compacted", "runs", "bounded", "overlay"}
PINNED = sorted({(case.name, rule.name) for case in DEFAULT for rule in case.mask.rules if rule.variant})


@pytest.mark.parametrize(("name", "kind"), PINNED, ids=[" ".join(pin) for pin in PINNED])
def test_a_pinned_variant_shows_in_its_mask(name, kind):
    """No other reading of the rule gives the same masks at every world."""
    cases = {case.world: case for case in DEFAULT if case.name == name}.values()
    rules = {rule.name: rule for case in cases for rule in case.mask.rules}
    own = rules[kind]
    for other in (None, *own.variants):
        if not same_reading(own.variant, other, "causal" in rules):
            assert any(not torch.equal(pairs(case.mask, case), pairs(read_as(case.mask, kind, other), case))
                       for case in cases), f"{own} of {name} is as good as {kind}.{other}"


def same_reading(one, other, causal):
    """Nothing said about images is overlay; without A1, a group inside the window adds nothing to it."""
    return {one, other} in ({one}, {None, "overlay"}) or not causal and {one, other} == {"bounded", "none"}


def read_as(mask, kind, variant):
    return Mask(tuple(replace(rule, variant=variant) if rule.name == kind else rule for rule in mask.rules))


@pytest.mark.parametrize("case", EACH, ids=lambda case: case.name)
def test_a_variant_in_a_name_is_pinned(case):
    words = set(case.name.split("/")[1].split("-"))
    assert words & VARIANTS <= {rule.variant for rule in case.mask.rules}


def area_by_rank(case):
    layout = list(torch.arange(case.shape.tokens).split(Place(case.world, case.shape.tokens).shard))
    layout += [torch.arange(0)] * (case.world - len(layout))
    return work.work(case.mask, case.rows(), case.shape, layout).by_rank


def need(case):
    layout = list(torch.arange(case.shape.tokens).tensor_split(max(case.world, 2)))
    return work.work(case.mask, case.rows(), case.shape, layout).need


FIELDS = {"documents": ("documents",), "padding": ("padding",), "vision": ("token_types",),
          "regions": ("token_regions", "selected"), "window": ("documents", "padding")}


def as_first_row(case, kind):
    """The allowed pairs where a rule reads the first row's metadata for all rows."""
    rows = case.rows()
    i, first = torch.arange(rows.tokens), {name: getattr(rows, name) for name in FIELDS[kind]}
    first = {name: x if x is None else x[:1].expand_as(x) for name, x in first.items()}
    return case.mask.allowed(replace(rows, **first), i, i).expand(rows.batch, rows.groups, -1, -1)


def test_the_first_row_stands_for_no_other_in_any_kind_of_mask():
    found = set()
    for case in EACH:
        names = [rule.name for rule in case.mask.rules]
        for rule in case.mask.rules if case.shape.batch > 1 else ():
            if rule.name in FIELDS and not torch.equal(pairs(case.mask, case), as_first_row(case, rule.name)):
                kind = f"{rule.name}.{rule.variant}" if rule.variant else rule.name
                found |= {("causal" if "causal" in names else "full", kind)} | {(kind, other) for other in names}
    assert found >= {("causal", kind) for kind in ("documents", "padding", "vision", "regions", "documents.runs",
                                                   "vision.bounded")}
    assert found >= {("full", kind) for kind in ("documents", "padding", "window.compacted")}
    assert found >= {("documents", "regions"), ("padding", "regions"), ("documents", "padding"), ("vision", "window")}


def test_every_requirement_has_a_case_at_every_world():
    table = coverage.by_requirement(DEFAULT)
    assert set(table) >= set(coverage.REQUIRED)
    for requirement in coverage.REQUIRED:
        assert set(table[requirement]) == set(WORLDS) and all(table[requirement].values()), requirement


def test_a_requirement_of_a_strangers_rule_has_a_line_of_its_own():
    own = Scenario("stranger/one", "Y1", Mask()).at(2, "zigzag", "fp64")
    table = coverage.by_requirement([*DEFAULT, own])
    assert set(table) >= {*coverage.REQUIRED, "Y1"} and table["Y1"] == {2: ["stranger/one"]}


BATCHES = [case for case in EACH if len(case.course.batches) > 1]


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case.name)
def test_a_later_batch_has_other_metadata_in_the_same_shapes(case):
    later, renewed = case.batch("B"), case.course.renewed
    changed = {rule.name for rule, other in zip(case.mask.rules, later.mask.rules, strict=True) if rule != other}
    assert changed == set(renewed or [name for name in RENEWABLE if name in [rule.name for rule in case.mask.rules]])
    one, other = case.rows(), later.rows()
    assert not torch.equal(pairs(case.mask, case), pairs(later.mask, later))
    for name in ("documents", "padding", "token_types", "token_regions", "selected"):
        assert getattr(one, name) is None or getattr(one, name).shape == getattr(other, name).shape
    assert later.truth_digest != case.truth_digest and case.batch("A") is case


RENEWABLE = ("documents", "padding", "vision", "regions")


def test_no_pair_is_left_out():
    own = [case for case in DEFAULT if {rule.requirement for rule in case.mask.rules} <= {*coverage.REQUIRED}]
    assert coverage.missing(own) == []
    table = coverage.pairs(DEFAULT)
    assert set(table) >= {("rule", "world"), ("layout", "dtype"), ("heads", "head_dim"), ("rule", "inputs"),
                          ("rule", "variant")}
    named = {"window.inclusive", "window.symmetric", "window.compacted", "documents.runs", "vision.none"}
    assert {variant for _, variant in table["rule", "variant"]} >= named
    assert {value for _, value in table["rule", "inputs"]} >= {"scale", "value_dim", "transposed", "unbind", "huge",
                                                               "grads", "batch"}
    assert table["rule", "layout"]["regions", "striped"] > 0
    assert coverage.missing(DEFAULT[:3] + DEFAULT[-3:]) != []


def test_what_the_catalogue_must_hold():
    groups = {case.group for case in DEFAULT}
    assert groups >= {"causal", "packed", "padding", "sliding", "vision", "csa", "mixed", "edges", "real", "state",
                      "poison", "schedule", "topology", "audit", "refuse"}
    assert {1, 8, 24, 64, 80, 128, 136, 256} <= {case.shape.head_dim for case in DEFAULT}
    assert {"1:1", "3:1", "4:1", "MQA"} <= {coverage.head_ratio(case.shape) for case in DEFAULT}
    assert {"q", "k", "v", "qk", "qv", "kv", ""} <= {case.inputs.grads for case in DEFAULT}
    assert max(case.shape.batch for case in DEFAULT) > 2 and max(case.shape.tokens for case in DEFAULT) > 1024
    assert {0.0} < {case.scale for case in DEFAULT if case.scale is not None} and min(
        case.scale for case in DEFAULT if case.scale is not None) < 0
    pinned = {str(rule).split("(")[0] for case in DEFAULT for rule in case.mask.rules if rule.variant}
    assert pinned >= {"window.inclusive", "window.symmetric", "window.compacted", "documents.runs",
                      "vision.overlay", "vision.bounded", "vision.none"}


@pytest.mark.parametrize("world", WORLDS)
def test_windows_stand_on_and_around_the_shard(world):
    sizes = {case.mask.rules[-1].size for case in DEFAULT if case.group == "sliding" and case.world == world
             and case.shape.tokens == 256}
    shard = Place(world, 256).shard
    assert {1, shard - 1, shard, shard + 1, shard + 2} <= sizes and max(sizes) >= 256


@pytest.mark.parametrize("world", [2, 3, 4])
def test_images_straddle_shards(world):
    shard = Place(world, 256).shard
    straddling = [case for case in DEFAULT if case.world == world and case.name.startswith("vision/straddle")]
    for case in straddling:
        types = case.rows().token_types[0]
        assert types[shard - 1] == types[shard] == 1, case.id
    assert straddling


def test_order_and_ids_are_stable():
    assert [case.digest for case in DEFAULT] == [case.digest for case in catalogue.select("default")]
    assert len({case.id for case in DEFAULT}) == len(DEFAULT)
    part = {case.id for case in catalogue.select("vision/window")}
    assert part == {case.id for case in DEFAULT if case.name == "vision/window"}


def test_default_cases_are_small():
    sizes = {case.name: case.shape.tokens * case.shape.batch for case in EACH}
    long = {name for name, size in sizes.items() if size > 768}
    assert long <= {"csa/long-rows", "sliding/long-rows", "padding/dead-blocks"} and max(sizes.values()) <= 1500
    assert 170 <= len(EACH) <= 320


def test_each_world_takes_all_layouts_in_fp64_and_one_in_each_other_dtype():
    at_three = [case for case in DEFAULT if case.name == "packed/straddle" and case.world == 3]
    assert [case.layout for case in at_three if case.dtype == "fp64"] == list(LAYOUTS)
    assert [case.dtype for case in at_three if case.dtype != "fp64"] == ["fp32", "bf16"]


@pytest.mark.parametrize(("pattern", "ids"), [
    ("packed/straddle-zigzag-w3-bf16", {"packed/straddle-zigzag-w3-bf16"}),
    ("packed/straddle-*-w3-fp16", {f"packed/straddle-{layout}-w3-fp16" for layout in LAYOUTS}),
    ("padding/first-rank-striped-w2-fp64, padding/left-zigzag-w1-fp64",
     {"padding/first-rank-striped-w2-fp64", "padding/left-zigzag-w1-fp64"}),
])
def test_ids_are_found_even_outside_the_expansion(pattern, ids):
    assert {case.id for case in catalogue.select(pattern)} == ids


def test_groups_names_and_wildcards():
    assert {case.group for case in catalogue.select("packed,csa")} == {"packed", "csa"}
    assert {case.name for case in catalogue.select("vision/window")} == {"vision/window"}
    found = catalogue.select("vision/*-bf16")
    assert {case.dtype for case in found} == {"bf16"} and {case.group for case in found} == {"vision"}
    assert len(catalogue.select(["packed/even", "packed"])) == len(catalogue.select("packed"))


def test_tiers():
    real = {case.name: case.shape.tokens for case in catalogue.select("real/*")}
    assert real["real/code-8k"] == 8192 and "real/code-32k" not in real
    assert {case.shape.tokens for case in catalogue.select("real/code-32k")} == {32768}
    assert catalogue.select("real/code-32k-zigzag-w2-bf16")[0].shape.tokens == 32768


def test_filters():
    half = catalogue.select("packed/even", worlds=(2,), dtypes=("fp16",))
    assert [(case.world, case.dtype) for case in half] == [(2, "fp16")]
    assert [case.layout for case in catalogue.select("packed/even", (4,), ("striped",), ("bf16",))] == ["striped"]
    assert {case.seed for case in catalogue.select("packed/even", seed=11)} == {11}


def test_the_balanced_layout_is_taken_only_when_it_is_asked_for():
    assert not any(case.layout in MORE_LAYOUTS for case in catalogue.select("packed,real/*"))
    asked = catalogue.select("packed/even", (3,), ("balanced",))
    assert [case.id for case in asked] == [f"packed/even-balanced-w3-{dtype}" for dtype in DTYPES]
    assert catalogue.select("packed/even-balanced-w2-fp16")[0].layout == "balanced"


def test_tokens_stretch_made_cases_and_cut_measured_ones():
    stretched = catalogue.select("packed/straddle", worlds=(2,), tokens=1024)[0]
    assert [length for _, length in stretched.mask.rules[1].ids[0]] == [148, 404, 472]
    assert stretched.note == "resized from 256 to 1024 tokens"
    cut = catalogue.select("real/code-8k", worlds=(2,), tokens=300)[0]
    assert [length for _, length in cut.mask.rules[1].ids[0]] == [153, 147]
    assert cut.note == "leading 300 of 8192 tokens"
    whole = catalogue.select("real/code-8k", worlds=(2,), tokens=9000)[0]
    assert whole.shape.tokens == 8192
    assert whole.note == "all of its 8192 tokens, 9000 were asked for"


@pytest.mark.parametrize("tokens", [5, 64, 1000])
def test_every_case_can_be_resized(tokens):
    made = [one for one in SCENARIOS if not one.measured]
    for case in catalogue.expand(made, worlds=(3,), layouts=("zigzag",), dtypes=("fp64",), tokens=tokens):
        assert case.rows().padded.shape == (case.shape.batch, tokens), case.id


@pytest.mark.parametrize(("call", "message"), [
    (lambda: catalogue.select("packed/stradle"), "no case matches 'packed/stradle': nearest are packed/straddle"),
    (lambda: catalogue.select("packed,%%%"), "no case matches '%%%': groups are audit, bench, causal, crossed, csa"),
    (lambda: catalogue.select("padding/first-rank", worlds=(1,)), "'padding/first-rank' at world 1, only at 2, 3"),
    (lambda: catalogue.select("packed/even-zigzag-w3-fp64", worlds=(2,)), "fp64' at world 2, only at 3"),
    (lambda: catalogue.select("packed", dtypes=("fp8",)), "unknown dtype 'fp8': known are fp64"),
    (lambda: catalogue.select("packed", layouts=("ring",)), "unknown layout 'ring': known are contiguous"),
    (lambda: catalogue.select(""), "no case pattern is given"),
])
def test_a_choice_of_nothing_is_an_error(call, message):
    with pytest.raises(ValueError, match="^[^\n]*$") as raised:
        call()
    assert message in str(raised.value)


def test_regions_are_tested_canonical_and_ragged():
    found = {rule.canonical for case in DEFAULT for rule in case.mask.rules if isinstance(rule, Regions)}
    assert found == {True, False}


@pytest.mark.parametrize("case", EACH, ids=lambda case: case.name)
def test_a_printed_case_is_the_case(case):
    line = generate.replay(case)
    again = generate.from_replay(line)
    assert again == case and again.digest == case.digest and "'" not in line and "\n" not in line
    assert catalogue.select(line) == [case]


def test_the_smoke_tier_is_few_cases_on_two_to_four_ranks_and_every_rule():
    cases = catalogue.select("smoke")
    assert [case.id for case in cases] == list(smoke.IDS) and len(set(smoke.IDS)) == len(smoke.IDS) <= 60
    assert {case.world for case in cases} == {2, 3, 4} and {case.dtype for case in cases} == {"fp64", "fp32", "bf16"}
    assert {requirement for case in cases for requirement in case.requirements} >= {f"A{n}" for n in range(1, 10)}
    two = catalogue.select("smoke", worlds=(2,), dtypes=("fp64",))
    assert 0 < len(two) < len(cases) and {(case.world, case.dtype) for case in two} == {(2, "fp64")}


@pytest.mark.parametrize("world", [4, 8])
def test_many_hops_hold_one_query_a_rank_that_sees_all_in_every_layout(world):
    case = catalogue.select("edges/many-hops", (world,), ("contiguous",), ("bf16",))[0]
    seen = pairs(case.mask, case)[0, 0].sum(-1)
    seers = (seen == case.shape.tokens).nonzero()[:, 0].tolist()
    assert len(seers) == world and int(seen.sum()) == world * 256 + 256 - world
    shard, chunk = -(-256 // world), 256 / (2 * world)
    assert {query // shard for query in seers} == {query % world for query in seers} == set(range(world))
    assert {min(part, 2 * world - 1 - part) for part in (int(query / chunk) for query in seers)} == set(range(world))
