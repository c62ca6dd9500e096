"""One verified call of an implementation: shard, load, forward, backward, gather."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from harness import contract, inputs
from harness.contract import Breach, Untouched
from harness.implementation import Session, Step
from harness.inputs import Numbers
from harness.problem import Problem
from harness.ranks import Ranks


@dataclass
class Answer:
    """Whole out, lse, dq, dk and dv on rank 0 (empty elsewhere, absent when not offered), and broken promises."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    breaches: list[Breach] = field(default_factory=list)


def attempt(session: Session, problem: Problem, layout: list[Tensor], ranks: Ranks) -> Answer:
    """Runs the problem once on all ranks, untimed; layout: positions `[B, L]` a rank."""
    case, rank = problem.case, ranks.group.rank
    local = inputs.shard(problem.given, layout[rank], case, ranks.device)
    wanted = [x.requires_grad_() for name, x in zip("qkv", local.tensors(), strict=False) if name in case.inputs.grads]
    guard = Untouched(q=local.q, k=local.k, v=local.v, dout=local.dout)
    step, breaches = load(session, problem, rank)
    with session.scope():
        out, lse = step(local.q, local.k, local.v)
        breaches += contract.forward_breaches(out, lse, local, case, rank)
        broken = [breach for part in ranks.all_gather(breaches) for breach in part]
        if broken:
            return Answer(breaches=broken)
        grads = gradients(out, wanted, local.dout)
    parts = {"out": out} | ({} if lse is None else {"lse": lse})
    parts |= dict(zip([f"d{name}" for name in "qkv" if name in case.inputs.grads], grads, strict=True))
    late = guard.breaches(rank) + (_kept_graph(session, step, local, rank) if "B8" in case.requirements else [])
    late = [breach for part in ranks.all_gather(late) for breach in part]
    return Answer(_whole(ranks.gather_tensors(parts), layout, case.shape.tokens), late)


def load(session: Session, problem: Problem, rank: int) -> tuple[Step, list[Breach]]:
    """Loads a copy of the metadata, checks it and then refills it, as SPEC D3 lets a data loader do."""
    batch = contract.copied(problem.rows)
    guard = Untouched(**contract.metadata(batch))
    step = session.load(batch)
    breaches = guard.breaches(rank)
    contract.refill(batch)
    return step, breaches


def gradients(out: Tensor, wanted: list[Tensor], dout: Tensor) -> list[Tensor]:
    """Gradients of sum(out * dout); zeros where the graph does not reach."""
    if not out.requires_grad:
        return [torch.zeros_like(x) for x in wanted]
    found = torch.autograd.grad(out, wanted, dout, allow_unused=True)
    return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(wanted, found, strict=True)]


def _kept_graph(session: Session, step: Step, local: Numbers, rank: int) -> list[Breach]:
    with torch.no_grad(), session.scope():
        out, _ = step(local.q, local.k, local.v)
    if not out.requires_grad:
        return []
    return [Breach("B8", f"a graph is kept under no_grad on rank {rank}", "out.requires_grad False", "True", rank)]


def _whole(parts: list[dict[str, Tensor]] | None, layout: list[Tensor], tokens: int) -> dict[str, Tensor]:
    if parts is None:
        return {}
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: inputs.put([part[name] for part in parts], layout, tokens) for name in names}
