"""The keys that each query really saw, read off its lse and out: no list of mistakes is needed.

The sum of exp(score) over the keys that a query saw is exp(lse). In fp64 there is as a rule just one run of keys that,
added to those it may see, taken away from them or put in their place, gives that sum; out then confirms it. Selected
regions may change in many places at once: there the regions seen follow from lse and out by least squares.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from cases.mask import Mask
from harness.hypotheses.evidence import Evidence, Guess

CLOSE, CONFIRMED, MOST = 1e-9, 1e-6, 0.85


@dataclass(frozen=True)
class Seen:
    """Rows of one head `[R]`: exponentials of all keys `[R, S]`, what may be seen, the sum that was, and times out."""

    exponentials: Tensor
    allowed: Tensor
    total: Tensor
    numerator: Tensor
    values: Tensor

    def confirmed(self, pairs: Tensor) -> Tensor:
        """`[R]`: whether keys `[R, S]` give the sum and the numerator that were seen."""
        weights = self.exponentials * pairs
        size = self.total.abs().clamp(min=1e-300)
        off = (weights.sum(1) - self.total).abs() / size
        apart = (weights @ self.values - self.numerator).abs().amax(1)
        return (off <= CLOSE) & (apart <= CONFIRMED * size * self.values.abs().max().clamp(min=1))


def recovered(evidence: Evidence) -> Iterator[Guess]:
    """The mask that the forward followed, where it can be told for most wrong queries."""
    if not evidence.forward_failed or not {"out", "lse"} <= evidence.actual.keys():
        return
    if evidence.problem.case.dtype != "fp64":
        return
    allowed, wrong, told = evidence.allowed.clone(), 0, 0
    for batch, head in torch.cartesian_prod(*(torch.arange(n) for n in allowed.shape[:2])).tolist():
        rows, seen = _rows(evidence, batch, head)
        if not len(rows):
            continue
        wrong += len(rows)
        for search in (_added, _taken, _replaced, *([_regions] if evidence.problem.rows.selected is not None else [])):
            pairs = search(seen) if search is not _regions else _regions(seen, evidence, batch, head, rows)
            right = seen.confirmed(pairs)
            allowed[batch, head, rows[right]] = pairs[right]
            told += int(right.sum())
            rows, seen = rows[~right], _kept(seen, ~right)
            if not len(rows):
                break
    if wrong and told >= MOST * wrong and not torch.equal(allowed, evidence.allowed):
        words, requirement = classified(evidence, allowed)
        yield from evidence.over(words, requirement, allowed)


def _rows(evidence: Evidence, batch: int, head: int) -> tuple[Tensor, Seen | None]:
    """Queries whose lse or out is wrong, and what they saw."""
    at = batch, head
    scores = evidence.scores[at] * evidence.scale
    lse, out = (evidence.actual[name][at].double() for name in ("lse", "out"))
    true = [getattr(evidence.problem.truth, name)[at] for name in ("lse", "out")]
    same = ((lse == true[0]) | ((lse - true[0]).abs() <= CLOSE)) & ((out - true[1]).abs().amax(1) <= CONFIRMED)
    usable = ~same & ~lse.isnan() & (lse < torch.inf) & out.isfinite().all(1)
    rows = usable.nonzero()[:, 0]
    peak = scores.amax(1)[rows]
    exponentials = (scores[rows] - peak[:, None]).exp()
    total = (lse[rows] - peak).exp()
    return rows, Seen(exponentials, evidence.allowed[at][rows], total, total[:, None] * out[rows], evidence.v[at])


def _kept(seen: Seen, rows: Tensor) -> Seen:
    return Seen(seen.exponentials[rows], seen.allowed[rows], seen.total[rows], seen.numerator[rows], seen.values)


def _added(seen: Seen) -> Tensor:
    """The allowed keys and one run of others."""
    rest = seen.total - (seen.exponentials * seen.allowed).sum(1)
    return seen.allowed | (_run(seen.exponentials * ~seen.allowed, rest) & ~seen.allowed)


def _taken(seen: Seen) -> Tensor:
    """The allowed keys without one run of them."""
    rest = (seen.exponentials * seen.allowed).sum(1) - seen.total
    return seen.allowed & ~_run(seen.exponentials * seen.allowed, rest)


def _replaced(seen: Seen) -> Tensor:
    """One run of keys, whatever is allowed."""
    return _run(seen.exponentials, seen.total)


def _run(weights: Tensor, wanted: Tensor) -> Tensor:
    """`[R, S]` bool: the run of keys whose weights come closest to a sum."""
    before = torch.nn.functional.pad(weights.cumsum(1), (1, 0))
    ends = torch.searchsorted(before, before + wanted[:, None].clamp(min=0)).clamp(max=before.shape[1] - 1)
    choices = torch.stack([(ends - 1).clamp(min=0), ends], -1)
    off = (before[:, :, None] + wanted[:, None, None] - before.gather(1, choices.flatten(1)).view_as(choices)).abs()
    best = off.flatten(1).argmin(1)
    start, end = best // 2, choices.flatten(1).gather(1, best[:, None])[:, 0]
    place = torch.arange(weights.shape[1])
    return (place >= start[:, None]) & (place < end[:, None])


def _regions(seen: Seen, evidence: Evidence, batch: int, head: int, rows: Tensor) -> Tensor:
    """The regions whose keys give the sum and the numerator, other rules as they are."""
    problem = evidence.problem
    others = Mask(tuple(rule for rule in problem.mask.rules if rule.name != "regions"))
    free = evidence.pairs(others)[batch, head, rows]
    region = torch.nn.functional.one_hot(problem.rows.token_regions[batch], problem.rows.regions).double()
    weights = seen.exponentials * free
    sums = torch.cat([(weights @ region)[:, None], torch.einsum("rs,sd,sg->rdg", weights, seen.values, region)], 1)
    wanted = torch.cat([seen.total[:, None], seen.numerator], 1)[..., None]
    if sums.shape[1] < sums.shape[2]:
        return seen.allowed
    found = torch.linalg.lstsq(sums + 0.0, wanted, driver="gelsd").solution[..., 0]
    return free & ((found > 0.5).double() @ region.T > 0)


def classified(evidence: Evidence, seen: Tensor) -> tuple[str, str]:
    """What the pairs that were seen say, and the SPEC id that speaks of them."""
    extra, missing = seen & ~evidence.allowed, evidence.allowed & ~seen
    if bool(extra.any()):
        name, requirement = _against(evidence, extra)
        return f"{_example(extra, 'sees')}: {name}", requirement
    name, requirement = _lacking(evidence, missing)
    return f"{_example(missing, 'never sees')}: {name}", requirement


def _example(pairs: Tensor, verb: str) -> str:
    """The first query with such a pair and its nearest key."""
    batch, head, query, _ = pairs.nonzero()[0].tolist()
    keys = pairs[batch, head, query].nonzero()[:, 0]
    key = int(keys[(keys - query).abs().argmin()])
    count = int(pairs.sum())
    return f"query {query} {verb} key {key}" + (f", one of {count} such pairs" if count > 1 else "")


def _against(evidence: Evidence, extra: Tensor) -> tuple[str, str]:
    """The rule that most of the pairs are against."""
    rows, tokens = evidence.problem.rows, torch.arange(evidence.problem.rows.tokens)
    padded = rows.padded[:, None, None] | rows.padded[:, None, :, None]
    if bool((extra & padded).sum() * 2 > extra.sum()):
        return "one of them is padding", "A4"
    if rows.token_types is not None:
        vision = (rows.token_types > 0)[:, None, None] | (rows.token_types > 0)[:, None, :, None]
        near = vision | vision.roll(1, 3) | vision.roll(-1, 3)
        documents = [rule for rule in evidence.problem.mask.rules if rule.name == "documents"]
        inside = documents[0].allowed(rows, tokens, tokens) if documents else True
        if bool((extra & near & inside).sum() * 2 > extra.sum()):
            return "groups of vision tokens are misread", "A5"
    counts = {}
    for rule in evidence.problem.mask.rules:
        if not rule.widens:
            ruled = rule.allowed(rows, tokens, tokens)
            ruled = ruled.expand(ruled.shape[0] if ruled.dim() == 4 else 1, *[-1] * 3) if ruled.dim() == 4 else ruled
            if ruled.dim() == 4 and ruled.shape[1] not in (1, extra.shape[1]):
                ruled = ruled.repeat_interleave(evidence.heads, 1)
            counts[rule] = int((extra & ~ruled).sum())
    rule = max(counts, key=counts.get, default=None)
    if rule is None or not counts[rule]:
        return "no rule allows it", "A7"
    said = {"causal": "the causal rule forbids a later key", "documents": "it crosses a document",
            "regions": "its region is not selected", "window": "it is outside of the window"}
    return said.get(rule.name, f"against the rule {rule.name}"), rule.requirement


def _lacking(evidence: Evidence, missing: Tensor) -> tuple[str, str]:
    """What the pairs that were not seen have in common."""
    rows, rules = evidence.problem.rows, {rule.name: rule for rule in evidence.problem.mask.rules}
    batch, head, query, key = missing.nonzero().unbind(1)
    if bool((query == key).all()):
        return "no query sees itself, which the causal rule lets it", "A1"
    plain = evidence.pairs(Mask(tuple(rule for rule in rules.values() if rule.name != "vision")))
    if "vision" in rules and bool((missing & ~plain).any()):
        return "groups of vision tokens are misread", "A5"
    if "regions" in rules:
        return "its region is selected", "A6"
    remote = (evidence.apart != 0).expand_as(missing)
    here = evidence.allowed & ~remote
    if evidence.world > 1 and not bool((missing & ~remote).any()) and bool(here.any()):
        return "it is on another rank", "D1"
    if evidence.world > 1 and not bool((missing & remote).any()) and bool(missing.sum() > 0.8 * here.sum()):
        return "it is on the query's own rank", "D1"
    distance = query - key
    if "window" in rules and torch.equal(missing, evidence.allowed & _further(missing, int(distance.min()))):
        return "the window holds it", "A2"
    if bool(rows.padded.any()) and _beside_padding(evidence, missing):
        return "none of them is padding, but the next one is", "A4"
    if "documents" in rules:
        return "both are of one document", "A3"
    if rows.padding is not None:
        return "neither is padding", "A4"
    return ("the window holds it", "A2") if "window" in rules else ("it may", "A1" if "causal" in rules else "B1")


def _further(pairs: Tensor, distance: int) -> Tensor:
    """Pairs that are as far apart as that, or further."""
    place = torch.arange(pairs.shape[-1])
    return (place[:, None] - place >= distance).expand_as(pairs)


def _beside_padding(evidence: Evidence, missing: Tensor) -> bool:
    """Whether some tokens are left out altogether, and each of them stands next to padding."""
    lost_keys, lost_queries = (missing.any(dim) & ~(evidence.allowed & ~missing).any(dim) for dim in (2, 3))
    padded = evidence.problem.rows.padded
    beside = torch.zeros_like(padded)
    beside[:, 1:] |= padded[:, :-1]
    beside[:, :-1] |= padded[:, 1:]
    lost = (lost_keys | lost_queries) & beside[:, None]
    return not bool((missing & ~lost[:, :, None] & ~lost[..., None]).any())
