"""Hypothesis strategies: masks over all rules at once, small and full of edges; layouts to go with them."""

import torch
from hypothesis import strategies as st

import ringcp
from ringcp.layout import LAYOUTS


@st.composite
def masks(draw, max_tokens: int = 20) -> ringcp.Mask:
    tokens, batch, causal = draw(st.integers(1, max_tokens)), draw(st.integers(1, 2)), draw(st.booleans())
    fields = {"tokens": tokens, "batch": batch, "causal": causal}
    if draw(st.booleans()):
        rules = ["exclusive", "inclusive", "compacted"] + ([] if causal else ["symmetric"])
        fields |= {"window": draw(st.integers(1, tokens + 2)), "window_rule": draw(st.sampled_from(rules))}
    if draw(st.booleans()):
        rule = draw(st.sampled_from(["ids", "runs"]))
        fields |= {"documents": draw(_rows(batch, tokens, 0, 3)), "document_rule": rule}
    if draw(st.integers(0, 3)) == 0:
        fields |= {"padding": draw(_rows(batch, tokens, 0, 1)).bool()}
    if draw(st.booleans()):
        rule = draw(st.sampled_from(["overlay", "bounded", "none"]))
        fields |= {"token_types": draw(_rows(batch, tokens, 0, 2)), "vision_rule": rule}
    if draw(st.integers(0, 3)) == 0:
        fields |= draw(_regions(batch, tokens))
    return ringcp.Mask(**fields)


@st.composite
def layouts(draw, tokens: int, world: int) -> ringcp.Layout:
    """A named layout, with filler slots or without, or a random assignment of positions in random order."""
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(LAYOUTS))) + draw(st.sampled_from(["", "-padded"]))
        return ringcp.make_layout(name, tokens, world)
    order = torch.tensor(draw(st.permutations(range(tokens))))
    cuts = sorted(draw(st.lists(st.integers(0, tokens), min_size=world - 1, max_size=world - 1)))
    return ringcp.Layout("random", tokens, tuple(order.tensor_split(cuts)))


@st.composite
def _rows(draw, batch: int, tokens: int, low: int, high: int) -> torch.Tensor:
    """[B, S] integers in runs of random length."""
    rows = []
    for _ in range(batch):
        row: list[int] = []
        while len(row) < tokens:
            row += [draw(st.integers(low, high))] * draw(st.integers(1, tokens))
        rows.append(row[:tokens])
    return torch.tensor(rows)


@st.composite
def _regions(draw, batch: int, tokens: int) -> dict:
    regions, seed = draw(st.integers(1, 4)), draw(st.integers(0, 999))
    generator = torch.Generator().manual_seed(seed)
    return {
        "regions": regions,
        "token_regions": torch.randint(0, regions, (batch, tokens), generator=generator).sort(-1).values,
        "selected": torch.randint(0, regions + 1, (batch, 2, tokens, 3), generator=generator).sort(-1).values,
    }
