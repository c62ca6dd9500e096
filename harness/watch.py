"""Tensors that must stay as they are: what a trial gives (SPEC B7) and what it is given back (B1, B2, B4, D3)."""

import torch
from torch import Tensor

from harness.contract import Breach

LATER, LEFT = "in a later step", "when the scope was left"
INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16,
            torch.float16: torch.int16, torch.float8_e4m3fn: torch.int8, torch.float8_e5m2: torch.int8}
RESULTS = {"out": "B1", "lse": "B2"}


class Watch:
    """Remembers the bits of tensors and, look by look, which of them differ; no look waits for a GPU.

    before  by name, what a tensor held when it was added
    """

    def __init__(self, **tensors: Tensor):
        self._tensors: dict[str, Tensor] = {}
        self.before: dict[str, Tensor] = {}
        self._looks: list[tuple[str, str, bool | Tensor]] = []
        self.add(**tensors)

    def add(self, **tensors: Tensor) -> None:
        """Watches these as they are now."""
        self._tensors |= tensors
        self.before |= {name: x.detach().clone() for name, x in tensors.items()}

    def look(self, when: str = "") -> None:
        """Notes what differs now from what was remembered."""
        self._looks += [(name, when, _differs(x, self.before[name])) for name, x in self._tensors.items()]

    def changed(self) -> dict[str, str]:
        """By name of each tensor that differed: the first look that saw it."""
        found: dict[str, str] = {}
        for name, when, other in self._looks:
            if name not in found and bool(other):
                found[name] = when
        return found


class Untouched(Watch):
    """SPEC B7: what is given is not modified, nor is the memory beside it that it is a view of."""

    def add(self, **tensors: Tensor) -> None:
        self._views = {name: x for name, x in tensors.items() if x._base is not None}
        super().add(**{name: x if x._base is None else x._base for name, x in tensors.items()})

    def look(self, when: str = "") -> None:
        seen = len(self._looks)
        super().look(when)
        for name, _, other in self._looks[seen:]:
            if name in self._views and other is not False:
                x = self._views[name]
                self._looks.append((f"{name} itself", when, _differs(x, _like(x, self.before[name]))))

    def breaches(self, rank: int, when: str = "") -> list[Breach]:
        """Looks once more, and names what differed in any look."""
        self.look(when)
        changed, found = self.changed(), []
        for name in [name for name in self._tensors if name in changed]:
            own = name not in self._views or f"{name} itself" in changed
            what, when = name if own else f"memory beside {name}", changed[name]
            found.append(Breach("B7", f"{what} was modified on rank {rank}{when and f' {when}'}", "unchanged inputs",
                                f"other bits in {what}", rank))
        return found


class Returned(Watch):
    """Results are there when they are returned, and stay. Their memory is watched; their graphs are not kept alive."""

    def add(self, **tensors: Tensor) -> None:
        super().add(**{name: x.detach() for name, x in tensors.items()})

    def breaches(self, rank: int) -> list[Breach]:
        """What changed since it was returned, by the looks so far."""
        return [Breach("D3" if when == LATER else RESULTS.get(name, "B4"),
                       f"{name} changed after the {'forward' if name in RESULTS else 'backward'} returned it "
                       f"({when}) on rank {rank}", "the same bits as when it was returned", "other bits", rank)
                for name, when in self.changed().items()]


def bits(x: Tensor) -> Tensor:
    """The bits of a tensor as integers of its own width, NaN and the sign of 0 included."""
    whole = x.detach().contiguous()
    row = whole.as_strided((whole.numel(),), (1,))
    return row if row.dtype not in INTEGERS else row.view(INTEGERS[row.dtype])


def _like(x: Tensor, before: Tensor) -> Tensor:
    """What the view x of a memory showed that held `before`."""
    return before.as_strided(x.shape, x.stride(), x.storage_offset() - x._base.storage_offset())


def _differs(x: Tensor, before: Tensor) -> bool | Tensor:
    """On a GPU the answer stays there until somebody reads it."""
    now, then = bits(x), bits(before)
    return not torch.equal(now, then) if now.device.type == "cpu" else (now != then).any()
