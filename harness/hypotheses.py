"""Known mistakes as testable guesses: each predicts what a wrong ring would have answered, from tensors alone."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from cases.rules.rule import Rule
from harness import contract
from harness.problem import Problem
from reference.dense import truth

Tensors = dict[str, Tensor]
NAMES = ("out", "lse", "dq", "dk", "dv")


@dataclass(frozen=True)
class Guess:
    """A mistake in words, the SPEC id it breaks, and what it would have answered (only the tensors it changes)."""

    words: str
    requirement: str
    predicted: Tensors


@dataclass(frozen=True)
class Evidence:
    """What a hypothesis may look at: problem, answer, who holds which token `[B, S]`, and the tensors that failed."""

    problem: Problem
    actual: Tensors
    owner: Tensor
    world: int
    failed: tuple[str, ...]

    def under(self, mask: Mask | None = None, rows: Rows | None = None, scale: float | None = None) -> Tensors:
        """The truth of another mask, metadata or scale (NaN: the case's own)."""
        problem = self.problem
        scale = problem.case.scale if scale is not None and math.isnan(scale) else scale
        found = truth(*problem.clean.tensors(), mask or problem.mask, rows or problem.rows, scale, terms=False)
        return {name: getattr(found, name) for name in NAMES}


OWN = math.nan


@dataclass(frozen=True)
class SameRank(Rule):
    """Not a rule of SPEC: a query sees only keys of its own rank."""

    name = "same-rank"
    requirement = "D9"

    def allowed(self, rows: Rows, i: Tensor, j: Tensor) -> Tensor:
        owner = rows.extra["owner"]
        return (owner[:, i, None] == owner[:, None, j])[:, None]


def scale(evidence: Evidence) -> Iterator[Guess]:
    given = evidence.problem.case.scale
    if given is not None:
        yield Guess("the given scale is ignored", "A9", evidence.under())
    if given != 1.0:
        yield Guess("the scale is missing", "A9", evidence.under(scale=1.0))


def rule_ignored(evidence: Evidence) -> Iterator[Guess]:
    rules, rows = evidence.problem.mask.rules, evidence.problem.rows
    for rule in rules:
        rest = Mask(tuple(other for other in rules if other is not rule))
        bare = {"documents": {"documents": None}, "padding": {"padding": None}}.get(rule.name)
        yield Guess(f"the rule {rule.name} is ignored", rule.requirement,
                    evidence.under(rest, replace(rows, **bare) if bare else rows, OWN))


def window_shifted(evidence: Evidence) -> Iterator[Guess]:
    rules = evidence.problem.mask.rules
    for rule in rules:
        if rule.name != "window":
            continue
        for change, words in ((1, "one key too many"), (-1, "one key too few")):
            if rule.size + change >= 1:
                other = tuple(replace(rule, size=rule.size + change) if own is rule else own for own in rules)
                yield Guess(f"the window holds {words}", "A2", evidence.under(Mask(other), scale=OWN))


def other_variant(evidence: Evidence) -> Iterator[Guess]:
    rules = evidence.problem.mask.rules
    for rule in rules:
        for variant in (None, *rule.variants):
            if variant != rule.variant:
                other = tuple(replace(rule, variant=variant) if own is rule else own for own in rules)
                words = f"the rule {rule.name} is read as {variant or 'SPEC has it'}"
                yield Guess(words, rule.requirement, evidence.under(Mask(other), scale=OWN))


def heads_interleaved(evidence: Evidence) -> Iterator[Guess]:
    shape, problem = evidence.problem.case.shape, evidence.problem
    if shape.kv_heads in (1, shape.heads):
        return
    order = torch.arange(shape.heads).view(-1, shape.kv_heads).T.flatten()
    q, k, v, dout = problem.clean.tensors()
    found = truth(q[:, order], k, v, dout[:, order], problem.mask, problem.rows, problem.case.scale, terms=False)
    back = order.argsort()
    predicted = {name: getattr(found, name)[:, back] for name in ("out", "lse", "dq")}
    yield Guess("query head h reads key/value head h % Hkv", "A8", predicted | {"dk": found.dk, "dv": found.dv})


def local_only(evidence: Evidence) -> Iterator[Guess]:
    if evidence.world > 1:
        rows = evidence.problem.rows.with_metadata(owner=evidence.owner)
        mask = Mask((*evidence.problem.mask.rules, SameRank()))
        yield Guess("each rank attends only its own keys", "D9", evidence.under(mask, rows, OWN))


def not_accumulated(evidence: Evidence) -> Iterator[Guess]:
    """dK and dV hold what the owner's own queries give, and nothing of other ranks."""
    problem = evidence.problem
    if evidence.world == 1:
        return
    dk, dv = torch.zeros_like(problem.truth.dk), torch.zeros_like(problem.truth.dv)
    q, k, v, dout = problem.clean.tensors()
    for rank in range(evidence.world):
        held = (evidence.owner == rank)[:, None, :, None]
        found = truth(q, k, v, dout.masked_fill(~held, 0), problem.mask, problem.rows, problem.case.scale, terms=False)
        dk, dv = torch.where(held, found.dk, dk), torch.where(held, found.dv, dv)
    yield Guess("gradients of keys hold only what their own rank's queries give", "B4", {"dk": dk, "dv": dv})


def refilled(evidence: Evidence) -> Iterator[Guess]:
    rows = contract.copied(evidence.problem.rows)
    if contract.metadata(rows):
        contract.refill(rows)
        yield Guess("metadata is read after its buffers were refilled", "D3", evidence.under(rows=rows, scale=OWN))


def base_two(evidence: Evidence) -> Iterator[Guess]:
    yield Guess("lse is a logarithm of base 2", "B2", {"lse": evidence.problem.truth.lse / math.log(2)})


def dead_zero(evidence: Evidence) -> Iterator[Guess]:
    lse = evidence.problem.truth.lse
    if bool(lse.isinf().any()):
        words = "lse of rows that see no key is 0, not minus infinity"
        yield Guess(words, "B3", {"lse": lse.masked_fill(lse.isinf(), 0)})


def factor(evidence: Evidence) -> Iterator[Guess]:
    """All failed tensors are the truth times one number, everywhere or on one rank."""
    if "lse" in evidence.failed:
        return
    for rank in (None, *(range(evidence.world) if evidence.world > 1 else ())):
        held = evidence.owner >= 0 if rank is None else evidence.owner == rank
        held = held[:, None, :, None]
        true = {name: getattr(evidence.problem.truth, name) for name in evidence.failed}
        size = sum(float((true[name] ** 2 * held).sum()) for name in true)
        inner = sum(float((true[name] * evidence.actual[name].double() * held).sum()) for name in true)
        ratio = inner / size if size else 1.0
        if math.isfinite(ratio) and abs(ratio - 1) > 1e-3:
            place = "" if rank is None else f" on rank {rank}"
            words = "0" if abs(ratio) < 1e-12 else f"{ratio:.4g} times the truth"
            predicted = {name: torch.where(held, x * ratio, x) for name, x in true.items()}
            yield Guess(f"{', '.join(true)}: {words}{place}", "B1" if "out" in true else "B4", predicted)


HYPOTHESES = (base_two, dead_zero, factor, refilled, scale, rule_ignored, window_shifted, other_variant,
              heads_interleaved, local_only, not_accumulated)
