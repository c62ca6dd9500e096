"""Faults of the window: too wide, too narrow, misplaced at shard edges, forgotten."""

from dataclasses import replace

from torch import Tensor

from cases.case import Case
from cases.mask import Mask as CaseMask
from harness.sabotage.fault import Fault
from harness.sabotage.views import BackwardMaskFault, MaskFault, View
from ringcp.mask import Mask


def without(case: Case, rule: str) -> Case:
    """The case without a rule."""
    return replace(case, mask=CaseMask(tuple(kept for kept in case.mask.rules if kept.name != rule)))


class WindowFault(Fault):
    """A window of `size` in place of the case's; None forgets it."""

    breaks = ("A2",)

    def size(self, size: int, case: Case) -> int | None:
        return size

    def misread(self, case: Case) -> Case:
        for rule in case.mask.rules:
            if rule.name == "window":
                size, bare = self.size(rule.size, case), without(case, "window")
                found = () if size is None else (replace(rule, size=max(1, size)),)
                return replace(case, mask=CaseMask((*bare.mask.rules, *found)))
        return case


class WindowTooWide(WindowFault):
    def size(self, size: int, case: Case) -> int:
        return size + 1


class WindowTooNarrow(WindowFault):
    def size(self, size: int, case: Case) -> int:
        return size - 1


class WindowIgnored(WindowFault):
    def size(self, size: int, case: Case) -> None:
        return None


class WindowOfOneIgnored(WindowFault):
    """(-1, 0) is read as no window."""

    def size(self, size: int, case: Case) -> int | None:
        return None if size == 1 else size


class WindowInInt16(WindowFault):
    def size(self, size: int, case: Case) -> int:
        return (size + (1 << 15)) % (1 << 16) - (1 << 15)


class WindowRoundedToBlocks(WindowFault):
    def size(self, size: int, case: Case) -> int:
        return -(-size // 16) * 16


class WindowBeyondRowWraps(WindowFault):
    def size(self, size: int, case: Case) -> int:
        return size if size < case.shape.tokens else size % case.shape.tokens


class WindowSharedByRanks(WindowFault):
    """Each rank takes its share of the window."""

    def size(self, size: int, case: Case) -> int:
        return -(-size // case.world)


class WindowVariant(Fault):
    """The window follows another rule: `rules` by the case's own."""

    breaks = ("A2",)
    rules: dict[str | None, str | None] = {}

    def misread(self, case: Case) -> Case:
        rules = tuple(replace(rule, variant=self.rules.get(rule.variant, rule.variant))
                      if rule.name == "window" and self.holds(case) else rule for rule in case.mask.rules)
        return replace(case, mask=CaseMask(rules))

    def holds(self, case: Case) -> bool:
        return True


class WindowInclusiveIgnored(WindowVariant):
    rules = {"inclusive": None}


class WindowSymmetricIgnored(WindowVariant):
    rules = {"symmetric": None}


class WindowCompactedIgnored(WindowVariant):
    rules = {"compacted": None}


class WindowCountsOwnDocument(WindowVariant):
    """Distances count only unpadded tokens of the own document, undeclared."""

    rules = {None: "compacted"}


class WindowOnBothSides(WindowVariant):
    """Without a causal rule the window bounds the right side too, undeclared."""

    rules = {None: "symmetric"}

    def holds(self, case: Case) -> bool:
        return "causal" not in {rule.name for rule in case.mask.rules}


class WindowView(MaskFault):
    """Faults at shard edges; masks without a window are read right."""

    breaks = ("A2", "D1")

    def pairs(self, view: View) -> Tensor:
        return view.allowed if view.mask.window is None else self.windowed(view)

    def windowed(self, view: View) -> Tensor:
        raise NotImplementedError


class WindowNotOnArrivingKeys(WindowView):
    """Keys of other ranks are seen whole."""

    def windowed(self, view: View) -> Tensor:
        return view.allowed | view.under(window=None) & ~view.own


class WindowOnlyOnArrivingKeys(WindowView):
    """A rank's own keys are seen whole."""

    def windowed(self, view: View) -> Tensor:
        return view.allowed | view.under(window=None) & view.own


class WindowTopLeft(WindowView):
    """Distances to keys of other ranks are counted from the first token of both shards."""

    def windowed(self, view: View) -> Tensor:
        near = (view.query_slot - view.slot).abs() < view.mask.window
        return view.allowed & view.own | view.under(window=None) & near & ~view.own


class WindowHopShort(WindowView):
    """One hop too few: floor((W - 1) / L) shards back."""

    def windowed(self, view: View) -> Tensor:
        shard = max(1, view.query.shape[2])
        return view.allowed & (view.distance <= (view.mask.window - 1) // shard)


class WindowOfOneHop(WindowView):
    """Never further back than the previous rank."""

    def windowed(self, view: View) -> Tensor:
        return view.allowed & (view.distance <= 1)


class WindowStopsAtShard(WindowView):
    """A window never leaves its rank."""

    def windowed(self, view: View) -> Tensor:
        return view.allowed & view.own


class BackwardWithoutWindow(BackwardMaskFault):
    breaks = ("B4", "A2")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, window=None, window_rule="exclusive")


class BackwardWindowShort(BackwardMaskFault):
    """The backward's window is one key shorter than the forward's."""

    breaks = ("B4", "A2")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, window=mask.window and max(1, mask.window - 1))
