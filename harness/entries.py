"""Trial records as docs/design.md describes them, made from what a trial knows at its end."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from cases import catalogue, generate
from cases.case import Case
from harness import audit
from harness.attempt import Answer
from harness.compare import Verdict
from harness.implementation import Implementation
from harness.problem import Problem
from harness.ranks import Ranks


@dataclass(frozen=True)
class About:
    """Who is asked what: enough to describe a trial that never came to an answer."""

    case: Case
    implementation: Implementation
    spec: str
    device: str
    truth: str = "auto"

    def entry(self, verdict: Verdict, started: float, ranks: Ranks | None = None, layout: list[Tensor] | None = None,
              problem: Problem | None = None, measurement: dict[str, Any] | None = None,
              diagnosis: dict[str, Any] | None = None, moved: audit.Traffic | None = None) -> dict[str, Any]:
        """The record of a trial that began at perf_counter `started`."""
        if diagnosis is None and verdict.breaches:
            diagnosis = self.breach(verdict)
        if verdict.name == "ERROR":
            diagnosis = self.broken(verdict)
        return {
            "case": described(self.case),
            "implementation": self.implemented(),
            "truth": "dense" if self.truth == "auto" else self.truth,
            "verdict": verdict.name, "reason": verdict.reason,
            "deviations": [deviation.record() for deviation in verdict.deviations],
            "diagnosis": diagnosis,
            "measurement": measurement,
            "traffic": moved and moved.record(),
            "work": audit.work(self.case, problem.mask, layout) if problem and layout else None,
            "picture": audit.picture(self.case, problem.mask, layout) if problem and layout else None,
            "seconds": time.perf_counter() - started,
        }

    def implemented(self) -> dict[str, Any]:
        """`implementation` of the record."""
        made = self.implementation
        return {"name": made.name, "spec": self.spec, "variants": sorted(made.variants),
                "layout": made.own_layout or self.case.layout, "kernel": made.kernel, "device": self.device}

    def breach(self, verdict: Verdict) -> dict[str, Any]:
        """`diagnosis` of a broken promise."""
        first = verdict.breaches[0]
        place = None if first.rank is None else f"rank {first.rank}"
        return {"headline": first.headline, "requirement": requirement(first.requirement), "expected": first.expected,
                "actual": first.actual, "place": place, "level": first.level, "again": self.again()}

    def broken(self, verdict: Verdict) -> dict[str, Any]:
        """`diagnosis` of a trial that did not come to an answer."""
        headline = verdict.reason.splitlines()[0]
        return {"headline": headline, "requirement": requirement("D8"), "expected": "an answer of every rank",
                "actual": "none", "place": headline.split("; ")[0], "again": self.again()}

    def amid(self, answer: Answer, diagnosis: dict[str, Any] | None) -> dict[str, Any] | None:
        """The diagnosis of one answer of a course, which broke what that step of the course stands for."""
        if not diagnosis or not answer.what:
            return diagnosis
        headline = f"{answer.what}: {diagnosis['headline']}"
        return diagnosis | {"headline": headline, "requirement": requirement(answer.requirement)}

    def again(self) -> str:
        """The command that repeats just this case."""
        return again(self.case, self.spec, self.device, self.truth)


def again(case: Case, spec: str, device: str, truth: str = "auto", start: str | None = None,
          flags: Sequence[str] = ()) -> str:
    """The command that repeats just this case, with further `flags`; what the catalogue does not hold is printed
    whole. `start` is the program with its ranks."""
    named = f"{case.id} --seed {case.seed}" if _in_catalogue(case) else shlex.quote(generate.replay(case))
    asked = [] if truth == "auto" else [f"--truth {truth}"]
    where = [] if device == "cpu" else [f"--device {device}"]
    start = start or f"ringcheck --ranks {case.world}"
    return " ".join([start, "--impl", shlex.quote(spec), "--cases", named, *asked, *where, *flags])


def _in_catalogue(case: Case) -> bool:
    try:
        found = catalogue.select(case.id, worlds=(case.world,), seed=case.seed)
    except ValueError:
        return False
    return case.digest in {other.digest for other in found}


def described(case: Case) -> dict[str, Any]:
    """`case` of the record."""
    shape = case.shape
    return {
        "id": case.id, "name": case.name, "group": case.group, "digest": case.digest,
        "requirements": list(case.requirements), "mask": str(case.mask),
        "rules": [rule.name for rule in case.mask.rules],
        "world": case.world, "layout": case.layout, "dtype": case.dtype,
        "batch": shape.batch, "tokens": shape.tokens, "heads": shape.heads, "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "value_dim": shape.v_dim, "scale": case.scale, "seed": case.seed, "note": case.note,
        "level": "strict" if case.strict else "required",
        "inputs": asdict(case.inputs),
    }


REQUIREMENTS = {
    "A1": "a query sees no later key",
    "A2": "a window of W keys counts the query's own",
    "A3": "nothing crosses a document",
    "A4": "a padded token neither attends nor is attended",
    "A5": "vision tokens of one group see each other",
    "A6": "a key is attended only if its region is selected for the group that the query head reads",
    "A7": "rules compose: every one that narrows must allow a pair",
    "A8": "query head h reads key/value head h // (Hq/Hkv)",
    "A9": "a given scale is used as it is, None means 1/sqrt(head_dim)",
    "B1": "output is the softmax over allowed keys of scale * q.k, times V",
    "B2": "lse is the natural log of the sum of exp(scale * q.k) over allowed keys, fp64 for fp64 and fp32 otherwise, "
          "and carries no gradient",
    "B3": "a query with no allowed key has output 0, lse minus infinity, dQ 0 and adds nothing to dK and dV",
    "B4": "dQ, dK and dV are the gradients of sum(out * dout), summed at the rank that owns the token",
    "B5": "what padded tokens and unseen keys hold changes nothing",
    "B6": "outputs have the dtype of their input and partial results merge in fp32 or better",
    "B7": "q, k, v, dout and metadata are not modified",
    "B8": "no graph is kept under no_grad",
    "D1": "the result does not depend on the number of ranks or on the layout",
    "D2": "the group may be any subset of the world, its chunks in any order",
    "D3": "a later batch, and refilled metadata buffers, change nothing of this one",
    "D4": "recomputed, checkpointed or offloaded tensors give the same gradients",
    "D5": "same inputs twice give the same bits where the implementation declares itself deterministic",
    "D6": "whatever decides a collective is the same on every rank",
    "D7": "what is not supported is refused on every rank",
    "D8": "an exception, a kill or a stall of one rank ends that case within the time limit",
    "D9": "context parallelism really happened",
    "contract": "what harness/implementation.py asks of every method",
}


def requirement(name: str) -> str:
    """A SPEC id with its words in short; a rule of somebody's own has an id that SPEC does not know."""
    return f"{name}: {REQUIREMENTS.get(name, 'a rule beside SPEC')}"
