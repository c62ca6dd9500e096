"""What a list of cases covers: SPEC ids, and pairs of (rule, world, layout, dtype, head ratio, head_dim)."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations, product

from cases.case import Case, Shape

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


def rule_names(case: Case) -> tuple[str, ...]:
    """The rules of a case; "full" stands for the absence of A1. What is to be refused is no rule."""
    names = tuple(rule.name for rule in case.mask.rules if not rule.refused)
    return names if "causal" in names else ("full", *names)


def values(case: Case) -> dict[str, tuple]:
    """What a case has of each dimension; a case has several rules and one of everything else."""
    return {"rule": rule_names(case), "world": (case.world,), "layout": (case.layout,), "dtype": (case.dtype,),
            "heads": (head_ratio(case.shape),), "head_dim": (case.shape.head_dim,)}


def pairs(cases: Iterable[Case]) -> dict[tuple[str, str], dict[tuple, int]]:
    """(dimension, dimension) -> (value, value) -> number of cases, zero for values that never meet."""
    counts: dict[tuple[str, str], Counter] = {}
    seen: dict[str, set] = {}
    for case in cases:
        own = values(case)
        for name, occurring in own.items():
            seen.setdefault(name, set()).update(occurring)
        for one, other in combinations(own, 2):
            counts.setdefault((one, other), Counter()).update(product(own[one], own[other]))
    return {(one, other): {pair: counted[pair] for pair in product(sorted(seen[one]), sorted(seen[other]))}
            for (one, other), counted in counts.items()}


def missing(cases: Iterable[Case]) -> list[str]:
    """The pairs that no case has, in words."""
    return [f"{one}={pair[0]} with {other}={pair[1]}" for (one, other), counted in pairs(cases).items()
            for pair, count in counted.items() if not count]
