"""Guesses about what came from which rank and how parts were merged."""

from collections.abc import Iterator

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence, Guess


def local_only(evidence: Evidence) -> Iterator[Guess]:
    if evidence.world > 1:
        yield from evidence.over("each rank attends only its own keys", "D9",
                                 evidence.allowed & (evidence.apart == 0))


def hop_missing(evidence: Evidence) -> Iterator[Guess]:
    world = evidence.world
    for hop in range(world if world > 1 else 0):
        words = f"the keys of hop {hop} are missing" if hop else "a rank's own keys are missing"
        yield from evidence.over(words, "B1", evidence.allowed & (evidence.apart != hop))
    for hop in range(2, world):
        yield from evidence.over(f"hops from {hop} on are missing", "B1", evidence.allowed & (evidence.apart < hop))


def rank_missing(evidence: Evidence) -> Iterator[Guess]:
    if evidence.world == 1:
        return
    for rank in range(evidence.world):
        keys = (evidence.owner == rank)[:, None, None]
        yield from evidence.over(f"the keys of rank {rank} are missing", "B1", evidence.allowed & ~keys)
        for other in range(evidence.world):
            pairs = keys & (evidence.owner == other)[:, None, :, None]
            yield from evidence.over(f"rank {other} misses the keys of rank {rank}", "B1", evidence.allowed & ~pairs)


def edge_missing(evidence: Evidence) -> Iterator[Guess]:
    """The first or the last key of every shard, or of the row, is left out."""
    local, owner = evidence.local, evidence.owner
    length = torch.stack([(owner == rank).sum(1) for rank in range(evidence.world)], 1).gather(1, owner)
    tokens = local.shape[1]
    last_of_row = torch.arange(tokens).expand_as(local) == tokens - 1
    edges = {"the last key of every shard is left out": local == length - 1,
             "the first key of every shard is left out": local == 0, "the last key of the row is left out": last_of_row,
             "an odd key at the end of every shard is left out": (local == length - 1) & (length % 2 == 1)}
    for words, edge in edges.items():
        yield from evidence.over(words, "B1", evidence.allowed & ~edge[:, None, None])
        if evidence.world > 1:
            remote = edge[:, None, None] & (evidence.apart != 0)
            yield from evidence.over(f"{words}, on other ranks", "B1", evidence.allowed & ~remote)


def counted_twice(evidence: Evidence) -> Iterator[Guess]:
    for hop in range(evidence.world if evidence.world > 1 else 0):
        twice = (evidence.apart == hop).double().mul(torch.tensor(2.0).log())
        words = f"the keys of hop {hop} are counted twice" if hop else "a rank's own keys are counted twice"
        yield from evidence.over(words, "B1", evidence.allowed, bias=twice)


def wrong_chunk(evidence: Evidence) -> Iterator[Guess]:
    """Each hop's keys, or only its values, are those of another rank."""
    if evidence.world == 1 or not evidence.forward_failed:
        return
    for what in ("keys and values", "keys", "values"):
        for shift, source in ((1, "the next rank"), (-1, "the previous rank")):
            found = _attend(evidence, *(_moved(evidence, shift) if name in what else None
                                        for name in ("keys", "values")))
            yield Guess(f"{what} of a hop are those of {source}", "B1", found)
    found = _attend(evidence, *(_own(evidence),) * 2)
    yield Guess("every hop reads the keys and values of the first one again", "B1", found)


def merged_wrongly(evidence: Evidence) -> Iterator[Guess]:
    """Parts of the ranks, each right, put together in a wrong way."""
    if evidence.world == 1 or not evidence.forward_failed:
        return
    outs, lses = _parts(evidence)
    total, live = lses.logsumexp(0), lses > -torch.inf
    share = (lses - total.masked_fill(total.isinf(), 0)).exp()
    count = live.sum(0).clamp(min=1)[..., None]
    peak = lses.amax(0)
    base_two = torch.where(live, (lses - peak.masked_fill(peak.isinf(), 0)).double(), -torch.inf)
    binary = torch.pow(2.0, base_two)
    binary = binary / binary.sum(0).clamp(min=1e-300)
    exact = (outs * share[..., None]).sum(0)
    sums = {"parts are averaged, not weighted by lse": (outs.sum(0) / count, total),
            "parts are added, not weighted by lse": (outs.sum(0), total),
            "parts are averaged over all ranks": (outs.mean(0), total),
            "lse is the largest part's, its log1p term is dropped": (exact, peak),
            "lse of parts are added": (exact, lses.masked_fill(~live, 0).sum(0)),
            "lse is averaged over parts": (exact, lses.masked_fill(~live, 0).sum(0) / count[..., 0]),
            "parts are weighted by powers of two": ((outs * binary[..., None]).sum(0), total)}
    for words, (out, lse) in sums.items():
        yield Guess(words, "B1", {"out": out, "lse": lse.masked_fill(total.isinf(), -torch.inf)})
    for hop in range(evidence.world):
        yield Guess(f"only hop {hop} is kept", "B1", {"out": outs[hop], "lse": lses[hop]})
        yield Guess(f"lse is that of hop {hop} alone", "B2", {"lse": lses[hop]})
        yield Guess(f"out is that of hop {hop} alone", "B1", {"out": outs[hop]})


HYPOTHESES = (local_only, hop_missing, rank_missing, edge_missing, counted_twice, wrong_chunk, merged_wrongly)


def _parts(evidence: Evidence) -> tuple[Tensor, Tensor]:
    """out `[W, B, Hq, S, Dv]` and lse `[W, B, Hq, S]` of each hop's keys alone."""
    parts = [evidence.weights(evidence.allowed & (evidence.apart == hop)) for hop in range(evidence.world)]
    return torch.stack([weights @ evidence.v for weights, _ in parts]), torch.stack([lse for _, lse in parts])


def _moved(evidence: Evidence, shift: int) -> Tensor:
    """`[B, Sq, Sk]`: the token that stands in the place of each key, of the rank `shift` further; own keys stay."""
    tokens = _places(evidence)
    moved = tokens[(torch.arange(evidence.world) + shift) % evidence.world]
    place = moved[evidence.owner, evidence.local.clamp(max=moved.shape[1] - 1)]
    own = torch.arange(evidence.owner.shape[1]).expand_as(evidence.owner)
    return torch.where(evidence.apart[:, 0] == 0, own[:, None], place[:, None])


def _own(evidence: Evidence) -> Tensor:
    """`[B, Sq, Sk]`: the token of the query's own rank in the place of each key."""
    tokens = _places(evidence)
    place = evidence.local.clamp(max=tokens.shape[1] - 1)
    return tokens[evidence.owner[:, :, None], place[:, None]]


def _places(evidence: Evidence) -> Tensor:
    """`[W, L]`: position of each place of each rank, of the first batch row; short ranks repeat their last."""
    held = [(evidence.owner[0] == rank).nonzero()[:, 0] for rank in range(evidence.world)]
    longest = max(map(len, held))
    filled = [torch.cat([part, part.new_full((longest - len(part),), int(part[-1]) if len(part) else 0)])
              for part in held]
    return torch.stack(filled)


def _attend(evidence: Evidence, keys: Tensor | None, values: Tensor | None) -> dict[str, Tensor]:
    """out and lse when pair (i, j) reads the key of token keys[b, i, j] and the value of values[b, i, j]."""
    scores = evidence.scores
    heads = scores.shape[1]
    if keys is not None:
        scores = scores.gather(-1, keys[:, None].expand(-1, heads, -1, -1))
    scores = (scores * evidence.scale).masked_fill(~evidence.allowed, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse.isinf(), 0)[..., None]).exp()
    if values is not None:
        index = values[:, None].expand(-1, heads, -1, -1)
        weights = torch.zeros_like(weights).scatter_add_(-1, index, weights)
    return {"out": weights @ evidence.v, "lse": lse}
