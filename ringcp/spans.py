"""Spans: the keys each query of a whole row may see, as few half-open intervals, straight from a Mask.

Causal, window and vision always leave one interval that holds the query itself (the reach); documents, padding and
regions cut it. So the spans of a query are its reach clipped to the stretches of its document, clipped to its regions.
Shapes: B rows, S tokens, G key/value heads that regions tell apart, K spans.
"""

import torch
from torch import Tensor

from ringcp.mask import Mask


def spans(mask: Mask) -> Tensor:
    """Key spans of every query: `[B, G, S, K, 2]` int64, sorted and disjoint; empty ones have end <= start."""
    low, high = _reach(mask)
    low, high = _clip(low[..., None], high[..., None], *_stretches(mask))
    low, high = low[:, None], high[:, None]
    if mask.selected is not None:
        low, high = _clip(low, high, *_selected(mask))
    return torch.stack([low, high], -1)


def _clip(low: Tensor, high: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Every `[.., K]` interval cut by every `[.., C]` one: `[.., K * C]`, order kept; of columns that are wholly empty
    only the first is kept."""
    low = torch.maximum(low[..., :, None], start[..., None, :]).flatten(-2)
    high = torch.minimum(high[..., :, None], end[..., None, :]).flatten(-2)
    used = (high > low).flatten(0, -2).any(0)
    used[0] = True
    return low[..., used], high[..., used]


def _reach(mask: Mask) -> tuple[Tensor, Tensor]:
    """First and one past the last key of causal, window and vision together: two `[B, S]`."""
    own = torch.arange(mask.tokens).expand(mask.batch, -1)
    causal_end = own + 1 if mask.causal else torch.full_like(own, mask.tokens)
    window_start, window_end = _window(mask, own)
    low, high = window_start, torch.minimum(causal_end, window_end)
    if mask.token_types is None or mask.vision_rule == "none":
        return low, high
    first, last = _groups(mask.token_types)
    vision = mask.token_types > 0
    if mask.vision_rule == "overlay":
        return torch.where(vision, torch.minimum(low, first), low), torch.where(vision, torch.maximum(high, last), high)
    widened = torch.minimum(torch.maximum(causal_end, last), window_end)
    return low, torch.where(vision, widened, high)


def _window(mask: Mask, own: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last key inside the window: two `[B, S]`."""
    start, end = torch.zeros_like(own), torch.full_like(own, mask.tokens)
    if mask.window is None:
        return start, end
    if mask.window_rule == "compacted":
        return _compacted_start(mask), end
    reach = mask.window + (mask.window_rule == "inclusive") - 1
    if mask.window_rule == "symmetric":
        end = own + mask.window
    return own - reach, end


def _compacted_start(mask: Mask) -> Tensor:
    """Position of the W-th last unpadded token of the own document, counting the query: `[B, S]`."""
    start = torch.zeros(mask.batch, mask.tokens, dtype=torch.int64)
    documents = _documents(mask)
    for row, ids in enumerate(documents):
        order = ids.argsort(stable=True)
        firsts = torch.searchsorted(ids[order], ids[order])
        back = torch.maximum(torch.arange(mask.tokens) - mask.window + 1, firsts)
        start[row, order] = order[back]
    return start


def _groups(token_types: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last token of each token's run of vision or text tokens: two `[B, S]`."""
    edge = torch.ones_like(token_types, dtype=torch.bool)
    edge[:, 1:] = (token_types > 0).diff(dim=-1)
    return _runs(edge)


def _runs(edge: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of the run that holds each token, from marks on the runs' first tokens: `[B, S]` -> two `[B, S]`."""
    tokens = edge.shape[-1]
    index = torch.arange(tokens).expand(edge.shape)
    first = torch.where(edge, index, 0).cummax(-1).values
    stop = torch.full_like(index, tokens)
    stop[:, :-1] = torch.where(edge[:, 1:], index[:, 1:], tokens)
    return first, stop.flip(-1).cummin(-1).values.flip(-1)


def _documents(mask: Mask) -> Tensor:
    """Document of each token as a small number per row, 0 for padding: `[B, S]`."""
    ids = torch.ones(mask.batch, mask.tokens, dtype=torch.int64) if mask.documents is None else mask.documents
    if mask.document_rule == "runs":
        edge = torch.ones_like(ids, dtype=torch.bool)
        edge[:, 1:] = ids.diff(dim=-1) != 0
        ids = edge.cumsum(-1)
    numbered = [row.unique(return_inverse=True)[1] + 1 for row in ids]
    return torch.stack(numbered).masked_fill(mask.padded, 0)


def _stretches(mask: Mask) -> tuple[Tensor, Tensor]:
    """Maximal runs of unpadded tokens of each query's document: start and end `[B, S, C]`."""
    documents = _documents(mask)
    edge = torch.ones_like(documents, dtype=torch.bool)
    edge[:, 1:] = documents.diff(dim=-1) != 0
    first, last = _runs(edge)
    count = int(documents.max()) + 1
    owner = [row[marks & (row > 0)] for row, marks in zip(documents, edge)]
    width = max([1] + [int(torch.bincount(row).max()) for row in owner if len(row)])
    table = torch.zeros(mask.batch, count, width, 2, dtype=torch.int64)
    for row, runs in enumerate(owner):
        heads = (edge[row] & (documents[row] > 0)).nonzero()[:, 0]
        order = runs.argsort(stable=True)
        slot = torch.arange(len(runs)) - torch.searchsorted(runs[order], runs[order])
        table[row, runs[order], slot] = torch.stack([first[row, heads], last[row, heads]], -1)[order]
    chosen = table[torch.arange(mask.batch)[:, None], documents]
    return chosen[..., 0], chosen[..., 1]


def _selected(mask: Mask) -> tuple[Tensor, Tensor]:
    """Bounds of each query's selected regions, repeats left empty: start and end `[B, G, S, N]`."""
    names = torch.arange(mask.regions + 1).expand(mask.batch, -1).contiguous()
    bounds = torch.searchsorted(mask.token_regions, names)
    bounds = torch.cat([bounds, torch.full((mask.batch, 1), mask.tokens)], -1)
    chosen = mask.selected.flatten(1)
    start = bounds.gather(1, chosen).view_as(mask.selected)
    end = bounds.gather(1, chosen + 1).view_as(mask.selected)
    repeated = torch.zeros_like(mask.selected, dtype=torch.bool)
    repeated[..., 1:] = mask.selected.diff(dim=-1) == 0
    return start, torch.where(repeated | (mask.selected == mask.regions), start, end)
