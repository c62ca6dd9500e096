"""Which ids of SPEC a case can show at all, as far as its fields tell: what is left of them in a smaller case."""

from collections.abc import Callable
from dataclasses import replace

from cases.case import Case
from cases.course import ONCE, WITHOUT_GRAD
from cases.smaller import LEAST_DIM, PLAIN
from cases.topology import Topology
from cases.work import dead_rows


def shown(case: Case) -> Case:
    """The case without ids that it cannot show. Those that nothing in a case speaks against stay."""
    kept = tuple(name for name in case.requirements if name not in NEEDS or NEEDS[name](case))
    return replace(case, requirements=kept)


def _has(name: str) -> Callable[[Case], bool]:
    return lambda case: any(rule.requirement == name for rule in case.mask.rules)


def _padded_scale(case: Case) -> bool:
    """Whether a scale is given, or a kernel may pad the head_dim that it follows from."""
    return case.scale is not None or case.shape.head_dim < LEAST_DIM or case.shape.head_dim.bit_count() > 1


NEEDS: dict[str, Callable[[Case], bool]] = {
    **{name: _has(name) for name in ("A1", "A2", "A3", "A5", "A6")},
    "A4": lambda case: bool(case.rows().padded.any()),
    "A7": lambda case: len(case.mask.rules) > 1,
    "A8": lambda case: case.shape.heads > 1 or case.shape.value_dim is not None,
    "A9": _padded_scale,
    "B3": lambda case: bool(dead_rows(case.mask, case.rows()).any()),
    "B5": lambda case: bool(case.inputs.poison or case.course.memory),
    "B6": lambda case: case.dtype != "fp64",
    "B7": lambda case: case.inputs.strides != PLAIN.strides or case.inputs.dout != PLAIN.dout,
    "B8": lambda case: case.inputs.grads != PLAIN.grads or any(verb in WITHOUT_GRAD for verb, _ in case.course.actions),
    "D1": lambda case: case.world > 1,
    "D2": lambda case: case.topology != Topology(),
    "D3": lambda case: case.course.steps != ONCE,
    "D4": lambda case: case.course.steps != ONCE,
    "D5": lambda case: case.course.repeats > 1,
    "D9": lambda case: case.world > 1,
}
