"""The rules of SPEC A as plain loops over a ringcp.Mask, and dense attention over the matrix they give."""

import torch
from torch import Tensor

import ringcp


def allowed(mask: ringcp.Mask) -> Tensor:
    """[B, G, S, S] bool, one pair at a time."""
    result = torch.zeros(mask.batch, mask.groups, mask.tokens, mask.tokens, dtype=torch.bool)
    for b in range(mask.batch):
        row = Row(mask, b)
        for g in range(mask.groups):
            for i in range(mask.tokens):
                for j in range(mask.tokens):
                    result[b, g, i, j] = row.edge(i, j) and row.together(i, j) and row.selected(g, i, j)
    return result


class Row:
    """One batch row of a mask, as lists."""

    def __init__(self, mask: ringcp.Mask, b: int):
        self.mask, self.b, tokens = mask, b, range(mask.tokens)
        ids = [1 for _ in tokens] if mask.documents is None else mask.documents[b].tolist()
        masked = [False for _ in tokens] if mask.padding is None else mask.padding[b].tolist()
        self.padded = [masked[i] or ids[i] <= 0 for i in tokens]
        self.ids = numbered_runs(ids) if mask.document_rule == "runs" else ids
        types = [0 for _ in tokens] if mask.token_types is None else mask.token_types[b].tolist()
        self.vision = [kind > 0 for kind in types]
        self.group = numbered_runs(self.vision)

    def edge(self, i: int, j: int) -> bool:
        causal = not self.mask.causal or j <= i
        same = self.mask.vision_rule != "none" and self.vision[i] and self.vision[j] and self.group[i] == self.group[j]
        if self.mask.vision_rule == "bounded":
            return self.near(i, j) and (causal or same)
        return (causal and self.near(i, j)) or same

    def near(self, i: int, j: int) -> bool:
        window, rule = self.mask.window, self.mask.window_rule
        if window is None:
            return True
        if rule == "compacted":
            return self.rank(i) - self.rank(j) < window
        if rule == "symmetric":
            return abs(i - j) < window
        return i - j <= window if rule == "inclusive" else i - j < window

    def rank(self, i: int) -> int:
        return sum(self.ids[n] == self.ids[i] and not self.padded[n] for n in range(i))

    def together(self, i: int, j: int) -> bool:
        return not self.padded[i] and not self.padded[j] and self.ids[i] == self.ids[j]

    def selected(self, g: int, i: int, j: int) -> bool:
        if self.mask.selected is None:
            return True
        return self.mask.token_regions[self.b, j].item() in self.mask.selected[self.b, g, i].tolist()


def numbered_runs(values: list) -> list[int]:
    """Counts runs of equal values: [a, a, b, a] -> [0, 0, 1, 2]."""
    numbers, run = [], 0
    for index, value in enumerate(values):
        run += index > 0 and value != values[index - 1]
        numbers.append(run)
    return numbers


def attention(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, pairs: Tensor, scale: float) -> dict[str, Tensor]:
    """out, lse, dq, dk, dv of dense attention by autograd."""
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in (q, k, v))
    ratio = q.shape[1] // k.shape[1]
    keys, values = k.repeat_interleave(ratio, 1), v.repeat_interleave(ratio, 1)
    pairs = pairs.repeat_interleave(q.shape[1] // pairs.shape[1], 1)
    scores = (q @ keys.mT * scale).masked_fill(~pairs, -1e300)
    out = (scores.softmax(-1) * pairs) @ values
    lse = scores.logsumexp(-1).masked_fill(~pairs.any(-1), -torch.inf)
    (out * dout).sum().backward()
    return {"out": out.detach(), "lse": lse.detach(), "dq": q.grad, "dk": k.grad, "dv": v.grad}
