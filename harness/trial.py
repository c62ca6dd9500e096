"""case -> shard -> implementation -> gather -> compare -> record, once, on every rank of a trial."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from cases.case import Case
from harness import audit, clock, contract, entries, promises
from harness.attempt import Answer, attempt
from harness.clock import Measured, Timing
from harness.compare import Verdict, breached
from harness.contract import Breach
from harness.course import follow
from harness.diagnose import diagnose
from harness.error_maps import error_maps
from harness.implementation import Implementation, Session, Setting
from harness.judging import judge, side_by_side
from harness.problem import Problem, problem_of
from harness.ranks import Ranks
from harness.surroundings import Surroundings
from harness.turns import Turns, alone

UNTIMED = Timing(iters=0)


def run_trial(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing = UNTIMED,
              spec: str | None = None, diagnosed: bool = True) -> dict[str, Any] | None:
    """Runs one case on all ranks. Returns the trial record of docs/design.md on rank 0 and None elsewhere.

    Without `diagnosed` a failure is not explained, which takes most of its time.
    What an implementation raises passes through: whoever holds the ranks decides how to end the others.
    """
    return alone(turns(case, implementation, ranks, timing, spec, diagnosed=diagnosed))


def turns(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing, spec: str | None = None,
          seed: Callable[[], int] | None = None, diagnosed: bool = True) -> Turns[dict[str, Any] | None]:
    """The same with a pause before each timed lap and behind the last. `seed` gives that of the numbers which are
    verified after timing, and is asked when no lap is left."""
    started = time.perf_counter()
    about = entries.About(case, implementation, spec or implementation.name, ranks.device.type)
    layout, verdict = agree(case, implementation, ranks)
    if verdict:
        return about.entry(verdict, started, ranks) if ranks.group.rank == 0 else None

    problem = problem_of(case, implementation.variants)
    with Surroundings(ranks.group.rank) as around:
        session, verdict = opened(implementation, case, ranks)
        if verdict:
            return about.entry(verdict, started, ranks) if ranks.group.rank == 0 else None
        answers = follow(session, case, implementation, layout, ranks)
        moved = audit.traffic(session, ranks)
        broken = any(answer.breaches for answer in answers)
        measured, again = None, []
        if timing.iters and case.timeable and not broken:
            measured, again = yield from around.between(timed(session, problem, layout, ranks, timing, seed))
        session.close()
        answers[0].breaches += [breach for part in ranks.all_gather(around.changed()) for breach in part]
    answers += again
    found = side_by_side(answers, layout, ranks)
    if ranks.group.rank != 0:
        return None

    answers[0].breaches += audit.breaches(case, problem.mask, layout, moved)
    for number, (asked, sent) in enumerate(answers[0].sent):
        when = f" in step {number + 1}" if number else ""
        answers[0].breaches += audit.lavish(asked.case, asked.mask, layout, sent, when)
    verdict, decides = judge(answers, layout, found)
    others = {other.of: other.problem for other in answers if other.of and other.of != decides.of}
    diagnosis = diagnose(verdict, decides, decides.problem, layout, about, others) if diagnosed else None
    diagnosis = about.amid(decides, diagnosis)
    told = about.entry(verdict, started, ranks, layout, problem, moved.completed(measured and measured.record),
                       diagnosis, moved)
    maps = error_maps(verdict, decides) if diagnosed else None
    return told | {"timeline": measured and measured.timeline, "error_maps": maps}


def timed(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks, timing: Timing,
          seed: Callable[[], int] | None) -> Turns[tuple[Measured, list[Answer]]]:
    """The measurement, and what the very step that was timed answers to numbers that it cannot know, written to the
    tensors that it was timed with."""
    measured = yield from clock.measure(session, problem, layout, ranks, timing)
    drawn = seed() if seed else fresh_seed(ranks)
    fresh = problem_of(problem.case, problem.variants, drawn)
    answer = attempt(session, fresh, layout, ranks, measured.step, measured.used(drawn))
    answers = [replace(answer, what="after timing", requirement="D3")]
    for number, sent in enumerate(measured.sent if problem.case.course.strict and ranks.group.rank == 0 else ()):
        lavish = audit.lavish(problem.case, problem.mask, layout, sent, f" in lap {number + 1}")
        answers += [Answer(breaches=lavish, problem=problem)] if lavish else []
    return measured, answers


def agree(case: Case, implementation: Implementation, ranks: Ranks) -> tuple[list[Tensor], Verdict | None]:
    """Refusal and layout, which must be the same on every rank (SPEC D6, D7); a Verdict ends the trial here."""
    said, broken = promises.kept(ranks, lambda: _said(case, implementation, ranks))
    if broken:
        return [], breached(broken)
    refusal, layout = said
    told = ranks.all_gather((refusal, contract.layout_digest(layout)))
    refusals, digests = zip(*told, strict=True)
    if len(set(refusals)) > 1:
        answers = "; ".join(map(str, refusals))
        breach = Breach("D7", "ranks disagree on whether to refuse", "one answer", answers)
    elif refusal:
        return layout, Verdict("PASS", f"refuses: {refusal}") if case.refused else Verdict("SKIP", refusal)
    elif case.refused:
        breach = Breach("D7", f"{case.mask} is not refused", "a reason", "none")
    elif len(set(digests)) > 1:
        breach = Breach("D6", "ranks disagree on the layout", "one layout", ", ".join(digests))
    else:
        breach = contract.layout_breach(layout, case, ranks.group.size, implementation)
    if breach:
        return layout, breached([breach])
    return contract.positions_of(layout, case.shape.batch), None


def opened(implementation: Implementation, case: Case, ranks: Ranks) -> tuple[Session | None, Verdict | None]:
    """The session of this rank, or the Verdict that ends the trial."""
    session, broken = promises.kept(ranks, lambda: promises.session(implementation, case, ranks.group))
    return session, breached(broken) if broken else None


def _said(case: Case, implementation: Implementation, ranks: Ranks) -> tuple[str | None, list[Tensor]]:
    size, rank = ranks.group.size, ranks.group.rank
    setting = Setting(size, ranks.device.type, ranks.group.shared is not None, case.course.recomputes)
    with promises.silent("refuses", "D7", ranks):
        refusal = promises.refusal(implementation, case, setting, rank)
    if refusal:
        return refusal, []
    with promises.silent("layout", "contract", ranks):
        return refusal, promises.layout(implementation, case, size, rank)


def fresh_seed(ranks: Ranks) -> int:
    """A seed that an implementation cannot know before timing ends; rank 0's draw on every rank."""
    return ranks.all_gather(int.from_bytes(os.urandom(4), "little"))[0]
