"""Guesses about a backward that goes wrong after a right forward: who gets which gradient, of what, how often."""

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence, Guess, Tensors


def from_some_hops(evidence: Evidence) -> Iterator[Guess]:
    """Some hops' gradients are lost, or added twice."""
    world = evidence.world
    if world == 1:
        return
    apart = evidence.apart
    for hop in range(world):
        here = (apart == hop).double()
        name = f"of hop {hop}" if hop else "of a rank's own keys"
        yield from _weighted(evidence, f"gradients {name} are lost", 1 - here)
        yield from _weighted(evidence, f"gradients {name} are added twice", 1 + here)
        only = f"hop {hop}" if hop else "what their own rank's queries give"
        yield from _weighted(evidence, f"gradients hold only {only}: copied, not added", here)
    remote = (apart != 0).double()
    yield from _weighted(evidence, "gradients from other ranks are added twice", 1 + remote)
    yield from _weighted(evidence, "gradients from other ranks are averaged", 1 - remote * (1 - 1 / world))
    for rank in range(world):
        queries = (evidence.owner == rank).double()[:, None, :, None]
        yield from _weighted(evidence, f"what the queries of rank {rank} give is missing", 1 - queries)
        yield from _weighted(evidence, f"what the queries of rank {rank} give is added twice", 1 + queries)


def _weighted(evidence: Evidence, words: str, share: Tensor) -> Iterator[Guess]:
    found = evidence.grads(evidence.true_weights * share, evidence.true_dscores * share)
    yield Guess(words, "B4", found)
    yield Guess(f"key {words}", "B4", {name: found[name] for name in ("dk", "dv")})
    for name in ("dq", "dk", "dv"):
        yield Guess(f"{name}: {words}", "B4", {name: found[name]})


def wrong_owner(evidence: Evidence) -> Iterator[Guess]:
    """Gradients of keys arrive at another rank: all of them, or those of other ranks' queries."""
    world, owner, local = evidence.world, evidence.owner, evidence.local
    if world == 1:
        return
    truth = evidence.problem.truth
    kept = evidence.grads(*(x * (evidence.apart == 0) for x in (evidence.true_weights, evidence.true_dscores)))
    for shift in range(1, world):
        moved = {name: _moved(getattr(truth, name), owner, local, world, shift) for name in ("dk", "dv")}
        yield Guess(f"gradients of keys arrive {shift} rank{'s' * (shift > 1)} too far", "B4", moved)
        for name in moved:
            yield Guess(f"{name} arrives {shift} rank{'s' * (shift > 1)} too far", "B4", {name: moved[name]})
        remote = {name: kept[name] + _moved(getattr(truth, name) - kept[name], owner, local, world, shift)
                  for name in moved}
        yield Guess(f"gradients from other ranks arrive {shift} rank{'s' * (shift > 1)} too far", "B4", remote)
    wrong: Tensors = {name: kept[name].clone() for name in ("dk", "dv")}
    for hop in range(1, world):
        here = evidence.apart == hop
        part = evidence.grads(evidence.true_weights * here, evidence.true_dscores * here)
        for name, x in wrong.items():
            x += _moved(part[name], owner, local, world, 2 * hop % world)
    yield Guess("gradients of keys are sent the wrong way round the ring", "B4", wrong)


def _moved(x: Tensor, owner: Tensor, local: Tensor, world: int, shift: int) -> Tensor:
    """Rows of rank r at the same places of rank r + shift; what has no place there is lost."""
    found = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for rank in range(world):
            source, target = ((owner[row] == (rank + by) % world).nonzero()[:, 0] for by in (0, shift))
            length = min(len(source), len(target))
            found[row][:, target[:length]] = x[row][:, source[:length]]
    return found


def from_parts(evidence: Evidence) -> Iterator[Guess]:
    """The backward of each hop uses that hop's own lse or out in place of the global ones."""
    if evidence.world == 1:
        return
    truth, scores = evidence.problem.truth, evidence.scores * evidence.scale
    sums: dict[str, list[Tensor]] = {}
    for hop in range(evidence.world):
        here = evidence.allowed & (evidence.apart == hop)
        own, lse = evidence.weights(here)
        whole = evidence.true_weights * here
        parts = {"lse and out": (own, own @ evidence.v), "lse": (own, truth.out), "out": (whole, own @ evidence.v)}
        for name, (weights, out) in parts.items():
            found = sums.setdefault(name, [torch.zeros_like(scores), torch.zeros_like(scores)])
            found[0] += weights
            found[1] += evidence.dscores(weights, out)
    for name, (weights, dscores) in sums.items():
        yield Guess(f"the backward of a hop uses its local {name}, not the global one{'s' * (' ' in name)}", "B4",
                    evidence.grads(weights, dscores))


def of_other_douts(evidence: Evidence) -> Iterator[Guess]:
    truth, dout = evidence.problem.truth, evidence.dout
    weights = evidence.true_weights
    others = {"dout is ignored: taken to be 1": torch.ones_like(dout), "dout is taken to be positive": dout.abs(),
              "dout of the first token is used for all": dout[:, :, :1].expand_as(dout),
              "dout is read with heads and tokens exchanged": _exchanged(dout, 1, 2),
              "dout is read with tokens and dims exchanged": _exchanged(dout, 2, 3),
              "dout of the token before is read": dout.roll(1, 2), "dout is averaged over heads":
              dout.mean(1, keepdim=True).expand_as(dout)}
    for words, other in others.items():
        found = evidence.grads(weights, evidence.dscores(weights, truth.out, other), dout=other)
        yield Guess(words, "B4", found)


def _exchanged(x: Tensor, one: int, other: int) -> Tensor:
    """The elements of memory, read as if `one` and `other` axes stood the other way round."""
    return x.transpose(one, other).contiguous().view(x.shape)


def of_other_scores(evidence: Evidence) -> Iterator[Guess]:
    """The softmax's own part of the backward is left out or off."""
    truth, weights, dout = evidence.problem.truth, evidence.true_weights, evidence.dout
    straight = weights * (dout @ evidence.v.mT)
    delta = weights * (truth.out * dout).sum(-1, keepdim=True)
    others = {"delta is left out": straight, "delta is added, not subtracted": straight + delta,
              "delta alone is left": -delta, "weights are left out of the scores' gradient":
              (evidence.true_dscores / weights.clamp(min=1e-300)) * evidence.allowed,
              "delta is of values alone, not of out": straight - weights * (evidence.v * dout).sum(-1, keepdim=True)}
    for words, dscores in others.items():
        found = evidence.grads(weights, dscores)
        yield Guess(words, "B4", {name: found[name] for name in ("dq", "dk")})


def of_wrong_tensors(evidence: Evidence) -> Iterator[Guess]:
    truth, dscores, scale = evidence.problem.truth, evidence.true_dscores, evidence.scale
    shape = evidence.problem.case.shape
    if shape.head_dim == shape.v_dim:
        yield Guess("dq is made of values, not of keys", "B4", {"dq": scale * dscores @ evidence.v})
        yield Guess("dk is made of dout, not of queries", "B4",
                    {"dk": evidence.grouped(scale * dscores.mT @ evidence.dout)})
    yield Guess("dk is made of keys, not of queries", "B4", {"dk": evidence.grouped(scale * dscores.mT @ evidence.k)})
    yield Guess("dq is made of queries, not of keys", "B4", {"dq": scale * dscores @ evidence.q})
    yield Guess("dv is made of out, not of dout", "B4",
                {"dv": evidence.grouped(evidence.true_weights.mT @ truth.out)})


HYPOTHESES = (from_parts, of_other_douts, of_other_scores, of_wrong_tensors, wrong_owner, from_some_hops)
