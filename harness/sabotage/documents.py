"""Faults of packed documents: edges lost, moved, cut at shards, ids misread."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from cases.case import Case
from cases.mask import Mask as CaseMask
from cases.rows import Rows
from harness.sabotage.fault import Fault
from harness.sabotage.views import BackwardMaskFault, MaskFault, View
from harness.sabotage.window import without
from ringcp.mask import Mask


class DocumentsIgnored(Fault):
    breaks = ("A3", "A7")

    def misread(self, case: Case) -> Case:
        return without(case, "documents")

    def metadata(self, batch: Rows) -> Rows:
        return replace(batch, documents=None)


class Ids(Fault):
    """Documents that were read as `ids` says; `[B, S]`."""

    breaks = ("A3",)

    def ids(self, ids: Tensor, batch: Rows) -> Tensor | None:
        return ids

    def metadata(self, batch: Rows) -> Rows:
        return batch if batch.documents is None else replace(batch, documents=self.ids(batch.documents, batch))


class DocumentsDroppedBesidePadding(Ids):
    """A padding mask beside them makes documents forgotten."""

    def ids(self, ids, batch):
        return ids if batch.padding is None else torch.ones_like(ids)


class DocumentsOfFirstRow(Ids):
    def ids(self, ids, batch):
        return ids[:1].expand_as(ids)


class NegativeIdsAreDocuments(Ids):
    breaks = ("A3", "A4")

    def ids(self, ids, batch):
        return torch.where(ids < 0, ids.abs() + ids.max(), ids)


class IdZeroIsADocument(Ids):
    breaks = ("A3", "A4")

    def ids(self, ids, batch):
        return torch.where(ids == 0, ids.max() + 1, ids)


class DocumentEdgeLate(Ids):
    """Each document's first token belongs to the one before."""

    def ids(self, ids, batch):
        return torch.cat([ids[:, :1], ids[:, :-1]], 1).where(ids > 0, ids)


class DocumentEdgeEarly(Ids):
    """Each document's last token belongs to the next."""

    def ids(self, ids, batch):
        return torch.cat([ids[:, 1:], ids[:, -1:]], 1).where(ids > 0, ids)


class LastTokenOfOddDocumentsDropped(Ids):
    def ids(self, ids, batch):
        return by_document(ids, lambda places: places[len(places) - len(places) % 2:])


class DocumentsCutToBlocks(Ids):
    """What exceeds a multiple of eight tokens of a document is dropped."""

    def ids(self, ids, batch):
        return by_document(ids, lambda places: places[len(places) // 8 * 8:] if len(places) > 8 else places[:0])


class SingleTokenDocumentsDropped(Ids):
    def ids(self, ids, batch):
        return by_document(ids, lambda places: places if len(places) == 1 else places[:0])


class TwoTokenDocumentsDropped(Ids):
    """Documents shorter than a pair of zigzag stretches are dropped."""

    def ids(self, ids, batch):
        return by_document(ids, lambda places: places if len(places) < 3 else places[:0])


class EmptyDocumentEndsTheList(Ids):
    """A document without tokens ends the list: the ones behind it are one."""

    def ids(self, ids, batch):
        small = ids.clone()
        for row in small:
            known = set(row[row > 0].tolist())
            first = next(number for number in range(1, len(known) + 2) if number not in known)
            row[row > first] = first + 1
        return small


class Merged(Ids):
    """Of each row's documents in their order `pair` are one."""

    pair = (-2, -1)

    def ids(self, ids, batch):
        merged = ids.clone()
        for row in merged:
            order = row[row > 0].unique_consecutive()
            if len(order) > 1:
                row[row == order[self.pair[1]]] = order[self.pair[0]].clone()
        return merged


class LastDocumentMerged(Merged):
    """The last document's start is missing in cu_seqlens."""


class FirstDocumentMerged(Merged):
    pair = (0, 1)


class DocumentsVariant(Fault):
    """The rule is read as another: `rules` by the case's own."""

    breaks = ("A3",)
    rules: dict[str | None, str | None] = {}

    def misread(self, case: Case) -> Case:
        rules = tuple(replace(rule, variant=self.rules.get(rule.variant, rule.variant))
                      if rule.name == "documents" else rule for rule in case.mask.rules)
        return replace(case, mask=CaseMask(rules))


class RunsAreDocuments(DocumentsVariant):
    """Every contiguous run of an id is its own document, undeclared."""

    rules = {None: "runs"}


class RunsAreNotDocuments(DocumentsVariant):
    """Runs of one id are one document where runs were asked for."""

    rules = {"runs": None}


class DocumentView(MaskFault):
    """Faults inside the ring; masks without documents are read right."""

    breaks = ("A3", "D1")

    def pairs(self, view: View) -> Tensor:
        return view.allowed if view.mask.documents is None else self.packed(view)

    def packed(self, view: View) -> Tensor:
        raise NotImplementedError


class DocumentsCutAtShards(DocumentView):
    """cu_seqlens come from the local shard, where every rank's documents begin anew."""

    def packed(self, view: View) -> Tensor:
        return view.allowed & view.own


class DocumentsOnlyOfOwnKeys(DocumentView):
    """Keys of other ranks are seen whatever their document; padding holds."""

    def packed(self, view: View) -> Tensor:
        return view.allowed | _whatever(view) & ~view.own


class DocumentsOnlyOfArrivingKeys(DocumentView):
    def packed(self, view: View) -> Tensor:
        return view.allowed | _whatever(view) & view.own


class DocumentsOfNeighbourSeen(DocumentView):
    """A query sees the document before its own as well."""

    def packed(self, view: View) -> Tensor:
        ids = torch.stack([row.unique(return_inverse=True)[1] for row in view.mask.documents])
        return view.allowed | _whatever(view) & (view.of_query(ids) - view.of_key(ids) == 1)


class DocumentsFromFirstToLast(DocumentView):
    """A document reaches from its first token to its last, over whatever lies between."""

    def packed(self, view: View) -> Tensor:
        first, last = (view.of_query(edge(view.mask.documents)) for edge in (_first_of, _last_of))
        return view.allowed | _whatever(view) & (view.key >= first) & (view.key <= last)


class BackwardWithoutDocuments(BackwardMaskFault):
    breaks = ("B4", "A3")

    def other(self, mask: Mask) -> Mask:
        return replace(mask, documents=None, padding=mask.padded)


def _whatever(view: View) -> Tensor:
    """Who would see whom without documents."""
    return view.under(documents=None, padding=view.mask.padded)


def _first_of(ids: Tensor) -> Tensor:
    return by_row(ids, lambda row: (row[:, None] == row).to(torch.int8).argmax(1))


def _last_of(ids: Tensor) -> Tensor:
    return by_row(ids, lambda row: len(row) - 1 - (row[:, None] == row).flip(1).to(torch.int8).argmax(1))


def by_row(ids: Tensor, what: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.stack([what(row) for row in ids])


def by_document(ids: Tensor, dropped: Callable[[Tensor], Tensor]) -> Tensor:
    """ids with padding at the places of each document that `dropped` chooses of all its places."""
    found = ids.clone()
    for row in found:
        for number in row[row > 0].unique():
            row[dropped((row == number).nonzero()[:, 0])] = 0
    return found
