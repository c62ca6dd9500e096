"""Faults of document ids: numbers too large for where they are kept."""

import torch

from harness.sabotage.documents import Ids


class DocumentIdsInInt32(Ids):
    def ids(self, ids, batch):
        return ids.to(torch.int32).to(torch.int64)


class DocumentIdsInFloat32(Ids):
    def ids(self, ids, batch):
        return ids.to(torch.float32).to(torch.int64)


class DocumentIdsInBytes(Ids):
    """More than 15 documents repeat."""

    def ids(self, ids, batch):
        return torch.where(ids > 0, (ids - 1) % 15 + 1, ids)


class DocumentIdsInFloat64(Ids):
    def ids(self, ids, batch):
        return ids.to(torch.float64).to(torch.int64)


class DocumentsBeyond256Repeat(Ids):
    """A row's documents are numbered from 1, and begin again behind the 256th."""

    def ids(self, ids, batch):
        found = ids.clone()
        for row in found:
            known, number = row.unique(return_inverse=True)
            row.copy_(torch.where(row > 0, (number - int((known <= 0).sum())) % 256 + 1, row))
        return found
