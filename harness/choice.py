"""Which cases a run is asked for, here or under torchrun."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from cases import catalogue
from cases.case import Case
from harness.arguments import Settings
from harness.implementation import Implementation


def chosen(settings: Settings) -> list[Case]:
    """The cases that the settings select. Raises ValueError when there is none, or under torchrun another world."""
    world = os.environ.get("WORLD_SIZE") if under_torchrun() else None
    if world and settings.worlds and settings.worlds != (int(world),):
        raise ValueError(f"--ranks {','.join(map(str, settings.worlds))} but torchrun started {world} ranks")
    choice = {"layouts": settings.layouts, "dtypes": settings.dtypes, "seed": settings.seed,
              "tokens": settings.tokens, "count": settings.count}
    if not world:
        return catalogue.select(settings.cases, settings.worlds or (2,), **choice)
    found = [case for pattern in catalogue.split(settings.cases) for case in placed(pattern, int(world), choice)]
    return list({(case.id, case.digest): case for case in found}.values())


def apart(cases: Iterable[Case], implementation: Implementation) -> list[Case]:
    """The cases that differ for an implementation: one with a layout of its own is asked once where cases differ in
    their layout alone, in its own one where that is among them."""
    cases, own = list(cases), implementation.own_layout
    if own is None:
        return cases
    alike: dict[str, Case] = {}
    for case in sorted(cases, key=lambda case: case.layout != own):
        alike.setdefault(replace(case, layout="contiguous").digest, case)
    kept = {case.id for case in alike.values()}
    return [case for case in cases if case.id in kept]


def placed(pattern: str, world: int, choice: dict[str, Any]) -> list[Case]:
    """The cases of one pattern for `world` ranks of torchrun, groups inside them included. Raises ValueError."""
    found = catalogue.select(pattern, (world,) if pattern == "random" else range(1, world + 1), **choice)
    fit = [case for case in found if case.ranks == world]
    if not fit:
        raise ValueError(f"case {found[0].id} needs {found[0].ranks} ranks but torchrun started {world}")
    return fit


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ or {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys()
