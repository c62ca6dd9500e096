"""Faults of the causal rule: dropped, shifted by a key, or applied to places in shards rather than positions."""

from dataclasses import replace

from torch import Tensor

from cases.case import Case
from harness.sabotage.fault import Fault
from harness.sabotage.views import BackwardMaskFault, MaskFault, View
from harness.sabotage.window import without
from ringcp.mask import Mask


class CausalDropped(Fault):
    breaks = ("A1",)

    def misread(self, case: Case) -> Case:
        return without(case, "causal")


class CausalView(MaskFault):
    """Faults inside the ring; masks that are not causal are read right."""

    breaks = ("A1",)

    def pairs(self, view: View) -> Tensor:
        return self.causal(view) if view.mask.causal else view.allowed

    def causal(self, view: View) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def full(view: View) -> Tensor:
        """Who would see whom without the causal rule."""
        return view.under(causal=False)


class CausalOneAhead(CausalView):
    """A query sees the key behind its own."""

    def causal(self, view: View) -> Tensor:
        return view.allowed | self.full(view) & (view.key == view.query + 1)


class CausalWithoutOwnKey(CausalView):
    """A query sees what stands before it, not itself; the first one sees itself."""

    def causal(self, view: View) -> Tensor:
        return view.allowed & ((view.key != view.query) | (view.query == 0))


class CausalNotOnArrivingKeys(CausalView):
    """Keys of other ranks are seen whole."""

    breaks = ("A1", "D1")

    def causal(self, view: View) -> Tensor:
        return view.allowed | self.full(view) & ~view.own


class CausalByRank(CausalView):
    """Keys of earlier ranks are seen whole, those of later ranks not at all, as if shards were contiguous."""

    breaks = ("A1", "D1")

    def causal(self, view: View) -> Tensor:
        earlier = self.full(view) & (view.owner < view.rank)
        return view.allowed & view.own | earlier


class CausalBySlot(CausalView):
    """Places in shards are compared, not positions in the row."""

    breaks = ("A1", "D1")

    def causal(self, view: View) -> Tensor:
        return self.full(view) & (view.slot <= view.query_slot)


class CausalAtEveryHopForward(CausalView):
    """Keys of other ranks are cut along the hop's own diagonal as well."""

    breaks = ("A1", "D1")

    def causal(self, view: View) -> Tensor:
        return view.allowed & (view.own | (view.slot <= view.query_slot))


class CausalInBlocks(CausalView):
    """A query sees its whole block of eight."""

    def causal(self, view: View) -> Tensor:
        return view.allowed | self.full(view) & (view.key // 8 == view.query // 8)


class BackwardNotCausal(BackwardMaskFault):
    breaks = ("B4", "A1")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, causal=False)
