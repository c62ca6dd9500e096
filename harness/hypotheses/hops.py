"""Guesses about what came from which rank and how parts were merged."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence, Guess, Tensors


def local_only(evidence: Evidence) -> Iterator[Guess]:
    if evidence.world > 1:
        yield from evidence.over("each rank attends only its own keys", "D1",
                                 evidence.allowed & (evidence.apart == 0))


def hop_missing(evidence: Evidence) -> Iterator[Guess]:
    world = evidence.world
    for hop in range(world if world > 1 else 0):
        words = f"the keys of hop {hop} are missing" if hop else "a rank's own keys are missing"
        yield from evidence.over(words, "D1", evidence.allowed & (evidence.apart != hop))
    for hop in range(2, world):
        yield from evidence.over(f"hops from {hop} on are missing", "D1", evidence.allowed & (evidence.apart < hop))
    order = (evidence.owner[:, :, None] - evidence.owner[:, None])[:, None]
    for words, kept in (("earlier", order >= 0), ("later", order <= 0)) if world > 1 else ():
        yield from evidence.over(f"only keys of {words} ranks are seen", "D1", evidence.allowed & kept)


def rank_missing(evidence: Evidence) -> Iterator[Guess]:
    if evidence.world == 1:
        return
    for rank in range(evidence.world):
        keys = (evidence.owner == rank)[:, None, None]
        yield from evidence.over(f"the keys of rank {rank} are missing", "D1", evidence.allowed & ~keys)
        remote, hearing = evidence.apart != 0, (evidence.owner == rank)[:, None, :, None]
        yield from evidence.over(f"nobody else sees the keys of rank {rank}", "D1", evidence.allowed & ~(keys & remote))
        yield from evidence.over(f"rank {rank} sees no keys of others", "D1", evidence.allowed & ~(hearing & remote))
        for other in range(evidence.world):
            pairs = keys & (evidence.owner == other)[:, None, :, None]
            yield from evidence.over(f"rank {other} misses the keys of rank {rank}", "D1", evidence.allowed & ~pairs)


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
        yield from evidence.over(words, "D1", evidence.allowed & ~edge[:, None, None])
        if evidence.world > 1:
            remote = edge[:, None, None] & (evidence.apart != 0)
            yield from evidence.over(f"{words}, on other ranks", "D1", evidence.allowed & ~remote)


def counted_twice(evidence: Evidence) -> Iterator[Guess]:
    for hop in range(evidence.world if evidence.world > 1 else 0):
        twice = (evidence.apart == hop).double().mul(torch.tensor(2.0).log())
        words = f"the keys of hop {hop} are counted twice" if hop else "a rank's own keys are counted twice"
        yield from evidence.over(words, "B1", evidence.allowed, bias=twice)


def wrong_chunk(evidence: Evidence) -> Iterator[Guess]:
    """What arrives from other ranks is something else: another rank's, another slot's, or nothing yet. Keys in another
    order show in gradients alone where all of them are seen."""
    if evidence.world == 1:
        return
    own = torch.arange(evidence.owner.shape[1]).expand_as(evidence.apart[:, 0])
    lists = _arrivals(evidence)
    maps = {"those of the next rank": _moved(evidence, 1), "those of the previous rank": _moved(evidence, -1),
            "those of the first hop again": _own(evidence),
            "one slot late": _slots(own, lists, lambda keys: keys.roll(1)),
            "one slot early": _slots(own, lists, lambda keys: keys.roll(-1)),
            "in reverse": _slots(own, lists, lambda keys: keys.flip(0))}
    for hop in range(1, evidence.world):
        maps[f"zeros in hop {hop}"] = own.masked_fill(evidence.apart[:, 0] == hop, -1)
    maps["zeros"] = own.masked_fill(evidence.apart[:, 0] != 0, -1)
    for words, place in maps.items():
        for what, keys, values in (("keys and values", place, place), ("keys", place, own), ("values", own, place)):
            yield _attend(evidence, f"{what} that arrive are {words}", keys, values)
    last = own.new_zeros(evidence.allowed.shape[0], 1, *evidence.allowed.shape[2:], dtype=torch.bool)
    for batch, queries, keys in lists:
        last[batch, 0, queries[:, None], keys[-1:]] = True
    yield from evidence.over("the last key that arrives in a hop is left out", "D1", evidence.allowed & ~last)


def merged_wrongly(evidence: Evidence) -> Iterator[Guess]:
    """Parts of the ranks, each right, put together in a wrong way."""
    if evidence.world == 1 or not evidence.forward_failed:
        return
    outs, lses = _parts(evidence)
    total = lses.logsumexp(0)
    exact = _sum(outs, (lses - _finite(total)).exp())
    for words, (out, lse) in (_weighted(outs, lses, total) | _chosen(outs, lses, total)).items():
        yield from evidence.after(words, "B1", out, lse)
    for words, lse in _lses(lses).items():
        yield from evidence.after(words, "B2", exact, lse.masked_fill(total.isinf(), -torch.inf))
    for hop in range(evidence.world):
        yield from evidence.after(f"only hop {hop} is kept", "B1", outs[hop], lses[hop])
        yield from evidence.after(f"lse is that of hop {hop} alone", "B2", exact, lses[hop])
        yield from evidence.after(f"out is that of hop {hop} alone", "B1", outs[hop], total)


Merged = dict[str, tuple[Tensor, Tensor]]
"""out and lse of a wrong merge, by what is wrong."""


def _weighted(outs: Tensor, lses: Tensor, total: Tensor) -> Merged:
    """Parts that weigh other than exp(lse - total)."""
    peak, live, share = lses.amax(0), lses > -torch.inf, (lses - _finite(total)).exp()
    count, first = live.sum(0).clamp(min=1), share[:, :, :1].expand_as(share)
    binary = torch.where(live, torch.pow(2.0, lses - _finite(peak)), 0.0)
    binary = binary / binary.sum(0).clamp(min=1e-300)
    found = {"parts are averaged, not weighted by lse": (outs.sum(0) / count[..., None], total),
             "parts are added, not weighted by lse": (outs.sum(0), total),
             "parts are averaged over all ranks": (outs.mean(0), total),
             "parts are weighted by powers of two": (_sum(outs, binary), total),
             "parts and their lse are merged in powers of two": (_sum(outs, binary), _log2(lses)),
             "parts are weighted by the first head's lse": (_sum(outs, first), total),
             "the largest part's lse is taken for that of all": (_sum(outs, (lses - _finite(peak)).exp()), peak)}
    if len(outs) == 2:
        found["parts carry each other's weight"] = _sum(outs, share.flip(0)), total
    return found


def _chosen(outs: Tensor, lses: Tensor, total: Tensor) -> Merged:
    """Parts that are left out: all but one, or those that weigh little."""
    live, hops = lses > -torch.inf, torch.arange(len(lses)).view(-1, 1, 1, 1)
    never = len(lses)
    places = {"of the largest lse": lses.argmax(0), "that comes last": torch.where(live, hops, -never).argmax(0),
              "that comes first": torch.where(live, hops, never).argmin(0)}
    found = {f"only the part {which} is kept": (_sum(outs, _only(place, lses)), total)
             for which, place in places.items()}
    for least in (4, 6, 8, 10, 12, 16, 20):
        some = lses.masked_fill(lses < lses.amax(0) - least, -torch.inf)
        lse = some.logsumexp(0)
        found[f"parts that weigh below e^-{least} are left out"] = _sum(outs, (some - _finite(lse)).exp()), lse
    return found


def _lses(lses: Tensor) -> dict[str, Tensor]:
    """lse of a merge whose out is right."""
    live = lses > -torch.inf
    finite = lses.masked_fill(~live, 0).sum(0)
    return {"lse is the largest part's, its log1p term is dropped": lses.amax(0), "lse of parts are added": finite,
            "lse is averaged over parts": finite / live.sum(0).clamp(min=1)}


def _sum(outs: Tensor, weights: Tensor) -> Tensor:
    return (outs * weights[..., None]).sum(0)


def _only(place: Tensor, like: Tensor) -> Tensor:
    """Weight 1 for one part of each row, 0 for the others."""
    return torch.nn.functional.one_hot(place, len(like)).movedim(-1, 0).to(like)


def _finite(lse: Tensor) -> Tensor:
    return lse.masked_fill(lse.isinf(), 0)


def _log2(lses: Tensor) -> Tensor:
    """log2 of the sum of powers of two."""
    return torch.logsumexp(lses * math.log(2), 0) / math.log(2)


HYPOTHESES = (local_only, hop_missing, rank_missing, edge_missing, counted_twice, wrong_chunk, merged_wrongly)


def _parts(evidence: Evidence) -> tuple[Tensor, Tensor]:
    """out `[W, B, Hq, S, Dv]` and lse `[W, B, Hq, S]` of each hop's keys alone."""
    parts = [evidence.weights(evidence.allowed & (evidence.apart == hop)) for hop in range(evidence.world)]
    return torch.stack([weights @ evidence.v for weights, _ in parts]), torch.stack([lse for _, lse in parts])


def _arrivals(evidence: Evidence) -> list[tuple[int, Tensor, Tensor]]:
    """(batch row, queries of a rank, keys of another rank that some of them may see), where there are any."""
    found, seen = [], evidence.allowed.any(1)
    for batch in range(seen.shape[0]):
        held = [(evidence.owner[batch] == rank).nonzero()[:, 0] for rank in range(evidence.world)]
        for one in range(evidence.world):
            for other in range(evidence.world):
                keys = held[other][seen[:, held[one]][:, :, held[other]].flatten(0, 1).any(0)]
                if one != other and len(keys):
                    found.append((batch, held[one], keys))
    return found


def _slots(own: Tensor, lists: list[tuple[int, Tensor, Tensor]], change) -> Tensor:
    place = own.clone()
    for batch, queries, keys in lists:
        place[batch, queries[:, None], keys] = change(keys)
    return place


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


def _attend(evidence: Evidence, words: str, keys: Tensor, values: Tensor) -> Guess:
    """Pair (i, j) reads the key of token keys[b, i, j] and the value of values[b, i, j], zeros where that is -1; what
    it gives goes to the owner of j all the same."""
    allowed, heads = evidence.allowed, evidence.scores.shape[1]
    k_at, v_at = (x[:, None].expand(-1, heads, -1, -1) for x in (keys, values))

    def read(x: Tensor, at: Tensor) -> Tensor:
        return x.gather(-1, at.clamp(min=0)).masked_fill(at < 0, 0)

    def put(x: Tensor, at: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter_add_(-1, at.clamp(min=0), x.masked_fill(at < 0, 0))

    scores = (read(evidence.scores, k_at) * evidence.scale).masked_fill(~allowed, -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse.isinf(), 0)[..., None]).exp()
    out = put(weights, v_at) @ evidence.v

    def rest() -> Tensors:
        dweights = read(evidence.dout @ evidence.v.mT, v_at)
        dscores = weights * (dweights - (out * evidence.dout).sum(-1, keepdim=True))
        return evidence.grads(weights, dscores) | {"dq": evidence.scale * put(dscores, k_at) @ evidence.k}

    return Guess(words, "D1", {"out": out, "lse": lse}, rest if evidence.backward_failed else None)
