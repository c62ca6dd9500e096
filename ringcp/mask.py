"""Mask: who may attend whom, described by the metadata of whole rows, equal on every rank."""

import hashlib
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

WINDOW_RULES = ("exclusive", "inclusive", "symmetric", "compacted")
VISION_RULES = ("overlay", "bounded", "none")
DOCUMENT_RULES = ("ids", "runs")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


@dataclass(frozen=True, eq=False)
class Mask:
    """A validated, immutable description of allowed (query, key) pairs over B rows of S tokens.

    tokens, batch    S and B
    causal           a query sees no later key
    window           W >= 1 keys counting the query's own, or None
    window_rule      "exclusive" (i - j < W), "inclusive" (i - j <= W), "symmetric" (|i - j| < W, not causal),
                     "compacted" (distance counts only unpadded tokens of the own document)
    documents        [B, S] integer ids, equality by value, ids <= 0 are padding
    document_rule    "ids", or "runs": every contiguous run of equal ids is its own document
    padding          [B, S] bool, True where a token is padding
    token_types      [B, S], 1 and 2 are vision; a maximal run of vision tokens is a group
    vision_rule      "overlay" (causal and window, or same group), "bounded" (window and (causal or same group)), "none"
    token_regions    [B, S] non-decreasing regions 0..R-1 of keys
    selected         [B, G, S, N] sorted regions that the queries of key/value head g may see; R marks an unused slot
    regions          R

    Tensors are copied to the host, so the caller may refill them. Raises ValueError naming the field.
    """

    tokens: int
    batch: int = 1
    causal: bool = True
    window: int | None = None
    window_rule: str = "exclusive"
    documents: Tensor | None = None
    document_rule: str = "ids"
    padding: Tensor | None = None
    token_types: Tensor | None = None
    vision_rule: str = "overlay"
    token_regions: Tensor | None = None
    selected: Tensor | None = None
    regions: int = 0

    def __post_init__(self):
        self._check_numbers()
        for name in ("documents", "token_types", "token_regions"):
            self._keep(name, torch.int64, (self.batch, self.tokens))
        self._keep("padding", torch.bool, (self.batch, self.tokens))
        self._keep("selected", torch.int64, (self.batch, None, self.tokens, None))
        _one_of("window_rule", self.window_rule, WINDOW_RULES)
        _one_of("vision_rule", self.vision_rule, VISION_RULES)
        _one_of("document_rule", self.document_rule, DOCUMENT_RULES)
        if self.token_types is not None and not bool(((self.token_types >= 0) & (self.token_types <= 2)).all()):
            raise ValueError("token_types are 0 for text and 1 or 2 for vision")
        if self.window_rule == "symmetric" and self.causal:
            raise ValueError("window_rule symmetric needs causal=False")
        self._check_regions()

    @property
    def groups(self) -> int:
        """Key/value heads that the mask tells apart: 1 unless regions are selected per head."""
        return 1 if self.selected is None else self.selected.shape[1]

    @property
    def rules(self) -> frozenset[str]:
        """Names of the rules that it is made of."""
        given = {"causal": self.causal or None, "window": self.window, "documents": self.documents,
                 "padding": self.padding, "vision": self.token_types, "regions": self.selected}
        return frozenset(name for name, value in given.items() if value is not None)

    @cached_property
    def padded(self) -> Tensor:
        """[B, S] bool: padding by mask or by document id."""
        padded = torch.zeros(self.batch, self.tokens, dtype=torch.bool) if self.padding is None else self.padding
        return padded if self.documents is None else padded | (self.documents <= 0)

    @cached_property
    def digest(self) -> str:
        """Equal for masks of equal content."""
        content = hashlib.sha1()
        for field in fields(self):
            value = getattr(self, field.name)
            content.update(f"{field.name}={value if not isinstance(value, Tensor) else tuple(value.shape)};".encode())
            if isinstance(value, Tensor):
                content.update(value.numpy().tobytes())
        return content.hexdigest()

    def __eq__(self, other) -> bool:
        return isinstance(other, Mask) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def _check_numbers(self) -> None:
        for name, least in (("tokens", 1), ("batch", 1), ("regions", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is a whole number from {least}, got {value!r}")
        if type(self.causal) is not bool:
            raise ValueError(f"causal is True or False, got {self.causal!r}")
        if self.window is not None and (type(self.window) is not int or self.window < 1):
            raise ValueError(f"window counts the query's own key and is at least 1, got {self.window!r}")

    def _keep(self, name: str, dtype: torch.dtype, shape: tuple[int | None, ...]) -> None:
        value = getattr(self, name)
        if value is None:
            return
        kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
        if kind not in ((torch.bool,) if dtype == torch.bool else INTEGERS):
            raise ValueError(f"{name} wants a tensor of {'bool' if dtype == torch.bool else 'integers'}, got {kind}")
        fits = value.dim() == len(shape) and all(want in (None, got) for want, got in zip(shape, value.shape))
        if not fits:
            want = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(f"{name} has shape {list(value.shape)}, wanted [{want}]")
        object.__setattr__(self, name, value.detach().to("cpu", dtype, copy=True).contiguous())

    def _check_regions(self) -> None:
        if (self.selected is None) != (self.token_regions is None):
            raise ValueError("token_regions and selected come together")
        if self.selected is None:
            return
        if (self.token_regions.diff(dim=-1) < 0).any():
            raise ValueError("token_regions must not decrease along a row")
        for name, low, high in (("token_regions", 0, self.regions - 1), ("selected", 0, self.regions)):
            value = getattr(self, name)
            if value.numel() and (value.min() < low or value.max() > high):
                raise ValueError(f"{name} must lie in {low}..{high} for regions={self.regions}")
        if (self.selected.diff(dim=-1) < 0).any():
            raise ValueError("selected must be sorted along its slots")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}, wanted one of {', '.join(allowed)}")
