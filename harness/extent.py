"""Where a failure begins and how far it reaches, told from the rows that are over budget and from nothing large."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cases.rows import Rows

LISTED = 4


@dataclass(frozen=True)
class Extent:
    """off `[B, H, S]` bool a failed tensor: its rows over budget; owner `[B, S]`: the rank that holds each token."""

    off: Sequence[Tensor]
    owner: Tensor
    rows: Rows

    @property
    def tokens(self) -> Tensor:
        """`[B, S]`: tokens with a row that is off."""
        return torch.stack([off.any(1) for off in self.off]).any(0)

    @property
    def share(self) -> float:
        return sum(int(off.sum()) for off in self.off) / sum(off.numel() for off in self.off)

    @property
    def ranks(self) -> list[int]:
        return self.owner[self.tokens].unique().tolist()

    def words(self) -> str:
        """"12 % of rows, tokens 138..255, rank 2, document 3"; what holds for everything goes without saying."""
        tokens, world = self.tokens, int(self.owner.max()) + 1
        places = tokens.any(0).nonzero()[:, 0]
        first, last, share = int(places[0]), int(places[-1]), 100 * self.share
        said = [f"{share:.0f} % of rows" if share >= 1 else "below 1 % of rows"]
        said += [f"tokens {first}..{last}"] if (first, last) != (0, self.rows.tokens - 1) else []
        said += [_listed("rank", self.ranks)] if len(self.ranks) < world else []
        batches = tokens.any(1).nonzero()[:, 0].tolist()
        said += [_listed("batch row", batches)] if len(batches) < self.rows.batch else []
        if self.rows.documents is not None:
            held = self.rows.documents[tokens].unique().tolist()
            said += [_listed("document", held)] if len(held) < len(self.rows.documents.unique()) else []
        return ", ".join(said)


def earliest(off: Tensor, owner: Tensor) -> tuple[int, int, int]:
    """Batch row, head and token of the first row that is off: the lowest token on the lowest rank."""
    batch, token = off.any(1).nonzero(as_tuple=True)
    order = owner[batch, token] * off.shape[2] + token
    at = int(order.argmin())
    batch, token = int(batch[at]), int(token[at])
    return batch, int(off[batch, :, token].nonzero()[0]), token


def _listed(name: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{name} {numbers[0]}"
    if len(numbers) > LISTED:
        return f"{len(numbers)} {name}s from {numbers[0]} to {numbers[-1]}"
    return f"{name}s {', '.join(map(str, numbers))}"
