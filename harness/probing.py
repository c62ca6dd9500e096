"""Trials without a dense truth: exact probes show every row's mask and the routes of gradients (SPEC C)."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from cases.case import Case
from cases.work import dead_rows
from harness import audit, clock, compare, inputs
from harness.attempt import Answer, attempt
from harness.clock import Timing
from harness.compare import Deviation, Verdict, Where
from harness.entries import About, requirement
from harness.implementation import Implementation, Session, Step
from harness.inputs import DTYPES, Numbers
from harness.ranks import Ranks
from harness.trial import agree, fresh_seed, opened
from harness.turns import Turns, alone
from reference import probes
from reference.probes import Difference, Probe

MOST, ELEMENTS = 32, 1 << 27


class Probed:
    """A case asked with the inputs of probe `first`, in the place of a Problem."""

    def __init__(self, case: Case, variants: frozenset[str], first: int, device: torch.device):
        self.case, self.variants, self.first, self.device = case, variants, first, device
        self.mask = case.mask.under(variants)
        shape = case.shape
        self.rows = self.mask.rows(shape.batch, shape.tokens, shape.kv_heads)

    @property
    def given(self) -> Numbers:
        """Whole rows on the device, made anew each time: long ones take as much room as a model's."""
        shape = self.case.shape
        asked = probes.questions(self.rows, shape.heads, shape.head_dim, shape.v_dim, DTYPES[self.case.dtype],
                                 self.first, self.device)
        clean = Numbers(*asked)
        if "dead.undefined" in self.variants:
            clean = replace(clean, dout=clean.dout.masked_fill(self.dead[..., None].to(self.device), 0))
        return inputs.poisoned(clean, self.case, self.mask, self.rows)

    @cached_property
    def dead(self) -> Tensor:
        """`[B, Hq, S]`: queries that see no key."""
        return dead_rows(self.mask, self.rows).repeat_interleave(self.case.shape.heads // self.rows.groups, 1)

    @cached_property
    def probe(self) -> Probe:
        shape = self.case.shape
        return probes.probe(self.mask, self.rows, shape.heads, shape.head_dim, shape.v_dim, DTYPES[self.case.dtype],
                            self.case.scale, self.first, self.device)

    def differences(self, answer: Answer, positions: Tensor) -> dict[str, Difference]:
        """By tensor, of the tokens at `positions` `[B, L]`. What the implementation's variants leave open is not
        judged."""
        judged = ~self.dead if "dead.undefined" in self.variants else None
        whole = None
        if "dead.singleton" in self.variants:
            whole = ~self.rows.padded.all(1)
            judged = (torch.ones_like(self.dead) if judged is None else judged) & whole[:, None, None]
        return probes.differences(self.probe, answer.tensors, judged, whole, positions, self.device)


def run_probes(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing,
               spec: str | None = None) -> dict[str, Any] | None:
    """As `run_trial`, with probes in the place of the truth; the record says how many and what they showed."""
    return alone(turns(case, implementation, ranks, timing, spec))


def turns(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing, spec: str | None = None,
          seed: Callable[[], int] | None = None) -> Turns[dict[str, Any] | None]:
    """As `trial.turns`. Where a step is timed beside its bound, one probe before and one behind are enough."""
    started = time.perf_counter()
    about = About(case, implementation, spec or implementation.name, ranks.device.type, "probes")
    layout, verdict = agree(case, implementation, ranks)
    if not verdict and case.shape.v_dim < probes.COORDINATES:
        verdict = Verdict("SKIP", f"not asked: probes need a value head_dim of at least {probes.COORDINATES}")
    if verdict:
        return about.entry(verdict, started, ranks) if ranks.group.rank == 0 else None
    chosen, needed = firsts(case)
    session, verdict = opened(implementation, case, ranks)
    if verdict:
        return about.entry(verdict, started, ranks) if ranks.group.rank == 0 else None
    judgement = Judgement(session, implementation, case, layout, ranks)
    judgement.ask(chosen[:1])
    moved, measured, line = audit.traffic(session, ranks), None, None
    judgement.ask([] if timing.bound else chosen[1:])
    if timing.iters and judgement.passed:
        timed = yield from clock.measure(session, judgement.posed, layout, ranks, timing)
        measured, line = timed.record, timed.timeline
        drawn = seed() if seed else fresh_seed(ranks)
        judgement.ask([drawn % needed], timed.step, timed.used(drawn))
    session.close()
    if ranks.group.rank != 0:
        return None
    told = judgement.told and judgement.told | {"again": about.again()}
    measured = moved.completed(measured)
    found = about.entry(judgement.verdict, started, ranks, layout, judgement.posed, measured, told, moved)
    shown = {"rounds": judgement.rounds, "shown": min(1.0, judgement.rounds / needed)}
    return found | {"timeline": line, "probes": shown}


def firsts(case: Case) -> tuple[list[int], int]:
    """Which probes a case gets, spread over as many as would show every query of every head."""
    shape = case.shape
    needed = probes.rounds(case.rows(), shape.heads, shape.head_dim, shape.v_dim)
    each = shape.batch * shape.heads * shape.tokens * (shape.head_dim + shape.v_dim)
    count = max(1, min(needed, max(2, min(MOST, ELEMENTS // each))))
    return [number * needed // count for number in range(count)], needed


class Judgement:
    """A session's answers held to probes until one is wrong; deviations are the largest of each tensor over them.

    rounds   probes asked so far
    passed   whether all were answered right, the same on every rank
    verdict, posed, told  rank 0: the verdict so far, the last probe, and the diagnosis
    """

    def __init__(self, session: Session, implementation: Implementation, case: Case, layout: list[Tensor],
                 ranks: Ranks):
        self.session, self.variants, self.case = session, implementation.variants, case
        self.layout, self.ranks = layout, ranks
        self.worst: dict[str, Deviation] = {}
        self.rounds, self.passed, self.verdict, self.told = 0, True, Verdict("PASS"), None
        self.posed: Probed | None = None

    def ask(self, chosen: list[int], step: Step | None = None, used: Numbers | None = None) -> None:
        """Asks probes of `step` in the tensors `used`; without them, of a fresh step in fresh tensors."""
        for first in chosen if self.passed else ():
            self.rounds += 1
            self.posed = probed(self.case, self.variants, first, self.ranks.device)
            answer = attempt(self.session, self.posed, self.layout, self.ranks, step, used, gathered=False)
            found = self._compared(answer)
            if self.ranks.group.rank == 0:
                self.verdict, self.told = _verdict(answer, found, self.posed, self.layout, self.worst)
            self.passed = self.ranks.all_gather(self.verdict.name)[0] == "PASS"
            if not self.passed:
                return

    def _compared(self, answer: Answer) -> dict[str, Difference]:
        """By tensor, over all ranks: each looks at the tokens that it holds."""
        ranks = self.ranks
        own = {} if answer.breaches else self.posed.differences(answer, self.layout[ranks.group.rank])
        every = ranks.all_gather(own)
        return {name: probes.first_of([part[name] for part in every]) for name in own}


@lru_cache(maxsize=2)
def probed(case: Case, variants: frozenset[str], first: int, device: torch.device) -> Probed:
    """Kept for the next implementation that is asked the same."""
    return Probed(case, variants, first, device)


def _verdict(answer: Answer, found: dict[str, Difference], posed: Probed, layout: list[Tensor],
             worst: dict[str, Deviation]) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict on one probe; `worst` collects the largest ratio of each tensor over the probes so far."""
    if answer.breaches:
        first = answer.breaches[0]
        return Verdict("FAIL", f"{first.requirement}: {first.headline}", breaches=answer.breaches), None
    asked = ["out", "lse", *(f"d{name}" for name in "qkv" if name in posed.case.inputs.grads)]
    for name in asked:
        one = _deviation(name, found.get(name), posed, layout)
        if name not in worst or (one.ratio or 0) >= (worst[name].ratio or 0):
            worst[name] = one
    deviations = list(worst.values())
    failed = [one for one in deviations if one.failed]
    if not failed:
        return Verdict("PASS", None, deviations), None
    order = [found[name] for name in ("lse", "out", "dv", "dk", "dq") if name in found]
    first = next(one for one in order if not one.ratio <= 1)
    reason = f"{compare.REQUIREMENTS[first.tensor]}: {', '.join(one.tensor for one in failed)} differ from the probe"
    return Verdict("FAIL", reason, deviations), _told(first, posed, layout)


def _deviation(name: str, found: Difference | None, posed: Probed, layout: list[Tensor]) -> Deviation:
    level = "strict" if posed.case.inputs.strict else "required"
    if found is None:
        return Deviation(name, compare.REQUIREMENTS[name], None, level=level)
    batch, head, token, *dim = found.index
    documents = posed.rows.documents
    where = Where(batch, head, token, dim[0] if dim else None, compare.owner(layout, batch, token),
                  None if documents is None else int(documents[batch, token]))
    return Deviation(name, compare.REQUIREMENTS[name], found.ratio, found.error, found.allowance, level, where,
                     found.expected, found.actual)


def _told(found: Difference, posed: Probed, layout: list[Tensor]) -> dict[str, Any]:
    """`diagnosis` of the record, all but the command."""
    batch, head, token = found.index[:3]
    rank = compare.owner(layout, batch, token)
    return {"headline": _words(found, posed, rank), "requirement": requirement(compare.REQUIREMENTS[found.tensor]),
            "expected": f"{found.tensor}{list(found.index)} = {found.expected:.6g}", "actual": f"{found.actual:.6g}",
            "place": f"rank {rank}, token {token}, head {head}, row {batch}"}


def _words(found: Difference, posed: Probed, rank: int) -> str:
    _, head, token = found.index[:3]
    if found.tensor == "lse":
        count = round(math.exp(found.expected))
        counted = torch.tensor(found.actual).exp().item()
        return f"query {token} of head {head} (rank {rank}) sees {counted:.6g} keys, not {count}"
    if found.tensor == "out":
        return f"query {token} of head {head} (rank {rank}) sees as many keys as it should, but others, or other heads'"
    if found.tensor == "dq":
        return f"dq of query {token} (rank {rank}) is not 0 though all keys are"
    if found.query is None:
        return f"{found.tensor} of key {token} (rank {rank}) sums other queries than it should"
    what = "does not reach" if found.actual == 0 else "reaches, with a wrong weight," if found.expected else "reaches"
    return (f"{found.tensor}: what query {found.query[1]} of head {found.query[0]} gives {what} key {token} "
            f"(rank {rank})")
