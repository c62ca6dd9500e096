"""Rows: the metadata of whole batch rows, which every rank holds and every implementation is given."""

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor


@dataclass
class Rows:
    """Whole-row metadata. B rows, S tokens, G key/value heads, R regions, N slots; absent metadata is None.

    documents      [B, S] int64, equal ids are one document, ids <= 0 are padding
    padding        [B, S] bool, True where a token is padding
    token_types    [B, S] int64, 0 text, 1 and 2 vision
    token_regions  [B, S] int64, non-decreasing region of each key, 0..R-1
    selected       [B, G, S, N] int64, sorted regions each query may see, R marks an unused slot
    extra          tensors of rules that this class has no field for, by name
    """

    batch: int
    tokens: int
    groups: int
    documents: Tensor | None = None
    padding: Tensor | None = None
    token_types: Tensor | None = None
    token_regions: Tensor | None = None
    selected: Tensor | None = None
    regions: int = 0
    extra: dict[str, Tensor] | None = None

    @property
    def padded(self) -> Tensor:
        """[B, S] bool: padding by mask or by document id (SPEC A3, A4)."""
        padded = torch.zeros(self.batch, self.tokens, dtype=torch.bool)
        if self.padding is not None:
            padded = padded | self.padding
        if self.documents is not None:
            padded = padded | (self.documents <= 0)
        return padded

    def with_metadata(self, **tensors: Tensor | int) -> "Rows":
        """A copy with more metadata; a name that is no field lands in `extra`."""
        known = {field.name for field in fields(self)}
        own = {name: value for name, value in tensors.items() if name in known}
        extra = {**(self.extra or {}), **{name: value for name, value in tensors.items() if name not in known}}
        return replace(self, **own, extra=extra or None)
