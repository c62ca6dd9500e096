"""What `--list` prints: the chosen cases, SPEC ids by world, or which pairs of values occur."""

from typing import TextIO

from cases import coverage
from cases.case import Case


def show(kind: str, cases: list[Case], stream: TextIO) -> None:
    """kind: cases, by-requirement or pairs."""
    lines = {"cases": _cases, "by-requirement": _by_requirement, "pairs": _pairs}[kind](cases)
    print("\n".join(lines), file=stream, flush=True)


def _cases(cases: list[Case]) -> list[str]:
    lines = [f"{case.id:<52} {case.shape.tokens:>6} {case.shape.heads}/{case.shape.kv_heads:<3} {case.mask}   "
             f"{' '.join(case.requirements)}" for case in cases]
    return [*lines, f"# {len(cases)} cases"]


def _by_requirement(cases: list[Case]) -> list[str]:
    table = coverage.by_requirement(cases)
    worlds = sorted({case.world for case in cases})
    lines = ["# id    " + " ".join(f"w{world:<4}" for world in worlds) + " scenarios"]
    for requirement, by_world in table.items():
        names = sorted({name for found in by_world.values() for name in found})
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        counts = " ".join(f"{len(by_world.get(world, [])):<5}" for world in worlds)
        lines.append(f"  {requirement:<5} {counts} {shown or 'none'}")
    return lines


def _pairs(cases: list[Case]) -> list[str]:
    lines = []
    for (one, other), counted in coverage.pairs(cases).items():
        lines.append(f"# {one} x {other}")
        lines += [f"  {pair[0]!s:<12} {pair[1]!s:<12} {count}" for pair, count in counted.items()]
    missing = coverage.missing(cases)
    return [*lines, f"# missing pairs: {len(missing)}", *(f"#   {line}" for line in missing)]
