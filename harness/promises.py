"""What each method of an implementation must give back: checked where it is called, told by all ranks together."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness import stacks
from harness.contract import Breach
from harness.implementation import Group, Implementation, Session, Setting, Step
from harness.ranks import Ranks

Made = TypeVar("Made")
UNDIFFERENTIABLE = "lse.requires_grad False (lse.detach() or ctx.mark_non_differentiable(lse))"
METHODS = ("load", "traffic", "scope", "close")
ENGINE = re.compile("returned an (invalid gradient|incorrect number of gradients)|expected Variable or None|"
                    "modified by an inplace operation|backward through the graph a second time|"
                    "One of the differentiated Tensors does not require grad|Expected isFloatingType")
UNLIKE = re.compile("[Rr]ecomputed values|different number of tensors was saved")
HERE = Path(__file__).parent


class Broken(Exception):
    """Ends what one rank is doing; `kept` tells all ranks of the breach."""

    def __init__(self, requirement: str, headline: str, expected: str, actual: str, rank: int):
        super().__init__(headline)
        self.breach = Breach(requirement, f"{headline} on rank {rank}", expected, actual, rank)


def kept(ranks: Ranks, action: Callable[[], Made], look: Callable[[Made], list[Breach]] = lambda made: [],
         alike: Callable[[list[Any]], list[Breach]] = lambda told: [],
         tell: Callable[[Made], Any] = lambda made: None) -> tuple[Made | None, list[Breach]]:
    """What `action` gives on this rank, and the promises that it broke on any; every rank takes part.

    look   finds them in what it gave here
    alike  finds them in what `tell` says of it on every rank, where nothing else was broken
    """
    made, found, told = None, [], None
    try:
        made = action()
        found, told = look(made), tell(made)
    except Broken as broken:
        found = [broken.breach]
    every = ranks.all_gather((found, told))
    broken = [breach for part, _ in every for breach in part]
    return made, broken or alike([said for _, said in every])


@contextmanager
def silent(name: str, requirement: str, ranks: Ranks) -> Iterator[None]:
    """Around a method that is asked before all ranks have agreed; Broken where it spoke to other ranks."""
    with ranks.during(name) as heard:
        yield
    calls = heard()
    if calls:
        raise Broken(requirement, f"{name} speaks to other ranks ({calls[0].kind})",
                     "no call before all ranks agree to run", calls[0].words(), ranks.group.rank)


def refusal(made: Implementation, case: Case, setting: Setting, rank: int) -> str | None:
    said = _called("refuses", "D7", rank, made.refuses, case, setting)
    if said is not None and not (isinstance(said, str) and said.strip()):
        raise Broken("D7", f"refuses returned {kind(said)}", "a reason or None", kind(said), rank)
    return said and " ".join(said.split())


def layout(made: Implementation, case: Case, world: int, rank: int) -> list[Tensor]:
    """Copies on the CPU, so that nothing that happens to the implementation's own changes them."""
    given = _called("layout", "D1", rank, made.layout, case, world)
    wanted = f"a list of {world} int64 tensors"
    if not isinstance(given, list | tuple):
        raise Broken("D1", f"layout returned {kind(given)}", wanted, kind(given), rank)
    for part in given:
        if not isinstance(part, Tensor) or part.is_meta or part.is_sparse:
            raise Broken("D1", f"layout returned {kind(given)} that holds {kind(part)}", wanted, kind(part), rank)
    return [part.detach().cpu().clone() for part in given]


def session(made: Implementation, case: Case, group: Group) -> Session:
    given = _called("open", "contract", group.rank, made.open, case, group)
    missing = [name for name in METHODS if not callable(getattr(given, name, None))]
    if missing:
        raise Broken("contract", f"open returned {kind(given)}, which has no {', '.join(missing)}", "a Session",
                     kind(given), group.rank)
    counted = _called("traffic", "D9", group.rank, given.traffic)
    if counted is not None and not (isinstance(counted, tuple) and [type(x) for x in counted] == [int, int]):
        raise Broken("D9", f"traffic returned {kind(counted)}", "(bytes, messages) or None", kind(counted), group.rank)
    return given


def step(given: Session, batch: Rows, rank: int) -> Step:
    """What `load` gives."""
    loaded = _called("load", "contract", rank, given.load, batch)
    if not callable(loaded):
        wanted = "a step: callable with q, k and v"
        raise Broken("contract", f"load returned {kind(loaded)}", wanted, kind(loaded), rank)
    return loaded


def answering(made: Step, rank: int, late: list[Breach]) -> Step:
    """The step, which raises Broken in place of returning what is no result; what may wait is put into `late`."""
    def held(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
        result = _called("step", "B1", rank, made, q, k, v)
        if not isinstance(result, tuple) or len(result) != 2:
            raise Broken("B1", f"step returned {kind(result)}", "(out, lse) or (out, None)", kind(result), rank)
        if isinstance(result[1], Tensor) and result[1].requires_grad:
            found = Breach("B2", f"lse carries a gradient on rank {rank}", UNDIFFERENTIABLE, "True", rank, light=True)
            late.extend([] if found in late else [found])
            return result[0], result[1].detach()
        return result

    return held


def scope(given: Session, rank: int) -> AbstractContextManager:
    made = _called("scope", "contract", rank, given.scope)
    if not all(hasattr(type(made), name) for name in ("__enter__", "__exit__")):
        raise Broken("contract", f"scope returned {kind(made)}", "a context manager", kind(made), rank)
    return made


def differentiated(action: Callable[[], Made], rank: int) -> Made:
    """A backward; Broken where autograd itself, and no code of the implementation, raises at what it was given."""
    try:
        return action()
    except RuntimeError as error:
        if stacks.foreign(error, HERE):
            raise
        if UNLIKE.search(str(error)):
            raise Broken("D4", "the step does other things when it is run again for the backward",
                         "tensors like those of the forward", stacks.said(error), rank) from error
        if not ENGINE.search(str(error)):
            raise
        raise Broken("B4", "autograd cannot take what the backward gives", "gradients in the shapes of their inputs",
                     stacks.said(error), rank) from error


def kind(x: Any) -> str:
    """"None", "a tuple of 3", "a Tensor [2, 4] of float32"."""
    if x is None or isinstance(x, bool | int | float) or x == "" and isinstance(x, str):
        return repr(x)
    if isinstance(x, Tensor):
        return f"a {type(x).__name__} {list(x.shape)} of {str(x.dtype).removeprefix('torch.')}"
    size = f" of {len(x)}" if isinstance(x, tuple | list | dict | set) else ""
    return f"a {type(x).__name__}{size}"


def _called(name: str, requirement: str, rank: int, function: Callable[..., Made], *arguments: Any) -> Made:
    """function(*arguments); Broken where it does not take these arguments. What it raises elsewhere than in code of an
    implementation is said to come from `name`."""
    try:
        return function(*arguments)
    except Exception as error:
        if stacks.foreign(error, HERE):
            raise
        if not isinstance(error, TypeError):
            error.add_note(f"{stacks.PLACE}{name}, which is torch's or Python's own")
            raise
        asked = ", ".join(type(argument).__name__ for argument in arguments) or "nothing"
        raise Broken(requirement, f"{name} does not take what it is called with", f"{name}({asked})",
                     stacks.said(error), rank) from error
