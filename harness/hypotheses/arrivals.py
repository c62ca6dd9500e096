"""Guesses about what a rank finds in place of the keys and values that another one sent."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from harness.hypotheses.evidence import Evidence, Guess, Tensors

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What is found for k and v `[B, H, N, D]` of N tokens that arrive together."""
NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float8": torch.float8_e4m3fn}


def arriving(evidence: Evidence) -> Iterator[Guess]:
    """What travels is what some query of the receiver attends."""
    if evidence.world > 1 and evidence.forward_failed:
        messages = _messages(evidence)
        for words, change in _changes(evidence).items():
            yield _found(evidence, f"{words} in what arrives from other ranks", messages, change)


def _changes(evidence: Evidence) -> dict[str, Change]:
    found = {f"keys and values are rounded to {name}": _rounded(dtype) for name, dtype in NARROW.items()}
    found |= {"the first token is empty": lambda k, v: (_emptied(k, 0), _emptied(v, 0)),
              "the last token is empty": lambda k, v: (_emptied(k, -1), _emptied(v, -1))}
    if evidence.k.shape == evidence.v.shape:
        found["keys and values are exchanged"] = lambda k, v: (v, k)
    return found


def _rounded(dtype: torch.dtype) -> Change:
    return lambda k, v: (k.to(dtype).to(k.dtype), v.to(dtype).to(v.dtype))


def _emptied(x: Tensor, place: int) -> Tensor:
    kept = torch.ones(x.shape[2], dtype=torch.bool)
    kept[place:place + 1 or None] = False
    return x * kept[:, None]


def _messages(evidence: Evidence) -> dict[tuple[int, int], Tensor]:
    """Positions of the tokens that go from one rank to another, by (source, target); layouts that differ from row to
    row are taken as that of the first."""
    held = [(evidence.owner[0] == rank).nonzero()[:, 0] for rank in range(evidence.world)]
    found = {}
    for source, keys in enumerate(held):
        for target, queries in enumerate(held):
            if source != target:
                found[source, target] = keys[evidence.allowed[:, :, queries[:, None], keys].flatten(0, 2).any(0)]
    return found


def _found(evidence: Evidence, words: str, messages: dict[tuple[int, int], Tensor], change: Change) -> Guess:
    """Attention of each rank over its own keys and over what it found of others'."""
    shape = evidence.q.shape[:3]
    out, lse = evidence.v.new_zeros(*shape, evidence.v.shape[3]), evidence.q.new_full(shape, -torch.inf)
    parts = []
    for rank in range(evidence.world):
        queries = (evidence.owner[0] == rank).nonzero()[:, 0]
        k, v = evidence.k.clone(), evidence.v.clone()
        for (_, target), keys in messages.items():
            if target == rank and len(keys):
                k[:, :, keys], v[:, :, keys] = change(evidence.k[:, :, keys], evidence.v[:, :, keys])
        scores = evidence.q[:, :, queries] @ k.mT * evidence.scale
        scores.masked_fill_(~evidence.allowed[:, :, queries], -torch.inf)
        lse[:, :, queries] = total = scores.logsumexp(-1)
        weights = (scores - total.masked_fill(total.isinf(), 0)[..., None]).exp()
        out[:, :, queries] = weights @ v
        parts.append((queries, k, v, weights))
    return Guess(words, "D1", {"out": out, "lse": lse}, (lambda: _gradients(evidence, out, parts))
                 if evidence.backward_failed else None)


def _gradients(evidence: Evidence, out: Tensor, parts: list[tuple[Tensor, ...]]) -> Tensors:
    """Each token's own place gets the gradient of whatever was found there."""
    dq, dk, dv = (torch.zeros_like(x) for x in (evidence.q, evidence.k, evidence.v))
    for queries, k, v, weights in parts:
        dout, q = evidence.dout[:, :, queries], evidence.q[:, :, queries]
        delta = (out[:, :, queries] * dout).sum(-1, keepdim=True)
        dscores = weights * (dout @ v.mT - delta) * evidence.scale
        dq[:, :, queries] = dscores @ k
        dk += dscores.mT @ q
        dv += weights.mT @ dout
    return {"dq": dq, "dk": evidence.grouped(dk), "dv": evidence.grouped(dv)}


HYPOTHESES = (arriving,)
