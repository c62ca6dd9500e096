"""Plan: who sends which keys to whom in which hop, and what each hop computes; the same arithmetic on every rank.

At hop t a rank works on the keys of rank - t, which that rank sends straight to it, and sends its own keys to rank + t.
Only keys that some query of the receiver attends travel. Hops without such keys on either side are left out.
B batch rows, L local tokens, S tokens of a whole row, G key/value heads that the mask tells apart.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from ringcp.layout import Layout
from ringcp.mask import Mask
from ringcp.spans import spans
from ringcp.work import Work


@dataclass(frozen=True, eq=False)
class Hop:
    """One step of the ring, from one rank's view.

    distance  t: keys come from rank - t and go to rank + t
    give      [N] flat local slots (row * L + slot) of own keys that the receiver needs, None when it needs none
    place     [N] flat slots (row * work.keys + slot) where arriving keys land, None when they arrive in place
    arriving  how many keys arrive
    work      what to compute, None when no local query attends a key of this hop
    """

    distance: int
    give: Tensor | None
    place: Tensor | None
    arriving: int
    work: Work | None


@dataclass(frozen=True, eq=False)
class Plan:
    """What one rank does for one mask and layout.

    order         [B, L] local slots by rising position when they are not already so, else None
    hops          own keys first (distance 0), then by distance
    dead_queries  [B, G, L, 1] bool, local queries without any key, None when there are none
    dead_keys     [B, G, L, 1] bool, local keys that no query of any rank attends, None when there are none
    given         how often the local key that travels most does
    """

    tokens: int
    order: Tensor | None
    hops: tuple[Hop, ...]
    dead_queries: Tensor | None
    dead_keys: Tensor | None
    given: int = 0

    @cached_property
    def parts(self) -> int:
        """Most partial results that any local query gets."""
        counts = [hop.work.spans_per_query() for hop in self.hops if hop.work]
        return int(sum(counts).max()) if counts else 0

    @cached_property
    def key_parts(self) -> int:
        """Most contributions that any local key's gradient gets; many where bands of one hop share keys."""
        own = [hop.work for hop in self.hops if hop.distance == 0 and hop.work]
        return self.given + (0 if not own else 1 if own[0].simple else 3)


@lru_cache(maxsize=64)
def make_plan(mask: Mask, layout: Layout, rank: int, device: str = "cpu") -> Plan:
    """The plan of `rank`. Cached by content, so layers and recomputes of one batch share it. Raises ValueError."""
    if layout.tokens != mask.tokens:
        raise ValueError(f"layout holds {layout.tokens} tokens, mask {mask.tokens}")
    held = [part.expand(mask.batch, -1) for part in layout.positions]
    keys = _at(spans(mask), held)
    needed = [_covered(part, mask.tokens) for part in keys]
    hops = [_hop(distance, rank, held, keys[rank], needed) for distance in range(layout.world)]
    slots, sorted_slots = _by_position(held[rank], mask.tokens)
    hops = tuple(hop for hop in hops if hop.work or hop.arriving or hop.give is not None)
    plan = Plan(
        held[rank].shape[1],
        None if sorted_slots else slots,
        hops,
        _some(~_filled(keys[rank])[..., None]),
        _some(_unseen(torch.stack(needed).any(0), held[rank])[..., None]),
        _most_given(hops),
    )
    return _to(plan, device)


def whole_work(mask: Mask, layout: Layout, rank: int, device: str = "cpu") -> Work:
    """A rank's queries against all keys that they need, side by side as if they were one hop."""
    keys, = _at(spans(mask), [layout.positions[rank].expand(mask.batch, -1)])
    needed = _covered(keys, mask.tokens).flatten(0, 1).any(0).nonzero()[:, 0]
    work = _work(needed.expand(mask.batch, -1), keys) or Work(torch.zeros_like(keys[..., :1, :]), 0)
    return replace(work, device=device)


def _at(whole: Tensor, held: list[Tensor]) -> list[Tensor]:
    """Spans of the queries each rank holds: `[B, G, L, K, 2]` a rank; filler slots have none."""
    parts = []
    for positions in held:
        index = positions.clamp(min=0)[:, None, :, None, None].expand(-1, whole.shape[1], -1, *whole.shape[3:])
        parts.append(whole.gather(2, index) * (positions >= 0)[:, None, :, None, None])
    return parts


def _filled(keys: Tensor) -> Tensor:
    """[B, G, L] whether a query attends anything."""
    return (keys[..., 1] > keys[..., 0]).any(-1)


def _covered(keys: Tensor, tokens: int) -> Tensor:
    """[B, G, S] bool: keys that at least one of these queries attends, by counting how many spans open and close."""
    filled = (keys[..., 1] > keys[..., 0]).to(torch.int32).flatten(2)
    edges = torch.zeros(*keys.shape[:2], tokens + 1, dtype=torch.int32)
    edges.scatter_add_(2, keys[..., 0].flatten(2).clamp(0, tokens), filled)
    edges.scatter_add_(2, keys[..., 1].flatten(2).clamp(0, tokens), -filled)
    return edges.cumsum(2)[..., :tokens] > 0


def _hop(distance: int, rank: int, held: list[Tensor], keys: Tensor, needed: list[Tensor]) -> Hop:
    world = len(held)
    if distance == 0:
        return Hop(0, None, None, 0, _own_work(held[rank], keys, needed[rank].shape[-1]))
    source, target = (rank - distance) % world, (rank + distance) % world
    arriving = _wanted(held[source], needed[rank].any(1))
    leaving = _wanted(held[rank], needed[target].any(1))
    work, place = _remote_work(held[source], arriving, keys, needed[rank].shape[-1])
    return Hop(distance, leaving if len(leaving) else None, place, len(arriving), work)


def _wanted(held: Tensor, needed: Tensor) -> Tensor:
    """Flat local slots of the needed keys, by row and rising position: `[N]`."""
    wanted = needed.gather(1, held.clamp(min=0)) & (held >= 0)
    slots, _ = _by_position(held, needed.shape[-1])
    chosen = wanted.gather(1, slots)
    rows = torch.arange(len(held))[:, None] * held.shape[1]
    return (slots + rows)[chosen]


def _by_position(held: Tensor, tokens: int) -> tuple[Tensor, bool]:
    """Local slots `[B, L]` by rising position, fillers last, and whether they stand so already."""
    position = torch.where(held < 0, tokens, held)
    return position.argsort(dim=-1, stable=True), bool((position.diff(dim=-1) >= 0).all())


def _own_work(held: Tensor, keys: Tensor, tokens: int) -> Work | None:
    positions = torch.where(held < 0, tokens, held).sort(-1).values
    return _work(positions, keys)


def _remote_work(held: Tensor, arriving: Tensor, keys: Tensor, tokens: int) -> tuple[Work | None, Tensor | None]:
    """The work on arriving keys, and where they land when the batch rows get unequally many."""
    rows, local = arriving // max(held.shape[1], 1), held.flatten()[arriving]
    counts = torch.bincount(rows, minlength=len(held))
    most = int(counts.max())
    slot = torch.arange(len(arriving)) - (counts.cumsum(0) - counts)[rows]
    positions = torch.full((len(held), most), tokens)
    positions[rows, slot] = local
    return _work(positions, keys), None if bool((counts == most).all()) else rows * most + slot


def _work(positions: Tensor, keys: Tensor) -> Work | None:
    """Global key spans seen from keys that stand at sorted `positions` `[B, K]`."""
    count = positions.shape[1]
    flat = keys.flatten(1)
    local = torch.searchsorted(positions.contiguous(), flat.contiguous()).view_as(keys)
    filled = local[..., 1] > local[..., 0]
    if not filled.any():
        return None
    local = local * filled[..., None]
    return Work(local[..., filled.flatten(0, -2).any(0), :].contiguous(), count)


def _unseen(seen: Tensor, held: Tensor) -> Tensor:
    """[B, G, L] local keys that nobody attends; fillers are among them."""
    index = held.clamp(min=0)[:, None].expand(-1, seen.shape[1], -1)
    return ~(seen.gather(2, index) & (held >= 0)[:, None])


def _most_given(hops: tuple[Hop, ...]) -> int:
    given = [hop.give for hop in hops if hop.give is not None]
    return int(torch.bincount(torch.cat(given)).max()) if given else 0


def _some(marks: Tensor) -> Tensor | None:
    return marks if marks.any() else None


def _to(plan: Plan, device: str) -> Plan:
    if device == "cpu":
        return plan
    hops = tuple(
        replace(hop, give=_move(hop.give, device), place=_move(hop.place, device),
                work=hop.work and replace(hop.work, device=device))
        for hop in plan.hops
    )
    return replace(plan, order=_move(plan.order, device), hops=hops,
                   dead_queries=_move(plan.dead_queries, device), dead_keys=_move(plan.dead_keys, device))


def _move(tensor: Tensor | None, device: str) -> Tensor | None:
    return None if tensor is None else tensor.to(device)
