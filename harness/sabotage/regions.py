"""Faults of selected regions: which ones are selected, for whom, and where they lie."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.state import memory
from harness.sabotage.views import BackwardMaskFault, MaskFault, View
from ringcp.mask import Mask


class Selection(Fault):
    """`selected` `[B, G, S, N]` and `regions` of keys `[B, S]` that were read otherwise."""

    breaks = ("A6",)

    def selected(self, selected: Tensor, batch: Rows) -> Tensor:
        return selected

    def regions(self, regions: Tensor, batch: Rows) -> Tensor:
        return regions

    def metadata(self, batch: Rows) -> Rows:
        if batch.selected is None:
            return batch
        return replace(batch, selected=self.selected(batch.selected, batch).sort(-1).values,
                       token_regions=self.regions(batch.token_regions, batch))


class RegionsIgnored(Selection):
    def metadata(self, batch: Rows) -> Rows:
        return replace(batch, selected=None, token_regions=None, regions=0)


class RegionsUnsteady(Fault):
    """Every second call of a session rounds its output otherwise where regions are selected."""

    breaks = ("D5",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept["calls"] = kept.get("calls", 0) + 1
            out, lse = step(q, k, v)
            return (out if kept["calls"] % 2 or batch.selected is None else out * (1 + torch.finfo(out.dtype).eps)), lse

        return forward


class OwnRegionAlwaysSeen(Selection):
    def selected(self, selected, batch):
        own = batch.token_regions[:, None, :, None].expand(*selected.shape[:-1], 1)
        return torch.cat([selected, own], -1)


class OwnRegionNeverSeen(Selection):
    def selected(self, selected, batch):
        own = batch.token_regions[:, None, :, None]
        return selected.masked_fill(selected == own, batch.regions)


class SelectionOfFirstGroup(Selection):
    breaks = ("A6", "A8")

    def selected(self, selected, batch):
        return selected[:, :1].expand_as(selected)


class SelectionOfFirstRow(Selection):
    def selected(self, selected, batch):
        return selected[:1].expand_as(selected)


class RegionsOfFirstRow(Selection):
    def regions(self, regions, batch):
        return regions[:1].expand_as(regions)


class SelectionOfBlock(Selection):
    """The first query of sixteen selects for all of them."""

    def selected(self, selected, batch):
        return selected[:, :, torch.arange(selected.shape[2]) // 16 * 16]


class SelectionOneQueryLate(Selection):
    def selected(self, selected, batch):
        return torch.cat([selected[:, :, :1], selected[:, :, :-1]], 2)


class LastSlotDropped(Selection):
    def selected(self, selected, batch):
        return selected[..., :-1] if selected.shape[-1] > 1 else selected


class UnusedSlotsSeeTheFirst(Selection):
    """An unused slot is read as region 0."""

    def selected(self, selected, batch):
        return selected.masked_fill(selected == batch.regions, 0)


class UnusedSlotsSeeTheLast(Selection):
    def selected(self, selected, batch):
        return selected.clamp(max=batch.regions - 1)


class SelectionEndsAtRepeat(Selection):
    """A region that is selected twice ends the list."""

    def selected(self, selected, batch):
        repeated = torch.zeros_like(selected)
        repeated[..., 1:] = (selected.diff(dim=-1) == 0) & (selected[..., 1:] < batch.regions)
        return selected.masked_fill(repeated.cumsum(-1) > 0, batch.regions)


class EmptySelectionSeesAll(Selection):
    """A query that selected nothing is taken for one without a selection."""

    def selected(self, selected, batch):
        every = torch.arange(batch.regions).expand(*selected.shape[:-1], -1)
        filled = torch.cat([selected, torch.full_like(every, batch.regions)], -1)
        nothing = (selected == batch.regions).all(-1, keepdim=True)
        return torch.where(nothing, torch.cat([every, torch.full_like(selected, batch.regions)], -1), filled)


class RegionsTakenForEven(Selection):
    """The region of key j is j // size."""

    def regions(self, regions, batch):
        size = -(-batch.tokens // batch.regions)
        return (torch.arange(batch.tokens) // size).expand_as(regions)


class RegionStartsLate(Selection):
    """The first key of a region belongs to the one before."""

    def regions(self, regions, batch):
        return torch.cat([regions[:, :1], regions[:, :-1]], 1)


class RegionStartsEarly(Selection):
    def regions(self, regions, batch):
        return torch.cat([regions[:, 1:], regions[:, -1:]], 1)


class RegionView(MaskFault):
    """Faults inside the ring; masks without regions are read right."""

    breaks = ("A6",)

    def pairs(self, view: View) -> Tensor:
        return view.allowed if view.mask.selected is None else self.routed(view)

    def routed(self, view: View) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def everything(view: View) -> Tensor:
        """Who would see whom without regions."""
        return view.under(selected=None, token_regions=None, regions=0)


class FutureOfOwnRegionSeen(RegionView):
    """Selected regions are seen whole when they hold the query."""

    breaks = ("A6", "A1")

    def routed(self, view: View) -> Tensor:
        regions = view.mask.token_regions
        return view.allowed | view.under(causal=False) & (view.of_query(regions) == view.of_key(regions))


class SelectionOfOwnKeysOnly(RegionView):
    """Keys of other ranks are seen whether selected or not."""

    breaks = ("A6", "D1")

    def routed(self, view: View) -> Tensor:
        return view.allowed | self.everything(view) & ~view.own


class SelectedRegionsOfOtherRanksLost(RegionView):
    breaks = ("A6", "D1")

    def routed(self, view: View) -> Tensor:
        return view.allowed & view.own


class RegionsCutAtShards(RegionView):
    """Of a region that lies on two ranks only the part on the rank of its first key is seen."""

    breaks = ("A6", "D1")

    def routed(self, view: View) -> Tensor:
        regions = view.mask.token_regions
        first = torch.searchsorted(regions, regions)
        return view.allowed & (view.owner == view.owner.flatten(1).gather(1, first)[:, None, None])


class BackwardWithoutRegions(BackwardMaskFault):
    breaks = ("B4", "A6")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, selected=None, token_regions=None, regions=0)
