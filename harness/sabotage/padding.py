"""Faults of padding: pads that attend, are attended, or leave something behind."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.rows import Rows
from harness.sabotage.fault import Fault, Result, RingFault
from harness.sabotage.views import MaskFault, View


class Pads(Fault):
    """Padding that was read as `padding` says, `[B, S]`; batches without a padding mask are read right."""

    breaks = ("A4", "B3")

    def padding(self, padding: Tensor) -> Tensor | None:
        return padding

    def metadata(self, batch: Rows) -> Rows:
        return batch if batch.padding is None else replace(batch, padding=self.padding(batch.padding))


class PaddingIgnored(Pads):
    def padding(self, padding: Tensor) -> None:
        return None


class PaddingInverted(Pads):
    """True is taken for a real token."""

    def padding(self, padding: Tensor) -> Tensor:
        return ~padding


class PaddingOfFirstRow(Pads):
    def padding(self, padding: Tensor) -> Tensor:
        return padding[:1].expand_as(padding)


class PaddingTakenForATail(Pads):
    """Rows are taken to be real tokens followed by padding, so that only their number is kept."""

    def padding(self, padding: Tensor) -> Tensor:
        return torch.arange(padding.shape[1]) >= (~padding).sum(1, keepdim=True)


class PaddingTakenForAHead(Pads):
    def padding(self, padding: Tensor) -> Tensor:
        return torch.arange(padding.shape[1]) < padding.sum(1, keepdim=True)


class PaddingOneShort(Pads):
    """The last token of every stretch of padding is taken for a real one."""

    def padding(self, padding: Tensor) -> Tensor:
        return padding & torch.cat([padding[:, 1:], padding[:, -1:]], 1)


class PaddingOneLong(Pads):
    def padding(self, padding: Tensor) -> Tensor:
        return padding | torch.cat([padding[:, :1], padding[:, :-1]], 1)


class WhollyPaddedRowsIgnored(Pads):
    """A row without any token is taken for one without padding."""

    def padding(self, padding: Tensor) -> Tensor:
        return padding & ~padding.all(1, keepdim=True)


class PaddingReplacesIds(Fault):
    """Where a padding mask is given, document id 0 is a document."""

    breaks = ("A3", "A4", "B3")

    def metadata(self, batch: Rows) -> Rows:
        if batch.padding is None or batch.documents is None:
            return batch
        ids = torch.where(batch.documents <= 0, batch.documents.max() + 1, batch.documents)
        return replace(batch, documents=ids)


class IdsReplacePadding(Fault):
    """Where documents are given, the padding mask is not read."""

    breaks = ("A3", "A4", "B3")

    def metadata(self, batch: Rows) -> Rows:
        return batch if batch.documents is None else replace(batch, padding=None)


class PaddedKeysSeen(MaskFault):
    breaks = ("A4",)

    def pairs(self, view: View) -> Tensor:
        padded = view.of_key(view.mask.padded)
        return view.allowed | _unpadded(view) & padded & ~view.of_query(view.mask.padded)


class PaddedQueriesSee(MaskFault):
    """Padded queries attend as if they were real, and give gradients to what they see."""

    breaks = ("A4", "B3")

    def pairs(self, view: View) -> Tensor:
        padded = view.of_key(view.mask.padded)
        return view.allowed | _unpadded(view) & ~padded & view.of_query(view.mask.padded)


class ArrivingPaddedKeysSeen(MaskFault):
    """Padding is known of a rank's own keys only."""

    breaks = ("A4", "D1")

    def pairs(self, view: View) -> Tensor:
        padded = view.of_key(view.mask.padded)
        return view.allowed | _unpadded(view) & padded & ~view.own & ~view.of_query(view.mask.padded)


class PaddedRowsSeeThemselves(MaskFault):
    """Every padded query sees its own key, to keep the softmax finite."""

    breaks = ("A4", "B3")

    def pairs(self, view: View) -> Tensor:
        return view.allowed | (view.key == view.query) & view.of_query(view.mask.padded)


def _unpadded(view: View) -> Tensor:
    documents = view.mask.documents
    return view.under(padding=None, documents=documents if documents is None else documents.abs() + 1)


class MaskedWeightsTimesNaN(RingFault):
    """What nobody may see goes into the kernels: a weight of 0 times NaN is NaN."""

    breaks = ("B5",)
    part = "attention.Ring.clean"

    def instead(self, original, ring, q, k, v):
        return q, k, v


class DeadQueriesNotCleaned(RingFault):
    """Unseen keys are kept out of the kernels, dead queries are not."""

    breaks = ("B5",)
    part = "attention.Ring.clean"

    def instead(self, original, ring, q, k, v):
        return q, *original(ring, q, k, v)[1:]


class PaddingGuessedFromValues(Fault):
    """Keys of zeros are padding, whatever the metadata says; others are not."""

    breaks = ("A4", "B5")

    def loaded(self, session, batch, group):
        known, guessed = (session.load(replace(batch, padding=padding)) for padding in (batch.padding, None))

        def step(q: Tensor, k: Tensor, v: Tensor) -> Result:
            return (known if bool((k.abs().amax(-1) > 1e3).any()) else guessed)(q, k, v)

        return step


class CleanedInFirstRowAlone(RingFault):
    """Padded tokens and unseen keys of later batch rows reach the kernel as they are."""

    breaks = ("B5",)
    part = "attention.Ring.clean"

    def instead(self, original, ring, *given):
        cleaned = original(ring, *given)
        return tuple(torch.cat([clean[:1], x[1:]]) for clean, x in zip(cleaned, given, strict=True))
