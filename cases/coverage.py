"""What a list of cases covers: SPEC ids, and pairs of values that meet in a case."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product

from cases.case import DTYPES, Case, Shape

HEAD_DIMS = (16, 24, 32, 64, 80, 128, 256)
EVERY_TWO = ("rule", "world", "layout", "dtype", "heads", "head_dim")
CROSSED = (*combinations(EVERY_TWO, 2), ("rule", "variant"), ("rule", "inputs"))
NEVER = {("causal", "window.symmetric")}
REQUIRED = tuple(f"{part}{n}" for part, last in (("A", 9), ("B", 8), ("D", 9)) for n in range(1, last + 1))


def by_requirement(cases: Iterable[Case]) -> dict[str, dict[int, list[str]]]:
    """SPEC id -> world -> names of the scenarios that test it there; every id of A, B and D has an entry."""
    table: dict[str, dict[int, list[str]]] = {requirement: {} for requirement in REQUIRED}
    for case in cases:
        for requirement in case.requirements:
            names = table.setdefault(requirement, {}).setdefault(case.world, [])
            if case.name not in names:
                names.append(case.name)
    return {requirement: dict(sorted(worlds.items())) for requirement, worlds in sorted(table.items())}


def head_ratio(shape: Shape) -> str:
    """"1:1" (MHA), "2:1", "4:1" (GQA), "MQA" for one key/value head under several query heads."""
    return "MQA" if shape.kv_heads == 1 < shape.heads else f"{shape.heads // shape.kv_heads}:1"


def head_dim(shape: Shape) -> int:
    """The head_dim, or what stands for all that are smaller or larger than the common ones."""
    return next((size for size in HEAD_DIMS if shape.head_dim <= size), HEAD_DIMS[-1])


def unusual_inputs(case: Case) -> tuple[str, ...]:
    """What is not as always in the numbers of a case and in how they lie in memory."""
    inputs, shape = case.inputs, case.shape
    found = {"scale": case.scale is not None, "value_dim": shape.v_dim != shape.head_dim, "batch": shape.batch > 1,
             inputs.strides: inputs.strides != "dense", "dout": inputs.dout != "random",
             inputs.poison: inputs.poison is not None, "grads": inputs.grads not in ("qkv", "")}
    return tuple(name for name, holds in found.items() if holds)


def rule_names(case: Case) -> tuple[str, ...]:
    """The rules of a case; "full" stands for the absence of A1. What is to be refused is no rule."""
    names = tuple(rule.name for rule in case.mask.rules if not rule.refused)
    return names if "causal" in names else ("full", *names)


def values(case: Case) -> dict[str, tuple]:
    """What a case has of each dimension: any number of rules, variants and unusual inputs, one of everything else."""
    dtype = (case.dtype,) if case.dtype in DTYPES else ()
    return {"rule": rule_names(case), "world": (case.world,), "layout": (case.layout,), "dtype": dtype,
            "heads": (head_ratio(case.shape),), "head_dim": (head_dim(case.shape),),
            "variant": tuple(f"{rule.name}.{rule.variant}" for rule in case.mask.rules if rule.variant),
            "inputs": unusual_inputs(case)}


def pairs(cases: Iterable[Case]) -> dict[tuple[str, str], dict[tuple, int]]:
    """(dimension, dimension) -> (value, value) -> number of cases, zero for values that never meet.

    What cannot meet (NEVER) is no pair.
    """
    counts: dict[tuple[str, str], Counter] = {}
    seen: dict[str, set] = {}
    for case in cases:
        own = values(case)
        for name, occurring in own.items():
            seen.setdefault(name, set()).update(occurring)
        for one, other in CROSSED:
            counts.setdefault((one, other), Counter()).update(product(own[one], own[other]))
    return {(one, other): {pair: counted[pair] for pair in product(sorted(seen[one]), sorted(seen[other]))
                           if pair not in NEVER} for (one, other), counted in counts.items()}


def missing(cases: Iterable[Case]) -> list[str]:
    """The pairs that no case has, in words."""
    return [f"{one}={pair[0]} with {other}={pair[1]}" for (one, other), counted in pairs(cases).items()
            for pair, count in counted.items() if not count]
