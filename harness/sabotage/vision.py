"""Faults of vision groups: who belongs to a group, and what it is cut by."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.case import Case
from cases.mask import Mask as CaseMask
from cases.rows import Rows
from harness.sabotage.documents import by_row
from harness.sabotage.fault import Fault
from harness.sabotage.views import BackwardMaskFault, MaskFault, View
from ringcp.mask import Mask


class VisionVariant(Fault):
    """The rule is read as another: `rules` by the case's own."""

    breaks = ("A5",)
    rules: dict[str | None, str] = {}

    def misread(self, case: Case) -> Case:
        rules = tuple(replace(rule, variant=self.rules.get(rule.variant, rule.variant))
                      if rule.name == "vision" else rule for rule in case.mask.rules)
        return replace(case, mask=CaseMask(rules))


class VisionIgnored(VisionVariant):
    rules = {None: "none", "overlay": "none", "bounded": "none"}


class OverlayReadAsBounded(VisionVariant):
    rules = {None: "bounded", "overlay": "bounded"}


class BoundedReadAsOverlay(VisionVariant):
    rules = {"bounded": "overlay"}


class NoneReadAsOverlay(VisionVariant):
    """Full layers get vision edges where none were asked for."""

    rules = {"none": "overlay"}


class Types(Fault):
    """Token types that were read as `types` says, `[B, S]`."""

    breaks = ("A5",)

    def types(self, types: Tensor) -> Tensor:
        return types

    def metadata(self, batch: Rows) -> Rows:
        return batch if batch.token_types is None else replace(batch, token_types=self.types(batch.token_types))


class VideoIsText(Types):
    def types(self, types: Tensor) -> Tensor:
        return types.masked_fill(types == 2, 0)


class ImagesOfFirstRow(Types):
    def types(self, types: Tensor) -> Tensor:
        return types[:1].expand_as(types)


class ImagesOneGapTogether(Types):
    """One text token between two images does not part them."""

    def types(self, types: Tensor) -> Tensor:
        before, after = types.roll(1, 1), types.roll(-1, 1)
        alone = (types == 0) & (before > 0) & (after > 0)
        return types.masked_fill(alone, 1)


class ImageEndsEarly(Types):
    """The last token of an image is text."""

    def types(self, types: Tensor) -> Tensor:
        ends = (types > 0) & (torch.cat([types[:, 1:], types[:, -1:]], 1) == 0)
        return types.masked_fill(ends, 0)


class ImageStartsLate(Types):
    """The first token of an image is text."""

    def types(self, types: Tensor) -> Tensor:
        starts = (types > 0) & (torch.cat([types[:, :1], types[:, :-1]], 1) == 0)
        return types.masked_fill(starts, 0)


class ImageStartsEarly(Types):
    """The marker before an image belongs to it."""

    def types(self, types: Tensor) -> Tensor:
        return torch.where((types == 0) & (torch.cat([types[:, 1:], types[:, -1:]], 1) > 0), 1, types)


class GroupView(MaskFault):
    """Faults inside the ring; masks without groups are read right."""

    breaks = ("A5",)

    def pairs(self, view: View) -> Tensor:
        plain = view.mask.token_types is None or view.mask.vision_rule == "none"
        return view.allowed if plain else self.grouped(view)

    def grouped(self, view: View) -> Tensor:
        raise NotImplementedError

    @staticmethod
    def same(view: View, groups: Tensor) -> Tensor:
        """Pairs of one number above 0; groups `[B, S]`."""
        return (view.of_query(groups) == view.of_key(groups)) & (view.of_query(groups) > 0)


class GroupsNumberedPerShard(GroupView):
    """A group ends where its rank's tokens end."""

    breaks = ("A5", "D1")

    def grouped(self, view: View) -> Tensor:
        return view.allowed & (view.own | view.under(token_types=None))


class GroupsOfArrivingKeysOnly(GroupView):
    breaks = ("A5", "D1")

    def grouped(self, view: View) -> Tensor:
        return view.allowed & (~view.own | view.under(token_types=None))


class GroupsBeyondNextRankLost(GroupView):
    """Hops are counted without groups, so that far parts of one are left out."""

    breaks = ("A5", "D1")

    def grouped(self, view: View) -> Tensor:
        near = torch.minimum(view.distance, (view.owner - view.rank) % view.world) <= 1
        return view.allowed & (near | view.under(token_types=None))


class GroupsOnlyBackward(GroupView):
    """Hops lead to earlier ranks only: a group's later part on the next rank is missed."""

    breaks = ("A5", "D1")

    def grouped(self, view: View) -> Tensor:
        return view.allowed & ((view.owner <= view.rank) | view.under(token_types=None))


class GroupsCrossDocuments(GroupView):
    breaks = ("A5", "A7")

    def grouped(self, view: View) -> Tensor:
        apart = view.under(documents=None, padding=view.mask.padded)
        return view.allowed | apart & self.same(view, runs(view.mask.token_types > 0))


class GroupsPartedByType(GroupView):
    """An image beside a video is another group."""

    def grouped(self, view: View) -> Tensor:
        same = view.of_query(view.mask.token_types) == view.of_key(view.mask.token_types)
        return view.allowed & (same | view.under(token_types=None))


class GroupsEndedByPadding(GroupView):
    def grouped(self, view: View) -> Tensor:
        groups = runs((view.mask.token_types > 0) & ~view.mask.padded)
        return view.allowed & (self.same(view, groups) | view.under(token_types=None))


class GroupsEndedByDocuments(GroupView):
    """A document between two parts of a group keeps them apart, even within one document."""

    def grouped(self, view: View) -> Tensor:
        if view.mask.documents is None:
            return view.allowed
        ids = view.mask.documents
        edge = torch.cat([torch.ones_like(ids[:, :1]), ids.diff(dim=-1)], 1) != 0
        parts = runs(view.mask.token_types > 0) * (ids.shape[1] + 1) + edge.cumsum(-1)
        return view.allowed & (self.same(view, parts * (view.mask.token_types > 0)) | view.under(token_types=None))


class AllImagesOneGroup(GroupView):
    def grouped(self, view: View) -> Tensor:
        vision = (view.mask.token_types > 0).to(torch.int64)
        return view.allowed | view.under(causal=False, window=None, window_rule="exclusive") & self.same(view, vision)


class ImagesSeeOnlyThemselves(GroupView):
    """Tokens of an image see no text before it."""

    def grouped(self, view: View) -> Tensor:
        groups = runs(view.mask.token_types > 0)
        return view.allowed & (self.same(view, groups) | (view.of_query(groups) == 0))


class ImagesSeePastTheWindow(GroupView):
    """Tokens of an image have no window at all."""

    breaks = ("A5", "A2")

    def grouped(self, view: View) -> Tensor:
        image = view.of_query(view.mask.token_types) > 0
        return view.allowed | view.under(window=None, window_rule="exclusive") & image


class GroupsForwardOnly(GroupView):
    """Later tokens of a group are seen by earlier ones, but not beyond the window back."""

    breaks = ("A5", "A2")

    def grouped(self, view: View) -> Tensor:
        return view.allowed & ((view.key >= view.query) | view.under(token_types=None))


class BackwardWithoutGroups(BackwardMaskFault):
    breaks = ("B4", "A5")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, token_types=None)


def runs(marks: Tensor) -> Tensor:
    """`[B, S]` bool -> number of the run of marks that each token stands in, 0 outside."""
    edge = marks & ~torch.cat([torch.zeros_like(marks[:, :1]), marks[:, :-1]], 1)
    return by_row(edge, lambda row: row.cumsum(-1)) * marks


class ImagesBeyondEightAreText(Fault):
    """A table of images has room for eight a row."""

    breaks = ("A5",)

    def metadata(self, batch: Rows) -> Rows:
        if batch.token_types is None:
            return batch
        seen = batch.token_types > 0
        first = seen.clone()
        first[:, 1:] &= ~seen[:, :-1]
        return replace(batch, token_types=batch.token_types.masked_fill(first.cumsum(-1) > 8, 0))
