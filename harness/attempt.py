"""One verified call of an implementation: shard, load, forward, backward, gather."""

from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cases.course import PLAIN, WITHOUT_GRAD, Course
from cases.rows import Rows
from harness import contract, inputs, memory, promises
from harness.contract import Breach
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.passes import FORWARDS, differentiating, gradients
from harness.problem import Problem
from harness.ranks import Ranks
from harness.trace import sent
from harness.watch import LATER, LEFT, Returned, Untouched


@dataclass
class Answer:
    """Whole out, lse, dq, dk and dv on rank 0 (empty elsewhere, absent when not offered; each rank's own tokens where
    nothing was gathered), and broken promises.

    number, what   which forward of the course it is, in words ("batch B after others"); nothing for a plain first one
    of             the batch and call that it answers, in words
    requirement    the SPEC id that this answer stands for beside those of its numbers
    sent           of a course's first answer, at the strict level: each step's problem and the bytes that it sent, one
                   number a rank, None where nobody counts
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    breaches: list[Breach] = field(default_factory=list)
    problem: Problem | None = None
    number: int = 0
    what: str = ""
    of: str = ""
    requirement: str | None = None
    sent: list[tuple[Problem, tuple[int | None, ...]]] = field(default_factory=list)


def attempt(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks,
            step: Step | None = None, used: Numbers | None = None, gathered: bool = True) -> Answer:
    """Runs the problem once on all ranks, untimed; layout: positions `[B, L]` a rank. `step` was loaded before, and
    `used` are tensors that it knows; without them both are fresh. If not `gathered` every rank has the answer of its
    own tokens, where they are."""
    if step is None:
        batch = contract.copied(problem.rows)
        step, broken = load(session, batch, ranks)
        contract.refill(batch)
        if broken:
            return Answer(breaches=broken, problem=problem)
    passage = Passage(session, step, problem, layout, ranks, used=used)
    with ExitStack() as scope:
        broken = enter(scope, session, ranks) or passage.forward() or passage.backward()
        if broken:
            return Answer(breaches=broken, problem=problem)
        passage.look_for_a_kept_graph()
        passage.returned.look(LATER)
    passage.returned.look(LEFT)
    return passage.answer(gathered)


@dataclass(frozen=True)
class Turn:
    """Where in a course a forward stands: the how-manieth it is, of which batch, in which way."""

    number: int = 0
    batch: str = "A"
    verb: str = "forward"
    course: Course = Course()


class Passage:
    """One forward of one rank, and the backward that belongs to it.

    sent  at the strict level, bytes that left the rank in each of them; None where nobody counts
    """

    def __init__(self, session: Session, step: Step, problem: Problem, layout: list[Tensor], ranks: Ranks,
                 turn: Turn = Turn(), used: Numbers | None = None):
        self.session, self.sent = session, []
        self.step, self.problem, self.layout, self.ranks, self.turn = step, problem, layout, ranks, turn
        self.rank = ranks.group.rank
        fresh = inputs.shard(problem.given, layout[self.rank], problem.case, ranks.device)
        self.local = inputs.written(fresh, used) if used else fresh
        grads = problem.case.inputs.grads
        self.wanted = {name: x.requires_grad_() for name, x in zip("qkv", self.local.tensors(), strict=False)
                       if name in grads}
        self.guard, self.returned = Untouched(**vars(self.local)), Returned()
        self.parts: dict[str, Tensor] = {}
        self.late: list[Breach] = []

    def forward(self) -> list[Breach]:
        """Runs the step. Returns what any rank found wrong with it; then there must be no backward."""
        result, broken = promises.kept(self.ranks, self._run, self._wrong, _offered_alike,
                                       lambda result: result[1] is not None)
        if not broken:
            out, lse = result
            self.parts = {"out": out} | ({} if lse is None else {"lse": lse})
        return broken

    def backward(self, twice: bool = False, others: "Sequence[Passage]" = ()) -> list[Breach]:
        """Runs the backward, or goes through the graph twice; that of `others` is one with it. Returns what any rank
        found wrong with it."""
        together = (self, *others)
        for passage in together:
            passage.returned.look("before its backward")
        grads, broken = promises.kept(self.ranks, lambda: self._differentiate(twice, together), lambda grads: [
            breach for passage, own in zip(together, grads, strict=True) for breach in passage._unlike(own)])
        for passage, own in zip(together, grads or [], strict=False):
            passage.parts |= zip([f"d{name}" for name in passage.wanted], own, strict=True)
        return broken

    def _run(self) -> tuple[Tensor, Tensor | None]:
        with self._during("forward"):
            step = promises.answering(self.step, self.rank, self.late)
            return FORWARDS[self.turn.verb](step, *self.local.tensors()[:3])

    def _wrong(self, result: tuple[Tensor, Tensor | None]) -> list[Breach]:
        found = contract.forward_breaches(*result, self.local, self.problem.case, self.rank)
        if self.turn.verb in WITHOUT_GRAD and not found and result[0].requires_grad:
            found.append(kept_graph(self.rank))
        if not found:
            self.returned.add(**{name: x for name, x in zip(("out", "lse"), result, strict=True) if x is not None})
            found += contract.unfinished({"out": result[0]}, self.layout[self.rank], self.rank)
        self.guard.look("in the forward")
        return found + contract.unasked(self.local, self.wanted, {}, self.rank)

    def _differentiate(self, twice: bool, together: "Sequence[Passage]") -> list[list[Tensor]]:
        graphs = [(passage.parts["out"], list(passage.wanted.values()), passage.local.dout) for passage in together]
        accumulated = self.turn.verb == "reentrant"
        with self._during("backward"), differentiating(self.turn.verb):
            return promises.differentiated(lambda: gradients(graphs, accumulated, twice), self.rank)

    def _unlike(self, grads: list[Tensor]) -> list[Breach]:
        filled = self.wanted if self.turn.verb == "reentrant" else {}
        self.guard.look("in the backward")
        self.returned.look("in the backward")
        self.returned.add(**{f"d{name}": x for name, x in zip(self.wanted, grads, strict=True)})
        named = {f"d{name}": grad for name, grad in zip(self.wanted, grads, strict=True)}
        wrong = contract.gradient_breaches(dict(zip(self.wanted, grads, strict=True)), self.wanted, self.rank)
        return ((wrong or contract.unfinished(named, self.layout[self.rank], self.rank)) +
                contract.unasked(self.local, self.wanted, filled, self.rank))

    def look_for_a_kept_graph(self) -> None:
        """SPEC B8, one more forward, for cases that ask."""
        if "B8" not in self.problem.case.requirements:
            return
        try:
            with torch.no_grad(), self._during("no-grad"):
                out, _ = promises.answering(self.step, self.rank, self.late)(*self.local.tensors()[:3])
            self.late += [kept_graph(self.rank)] if out.requires_grad else []
        except promises.Broken as broken:
            self.late.append(broken.breach)

    def answer(self, gathered: bool = True) -> Answer:
        """What this forward and backward gave: whole rows on rank 0, or each rank's own."""
        late = [breach for part in self.ranks.all_gather(self.breaches()) for breach in part]
        own = {name: part.detach() for name, part in self.parts.items()}
        if gathered:
            own = _whole(self.ranks.gather_tensors(own), self.layout, self.problem.case.shape.tokens)
        return Answer(own, late, self.problem, self.turn.number)

    def breaches(self) -> list[Breach]:
        """What this rank found wrong with them."""
        return self.late + self.guard.breaches(self.rank) + self.returned.breaches(self.rank)

    @contextmanager
    def _during(self, phase: str):
        counting = self.turn.course.strict and phase != "no-grad"
        before = self.session.traffic() if counting else None
        with ExitStack() as stack:
            heard = stack.enter_context(self.ranks.during(f"{self.turn.number} {phase}", self.turn.course))
            stack.enter_context(memory.fresh(self.turn.course.memory))
            yield
        if counting:
            traced = sent(heard(), self.ranks.group)
            self.sent.append(before and self.session.traffic()[0] - before[0] if traced is None else traced)


def _offered_alike(offered: list[bool]) -> list[Breach]:
    """All ranks return an lse, or none."""
    if len(set(offered)) == 1:
        return []
    alone = ", ".join(str(rank) for rank, has in enumerate(offered) if has)
    return [Breach("D6", "ranks disagree on whether lse is offered", "lse on all ranks or on none",
                   f"lse on ranks {alone} alone")]


def load(session: Session, batch: Rows, ranks: Ranks, course: Course = PLAIN) -> tuple[Step | None, list[Breach]]:
    """Hands over a batch and checks that it is left alone; every rank takes part."""
    rank, guard = ranks.group.rank, Untouched(**contract.metadata(batch))

    def loading() -> Step:
        with ranks.during("load", course):
            return promises.step(session, batch, rank)

    return promises.kept(ranks, loading, lambda _: guard.breaches(rank))


def enter(stack: ExitStack, session: Session, ranks: Ranks) -> list[Breach]:
    """Enters the session's scope; every rank takes part."""
    return promises.kept(ranks, lambda: stack.enter_context(promises.scope(session, ranks.group.rank)))[1]


def kept_graph(rank: int) -> Breach:
    return Breach("B8", f"a graph is kept under no_grad on rank {rank}", "out.requires_grad False", "True", rank)


def _whole(parts: list[dict[str, Tensor]] | None, layout: list[Tensor], tokens: int) -> dict[str, Tensor]:
    if parts is None:
        return {}
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: inputs.put([part[name] for part in parts], layout, tokens) for name in names}
