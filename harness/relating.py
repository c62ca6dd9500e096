"""Trials without any truth: what an implementation answers is held to its own answers to related questions."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from cases.work import dead_rows, owners
from harness import compare, inputs
from harness.attempt import Answer, attempt
from harness.clock import Timing
from harness.compare import Deviation, Verdict, Where
from harness.entries import About, requirement
from harness.extent import earliest
from harness.implementation import Group, Implementation
from harness.inputs import DTYPES, Numbers
from harness.problem import Problem, problem_of
from harness.ranks import Ranks
from harness.relations import RELATIONS, Relation, Run
from harness.trial import agree, opened

FP64 = 2e-10
ROUNDINGS = 16.0
TINY = 1e-30
Place = tuple[int, ...]


@dataclass(frozen=True)
class Posed:
    """What `attempt` needs of a problem."""

    case: Case
    rows: Rows
    given: Numbers


class Alone:
    """One rank as a world of its own."""

    def __init__(self, device: torch.device, group: Group):
        self.device, self.group = device, group

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def gather_tensors(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        return [{name: tensor.detach().cpu() for name, tensor in tensors.items()}]

    def barrier(self) -> None:
        pass

    def during(self, *_):
        return nullcontext(lambda: None)


def run_relations(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing | None = None,
                  spec: str | None = None) -> dict[str, Any] | None:
    """The record of a trial whose verdict covers every relation that fits the case; `relations` lists them."""
    started = time.perf_counter()
    about = About(case, implementation, spec or implementation.name, ranks.device.type, "relations")
    layout, verdict = agree(case, implementation, ranks)
    if verdict:
        return about.entry(verdict, started, ranks) if ranks.group.rank == 0 else None
    problem = problem_of(case, implementation.variants)
    plain = _answer(Run(case, problem.clean), implementation, ranks)
    judgement = _Judgement(problem, layout)
    for make in RELATIONS if not plain.breaches else ():
        for relation in make(problem, implementation.own_layout):
            answers = [_answer(run, implementation, ranks) for run in relation.runs]
            if ranks.group.rank == 0:
                judgement.add(relation, plain, answers)
    if ranks.group.rank != 0:
        return None
    verdict, told = judgement.verdict(plain)
    found = about.entry(verdict, started, ranks, layout, problem, None, told and told | {"again": about.again()})
    return found | {"relations": judgement.listed}


def _answer(run: Run, implementation: Implementation, ranks: Ranks) -> Answer | None:
    """The gathered answer to one run; None where the implementation refuses it."""
    with _alone(ranks) if run.alone else nullcontext(ranks) as own:
        layout, verdict = agree(run.case, implementation, own)
        if verdict:
            return None if verdict.name == "SKIP" else Answer(breaches=verdict.breaches)
        problem = problem_of(run.case, implementation.variants)
        given = inputs.poisoned(run.numbers, run.case, problem.mask, problem.rows)
        session, verdict = opened(implementation, run.case, own)
        if verdict:
            return Answer(breaches=verdict.breaches)
        answer = attempt(session, Posed(run.case, problem.rows, given), layout, own)
        session.close()
        return answer


@contextmanager
def _alone(ranks: Ranks) -> Iterator[Alone]:
    """Every rank in a group of its own."""
    group = ranks.group
    if group.process_group is None:
        yield Alone(ranks.device, Group(0, 1, (0,), None, {"stop": group.shared["stop"]}))
        return
    own = group.ranks[group.rank]
    made = dist.new_group([own], use_local_synchronization=True)
    yield Alone(ranks.device, Group(0, 1, (own,), made))
    dist.destroy_process_group(made)


def _worst(ratio: Tensor) -> Place:
    """Of the largest element."""
    return tuple(torch.stack(torch.unravel_index(ratio.argmax(), ratio.shape)).tolist())


class _Judgement:
    """Collects relations on rank 0: the largest ratio of each tensor, and the first relation that is broken."""

    def __init__(self, problem: Problem, layout: list[Tensor]):
        self.problem, self.layout = problem, layout
        self.listed: list[dict[str, Any]] = []
        self.worst: dict[str, Deviation] = {}
        self.broken: tuple[Relation, Deviation] | None = None
        self.breach: tuple[Relation, Answer] | None = None
        dead = dead_rows(problem.mask, problem.rows).repeat_interleave(
            problem.case.shape.heads // problem.rows.groups, 1)
        self.open = dead if problem.variants & {"dead.undefined", "dead.singleton"} else torch.zeros_like(dead)

    def add(self, relation: Relation, plain: Answer, answers: list[Answer | None]) -> None:
        if any(answer is None for answer in answers):
            self.listed.append({"name": relation.name, "verdict": "SKIP", "ratio": None})
            return
        wrong = next((answer for answer in answers if answer.breaches), None)
        if wrong:
            self.breach = self.breach or (relation, wrong)
            self.listed.append({"name": relation.name, "verdict": "FAIL", "ratio": None})
            return
        pairs = relation.pairs(plain.tensors, [answer.tensors for answer in answers])
        found = {name: self._deviation(name, relation, *pair) for name, pair in pairs.items()}
        for name, one in found.items():
            if name not in self.worst or one.ratio > self.worst[name].ratio:
                self.worst[name] = one
        failed = [one for one in found.values() if one.failed]
        if failed and not self.broken:
            name = failed[0].tensor
            self.broken = relation, self._deviation(name, relation, *pairs[name], self._first)
        ratio = max(one.ratio for one in found.values())
        self.listed.append({"name": relation.name, "verdict": "FAIL" if failed else "PASS", "ratio": ratio})

    def verdict(self, plain: Answer) -> tuple[Verdict, dict[str, Any] | None]:
        """Of the trial, and the diagnosis of its record but for the command."""
        breaches = plain.breaches or (self.breach[1].breaches if self.breach else [])
        deviations = list(self.worst.values())
        if breaches:
            first = breaches[0]
            return Verdict("FAIL", f"{first.requirement}: {first.headline}", deviations, breaches), None
        if not any(one["ratio"] is not None for one in self.listed):
            return Verdict("SKIP", "not asked: no relation fits this case, or all of them are refused"), None
        if not self.broken:
            return Verdict("PASS", None, deviations), None
        relation, one = self.broken
        where = one.where
        told = {"headline": f"{one.tensor} breaks a relation: {relation.name}",
                "requirement": requirement(relation.requirement),
                "expected": f"{one.tensor}[{where.batch}, {where.head}, {where.token}] = {one.expected:.6g}",
                "actual": f"{one.actual:.6g}",
                "place": f"rank {where.rank}, token {where.token}, head {where.head}, row {where.batch}"}
        failed = ", ".join(name for name, other in self.worst.items() if other.failed)
        return Verdict("FAIL", f"{relation.requirement}: {failed} off: {relation.name}", deviations), told

    def _deviation(self, name: str, relation: Relation, expected: Tensor, actual: Tensor,
                   place: Callable[[Tensor], Place] = _worst) -> Deviation:
        expected, actual = (x.double()[..., None] if name == "lse" else x.double() for x in (expected, actual))
        same = (expected == actual) | (self.open[..., None] if name not in ("dk", "dv") else False)
        error = torch.where(same, 0, (expected - actual).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf)
        allowance = self._allowance(name, expected)
        ratio = error / allowance
        at = place(ratio)
        batch, head, token, dim = at
        documents = self.problem.rows.documents
        where = Where(batch, head, token, None if name == "lse" else dim, compare.owner(self.layout, batch, token),
                      None if documents is None else int(documents[batch, token]))
        return Deviation(name, relation.requirement, float(ratio[at]), float(error[at]),
                         float(allowance.expand_as(error)[at]), "required", where, float(expected[at]),
                         float(actual[at]))

    def _first(self, ratio: Tensor) -> Place:
        """Of the first wrong element: the lowest token on the lowest rank."""
        place = earliest((ratio > 1).any(-1), owners(self.layout, self.problem.rows))
        return *place, int(ratio[place].argmax())

    def _allowance(self, name: str, expected: Tensor) -> Tensor:
        """How far an element may be from its equal: below fp64, roundings of the terms that make it."""
        size = expected.masked_fill(expected.isinf(), 0).abs()
        if self.problem.case.dtype == "fp64":
            return size.amax().clamp(min=1) * FP64
        dtype = torch.float32 if name == "lse" else DTYPES[self.problem.case.dtype]
        terms = size.square().mean((2, 3), keepdim=True).sqrt().clamp(min=max(self.terms[name], TINY))
        return ROUNDINGS * torch.finfo(dtype).eps / 2 * (size + terms)

    @cached_property
    def terms(self) -> dict[str, float]:
        """Size of the terms of an element of each tensor before they cancel, from the inputs alone.

        exp makes rounding of a score an error of its weight, which in fp32 is as large as those of products.
        """
        shape, scale = self.problem.case.shape, self.problem.case.scale
        scale = shape.head_dim ** -0.5 if scale is None else abs(scale)
        q, k, v, dout = (float(x.double().square().mean().sqrt()) for x in self.problem.clean.tensors())
        heads, score = shape.heads / shape.kv_heads, scale * q * k * shape.head_dim ** 0.5
        exponent = 1 + 4 * score if self.problem.case.dtype == "fp32" else 1.0
        dscore = dout * v * shape.v_dim ** 0.5
        return {"out": v * exponent, "lse": 1 + 4 * score, "dq": scale * dscore * k * exponent,
                "dk": scale * dscore * q * heads * exponent, "dv": dout * heads * exponent}
