"""Follows the course of a case: batches loaded, run forward and backward in the order it names, again and again."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cases.case import Case
from cases.course import BACKWARDS, RECOMPUTES, WITHOUT_GRAD, Course
from cases.rows import Rows
from harness import contract, inputs, promises
from harness.arena import Arena
from harness.attempt import Answer, Passage, Turn, enter, load
from harness.contract import Breach
from harness.implementation import Implementation, Session, Step
from harness.inputs import Numbers
from harness.problem import Problem, problem_of
from harness.ranks import Ranks
from harness.watch import LATER, LEFT, Untouched, bits

CALL_SEED = 100_003

def follow(session: Session, case: Case, implementation: Implementation, layout: list[Tensor],
           ranks: Ranks) -> list[Answer]:
    """One answer for each forward of the course, in their order; layout: positions `[B, L]` a rank.

    Repeats add answers only where they differ from the first ones and may. A broken promise ends the course.
    """
    problems = {letter: problem_of(case.batch(letter), implementation.variants) for letter in case.course.batches}
    passages: list[Passage] = []
    first: list[Passage] = []
    answers: list[Answer] = []
    for repeat in range(case.course.repeats):
        walk = _Walk(_Sessions(session, case, implementation, ranks), case.course, problems, layout, ranks,
                     repeat * len(first))
        walk.go()
        walk.sessions.close()
        if walk.broken:
            return [Answer(breaches=walk.broken, problem=walk.problem)]
        passages += walk.passages
        if not repeat:
            first, answers = walk.passages, [_answer(passage) for passage in walk.passages]
        else:
            answers += _again(first, walk.passages, repeat, implementation.deterministic)
    answers[0].sent = _sent(passages, ranks) if case.course.strict else []
    return answers


@dataclass
class _Walk:
    """One time through the actions of a course, on one rank."""

    sessions: "_Sessions"
    course: Course
    problems: dict[str, Problem]
    layout: list[Tensor]
    ranks: Ranks
    earlier: int
    passages: list[Passage] = field(default_factory=list)
    broken: list[Breach] = field(default_factory=list)

    def __post_init__(self):
        self.steps: dict[str, Step] = {}
        self.waiting: list[Passage] = []
        self.buffers: Rows | None = None
        self.guard = Untouched()
        self.arena = Arena()

    def go(self) -> None:
        with ExitStack() as scope:
            for verb, letter in self.course.actions:
                if verb == "load":
                    self.broken = self._load(letter)
                elif verb in BACKWARDS:
                    self.broken = self._backward(verb, letter)
                else:
                    if not self.waiting:
                        self._let_go()
                        self.broken = enter(scope, self.sessions.of[letter], self.ranks)
                    self.broken = self.broken or self._forward(verb, letter)
                if self.broken:
                    self.problem = self.problems[letter]
                    return
                if not self.waiting and verb != "load":
                    self.passages[-1].look_for_a_kept_graph()
                    self._look_at_results(LATER)
                    scope.close()
                    self._look_at_results(LEFT)

    def _forward(self, verb: str, letter: str) -> list[Breach]:
        earlier = sum(passage.turn.batch == letter for passage in self.passages)
        problem = called(self.problems[letter], earlier)
        turn = Turn(self.earlier + len(self.passages), letter, verb, self.course)
        passage = Passage(self.sessions.of[letter], self.steps[letter], problem, self.layout, self.ranks, turn,
                          self._room(problem))
        self.passages.append(passage)
        broken = passage.forward()
        self._look_at_metadata(passage, "forward")
        if verb not in WITHOUT_GRAD:
            self.waiting.append(passage)
        return broken

    def _room(self, problem: Problem) -> Numbers | None:
        """Where dense inputs lie once those of steps that are over are gone; on a GPU torch's allocator sees to it."""
        freed = self.course.buffers == "freed" and problem.case.inputs.strides == "dense"
        if not freed or self.ranks.device.type != "cpu":
            return None
        fresh = inputs.shard(problem.given, self.layout[self.ranks.group.rank], problem.case)
        return Numbers(*map(self.arena.like, fresh.tensors()))

    def _let_go(self) -> None:
        """Looks at the inputs of steps that are over for the last time, and keeps nothing of them."""
        for passage in self.passages if self.course.buffers == "freed" else ():
            passage.late += passage.guard.breaches(self.ranks.group.rank)
            passage.guard = Untouched()
            passage.parts = {name: part.detach() for name, part in passage.parts.items()}
            for name in ("local", "wanted"):
                vars(passage).pop(name, None)

    def _backward(self, verb: str, letter: str) -> list[Breach]:
        passage = [other for other in self.waiting if other.turn.batch == letter][0 if verb == "backward first" else -1]
        others = [other for other in self.waiting if other is not passage and verb == "together"]
        for one in (passage, *others):
            self.waiting.remove(one)
            if one is not self.passages[-1]:
                one.returned.look(LATER)
        broken = passage.backward(verb == "retain", others)
        self._look_at_metadata(passage, "backward")
        return broken

    def _load(self, letter: str) -> list[Breach]:
        """Hands over metadata in the buffers that the course asks for. Those that still exist are watched from then on,
        refilled or not."""
        how = self.course.buffers
        broken = self.sessions.opened(letter)
        if broken:
            return broken
        batch = self.buffers = _buffers(how, self.buffers, self.problems[letter].rows, self.arena)
        self.steps[letter], broken = load(self.sessions.of[letter], batch, self.ranks, self.course)
        if how == "fresh":
            contract.refill(batch)
        if how == "freed":
            self.buffers = None
        self.guard = Untouched(**contract.metadata(batch)) if self.buffers is not None else Untouched()
        return broken

    def _look_at_metadata(self, passage: Passage, phase: str) -> None:
        found = self.guard.breaches(self.ranks.group.rank, f"in the {phase}")
        if found:
            passage.late += found
            self.guard = Untouched()

    def _look_at_results(self, when: str) -> None:
        for passage in self.passages:
            passage.returned.look(when)


class _Sessions:
    """The session that each batch is loaded by: one for all, or each its own, which stay open together.

    of  session by batch, once `opened`
    """

    def __init__(self, first: Session, case: Case, implementation: Implementation, ranks: Ranks):
        self.first, self.case, self.implementation, self.ranks = first, case, implementation, ranks
        self.of: dict[str, Session] = {}

    def opened(self, letter: str) -> list[Breach]:
        """Opens one for a batch that has none, of this trial's own case: problems are shared by trials of other worlds
        and layouts. Returns what any rank found wrong with it."""
        if letter in self.of:
            return []
        if self.case.course.sessions == "one" or not self.of:
            self.of[letter] = self.first
            return []
        case = self.case.batch(letter)
        self.of[letter], broken = promises.kept(
            self.ranks, lambda: promises.session(self.implementation, case, self.ranks.group))
        return broken

    def close(self) -> None:
        """Closes those beside the first."""
        for session in {id(one): one for one in self.of.values() if one is not self.first and one is not None}.values():
            session.close()


def called(problem: Problem, earlier: int) -> Problem:
    """What a step is asked when it was called before: other numbers under the same metadata, as the next layer asks, or
    the same numbers but for one tensor."""
    if not earlier:
        return problem
    changes = problem.case.course.changes.split()
    changed = changes[(earlier - 1) % len(changes)] if changes else None
    return problem_of(problem.case, problem.variants, problem.seed + CALL_SEED * earlier, changed)


def _buffers(how: str, before: Rows | None, rows: Rows, arena: Arena) -> Rows:
    """`rows` in storage of its own, in the buffers of the batch before, or new only where it differs from them."""
    if how == "freed":
        return rows.with_metadata(**{name: arena.like(x).copy_(x) for name, x in contract.metadata(rows).items()})
    if before is None or how == "fresh":
        return contract.copied(rows)
    held, wanted = contract.metadata(before), contract.metadata(rows)
    if how == "reused":
        for name, tensor in wanted.items():
            held[name].copy_(tensor)
        return rows.with_metadata(**held)
    return rows.with_metadata(**{name: held[name] if torch.equal(held[name], tensor) else tensor.clone()
                                 for name, tensor in wanted.items()})


def _sent(passages: list[Passage], ranks: Ranks) -> list[tuple[Problem, tuple[int | None, ...]]]:
    """`Answer.sent`; what is run again for its backward is left out."""
    plain = [passage for passage in passages if passage.turn.verb not in RECOMPUTES]
    every = ranks.all_gather([None if None in passage.sent else sum(passage.sent) for passage in plain])
    return [(passage.problem, sent) for passage, sent in zip(plain, zip(*every, strict=True), strict=True)]


def _again(first: list[Passage], passages: list[Passage], repeat: int, deterministic: bool) -> list[Answer]:
    """What a repeat adds: nothing where all bits are those of the first time, as they were returned."""
    found = []
    for before, passage in zip(first, passages, strict=True):
        first_time, this_time = before.returned.before, passage.returned.before
        other = [name for name in first_time if not _same(first_time[name], this_time[name])]
        names, broken = zip(*passage.ranks.all_gather((other, bool(passage.breaches()))), strict=True)
        differing = {rank: own for rank, own in enumerate(names) if own}
        if differing or any(broken):
            answer = passage.answer()
            answer.what, answer.requirement = f"repeat {repeat + 1}", "D5"
            if differing and (deterministic or passage.turn.course.strict):
                answer.what = ""
                answer.breaches.append(_other_bits(differing, repeat, "required" if deterministic else "strict"))
            found.append(answer)
    return found


def _other_bits(differing: dict[int, list[str]], repeat: int, level: str) -> Breach:
    said = "; ".join(f"{', '.join(names)} on rank {rank}" for rank, names in differing.items())
    return Breach("D5", f"repeat {repeat + 1} of the same inputs gives other bits of {said}", "the same bits", "others",
                  min(differing), level)


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(bits(one), bits(other))


def _answer(passage: Passage) -> Answer:
    """The gathered answer, with what makes it more than a plain first step."""
    answer, turn = passage.answer(), passage.turn
    answer.of = f"batch {turn.batch}, step {turn.number + 1}"
    if turn.verb in RECOMPUTES:
        answer.what, answer.requirement = f"batch {turn.batch}, {turn.verb}", "D4"
    elif turn.number or len(turn.course.batches) > 1:
        answer.what, answer.requirement = f"batch {turn.batch}, step {turn.number + 1}", "D3"
    return answer
