"""All scenarios, the cases they expand to, and the choice among them by pattern."""

import zlib
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from cases import bench, captured, conduct, crossed, edges, generate, real, rules, smoke
from cases.case import DTYPES, LAYOUTS, MORE_DTYPES, MORE_LAYOUTS, WORLDS, Case, Scenario

CAPTURED = (".jsonl", ".json")
TIERS = {"smoke": (("smoke",), WORLDS), "default": (("default",), WORLDS), "deep": (("all",), (*WORLDS, 8))}
RANDOM = 100


def scenarios() -> tuple[Scenario, ...]:
    """Every scenario of every tier: the rules by name, edges, crossed, conduct, real input, bench."""
    found = [scenario for module in rules.discover() for scenario in getattr(module, "CASES", ())]
    return (*found, *edges.CASES, *crossed.CASES, *conduct.CASES, *real.CASES, *bench.CASES)


def expand(chosen: Iterable[Scenario], worlds: Sequence[int] = WORLDS, layouts: Sequence[str] | None = None,
           dtypes: Sequence[str] | None = None, seed: int = 7, tokens: int | None = None) -> list[Case]:
    """The cases of scenarios, in order of scenario, world, dtype and layout.

    Without `layouts`, fp64 takes all of them (one, on a single rank or when the scenario is not of the default tier or
    has a course or topology of its own) and each other dtype takes one, which rotates with scenario and world; a course
    or topology takes one other dtype. A scenario may have a choice of its own. With `layouts`, all of these are taken
    for every dtype.
    `tokens` resizes every scenario (see Scenario.resized). Raises ValueError for unknown layouts and dtypes.
    """
    _known("layout", layouts or (), LAYOUTS + MORE_LAYOUTS)
    _known("dtype", dtypes or (), DTYPES + MORE_DTYPES)
    cases = []
    for scenario in chosen:
        made = scenario if tokens is None else scenario.resized(tokens)
        for world in worlds:
            if scenario.fits(world):
                cases += [made.at(world, layout, dtype, seed) for dtype in dtypes or _dtypes(scenario, world)
                          for layout in layouts or _layouts(scenario, world, dtype)]
    return cases


def select(patterns: str | Iterable[str], worlds: Sequence[int] = WORLDS, layouts: Sequence[str] | None = None,
           dtypes: Sequence[str] | None = None, seed: int = 7, tokens: int | None = None,
           count: int = RANDOM) -> list[Case]:
    """The cases that patterns choose, each once, in the order of the patterns.

    A pattern is a group ("packed"), a scenario ("packed/straddle"), a case id ("packed/straddle-zigzag-w3-bf16"),
    any of them with wildcards ("vision/*-bf16"), "smoke" (cases/smoke.py), "default", "all" (but for scenarios of the
    tiers "apart" and "named"), a captured file (FILE.jsonl), "random" (`count` random cases of at most `tokens`) or a
    case printed by `generate.replay`.
    Patterns separate by commas. An id that the expansion leaves out is found all the same.
    Raises ValueError when a pattern chooses nothing, with the nearest names.
    """
    settings = {"worlds": worlds, "layouts": layouts, "dtypes": dtypes, "seed": seed, "tokens": tokens}
    _known("layout", layouts or (), LAYOUTS + MORE_LAYOUTS)
    _known("dtype", dtypes or (), DTYPES + MORE_DTYPES)
    every = scenarios()
    chosen: dict[tuple[str, str], Case] = {}
    given = split(patterns)
    if not given:
        raise ValueError("no case pattern is given")
    for pattern in given:
        found = _random(count, settings) if pattern == "random" else _matching(pattern, every, settings)
        if not found:
            raise ValueError(_nothing(pattern, every, settings))
        chosen.update({(case.id, case.digest): case for case in found if (case.id, case.digest) not in chosen})
    return list(chosen.values())


def split(patterns: str | Iterable[str]) -> list[str]:
    """One or many comma lists as single patterns; a printed case keeps its commas."""
    lists = [patterns] if isinstance(patterns, str) else patterns
    return [pattern.strip() for line in lists
            for pattern in ([line] if _printed(line.strip()) else line.split(",")) if pattern.strip()]


def _printed(pattern: str) -> bool:
    return pattern.startswith(("{", generate.REPLAY))


def _random(count: int, settings: dict) -> list[Case]:
    choice = {name: settings[name] for name in ("worlds", "layouts", "dtypes")}
    return list(generate.cases(settings["seed"], count, settings["tokens"] or generate.MAX_TOKENS, **choice))


def _matching(pattern: str, every: tuple[Scenario, ...], settings: dict) -> list[Case]:
    if _printed(pattern):
        return [generate.from_replay(pattern)]
    if pattern.endswith(CAPTURED):
        return expand(captured.read(pattern), **settings)
    if pattern == "smoke":
        return _smoke(every, settings)
    if pattern in ("default", "all"):
        tiers = ("default", "asked") if pattern == "all" else ("default",)
        return expand([one for one in every if one.tier in tiers], **settings)
    near = [one for one in every if _may_match(pattern, one)]
    whole = [one for one in near if fnmatchcase(one.name, pattern) or one.group == pattern]
    found = expand(whole, **settings)
    if not found:
        found = _by_id(pattern, expand(near, **settings))
    for layouts in (LAYOUTS, MORE_LAYOUTS):
        full = {**settings, "layouts": settings["layouts"] or layouts,
                "dtypes": settings["dtypes"] or DTYPES + MORE_DTYPES}
        found = found or _by_id(pattern, expand(near, **full))
    return found


def _smoke(every: tuple[Scenario, ...], settings: dict) -> list[Case]:
    """The ids of the tier, as far as worlds, layouts and dtypes allow."""
    own = {**settings, "layouts": None, "dtypes": None}
    cases = [case for name in smoke.IDS for case in _matching(name, every, own)]
    return [case for case in cases if case.layout in (settings["layouts"] or LAYOUTS)
            and case.dtype in (settings["dtypes"] or DTYPES)]


def _by_id(pattern: str, cases: list[Case]) -> list[Case]:
    return [case for case in cases if fnmatchcase(case.id, pattern)]


def _may_match(pattern: str, scenario: Scenario) -> bool:
    """Whether the pattern can choose cases of the scenario, its tier allowing."""
    if pattern == scenario.name or pattern.startswith(scenario.name + "-"):
        return True
    group, wild = pattern.startswith(scenario.group), any(mark in pattern for mark in "*?[")
    return {"named": False, "apart": group}.get(scenario.tier, group or wild)


def _dtypes(scenario: Scenario, world: int) -> tuple[str, ...]:
    """All of them where numbers are at stake, fp64 and one other where only the order of things is."""
    if scenario.dtypes:
        return scenario.dtypes
    if scenario.plain or scenario.course.memory:
        return DTYPES
    others = DTYPES[1:]
    return "fp64", others[(zlib.crc32(scenario.name.encode()) + world) % len(others)]


def _layouts(scenario: Scenario, world: int, dtype: str) -> tuple[str, ...]:
    """On one rank all layouts are the same row: one of them is enough."""
    if scenario.layouts:
        return scenario.layouts if world > 1 else scenario.layouts[:1]
    if world > 1 and dtype == "fp64" and scenario.tier == "default" and scenario.plain:
        return LAYOUTS
    turn = zlib.crc32(scenario.name.encode()) + world + (*DTYPES, *MORE_DTYPES).index(dtype)
    return (LAYOUTS[turn % len(LAYOUTS)],)


def _known(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}: known are {', '.join(known)}")


def _nothing(pattern: str, every: tuple[Scenario, ...], settings: dict) -> str:
    names = [one.name for one in every] + sorted({one.group for one in every})
    elsewhere = _matching(pattern, every, {**settings, "worlds": (*WORLDS, 8)})
    if elsewhere:
        found = ", ".join(map(str, sorted({case.world for case in elsewhere})))
        return f"no case matches {pattern!r} at world {', '.join(map(str, settings['worlds']))}, only at {found}"
    near = get_close_matches(pattern.split("-w")[0], names, n=3, cutoff=0.4)
    groups = ", ".join(sorted({one.group for one in every}))
    hint = f"nearest are {', '.join(near)}; --list shows all" if near else f"groups are {groups}"
    return f"no case matches {pattern!r}: {hint}"
