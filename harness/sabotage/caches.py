"""Faults of caches: what answers for something else, because its key leaves out what matters."""

import torch
from torch import Tensor

from cases.rows import Rows
from harness import contract
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.state import memory


class Cached(Fault):
    """Steps are kept by `key` and never loaded twice."""

    breaks = ("D3",)

    def key(self, batch: Rows) -> object:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kept, key = memory(session), self.key(batch)
        if key not in kept:
            kept[key] = session.load(batch)
        return kept[key]


class CachedByShape(Cached):
    def key(self, batch: Rows) -> object:
        return tuple((name, tuple(tensor.shape)) for name, tensor in contract.metadata(batch).items())


class CachedByAddress(Cached):
    """Metadata at an address that was seen before is taken for the same metadata."""

    def key(self, batch: Rows) -> object:
        return tuple(tensor.data_ptr() for tensor in contract.metadata(batch).values())


class CachedByFirstTensor(Cached):
    """Only one of several metadata tensors decides whether a batch is new."""

    def key(self, batch: Rows) -> object:
        first = next(iter(contract.metadata(batch).values()), None)
        return None if first is None else tuple(first.flatten().tolist())


class CachedBySum(Cached):
    """Batches with equal sums of their metadata are taken for the same."""

    def key(self, batch: Rows) -> object:
        return tuple(int(tensor.sum()) for tensor in contract.metadata(batch).values())


class CachedByFirstRow(Cached):
    """Batches with equal metadata in their first row are taken for the same."""

    def key(self, batch: Rows) -> object:
        return tuple(tuple(tensor[0].flatten().tolist()) for tensor in contract.metadata(batch).values())


class CachedByEdges(Cached):
    """The places where metadata change (cu_seqlens) decide whether a batch is new, not what stands between them."""

    def key(self, batch: Rows) -> object:
        return tuple(tuple((tensor[..., 1:] != tensor[..., :-1]).flatten().tolist())
                     for tensor in contract.metadata(batch).values())


class CachedByAddressAndVersion(Cached):
    """Metadata at an address that nobody wrote to since are taken for the same, though others may lie there now."""

    def key(self, batch: Rows) -> object:
        return tuple((tensor.data_ptr(), tensor._version) for tensor in contract.metadata(batch).values())


class CachedByOwnSlice(Fault):
    """A rank asks only its own part of the metadata whether a batch is new."""

    breaks = ("D3", "D6")

    @classmethod
    def on(cls, host: str) -> Fault:
        """Ranks that are out of step would not answer on the ring."""
        return super().on(host or "dense")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kept, own = memory(session), self.host.layout(session.case, group.size)[group.rank].clamp(min=0)
        key = tuple(tuple((tensor[:, :, own] if name == "selected" else tensor[:, own]).flatten().tolist())
                    for name, tensor in contract.metadata(batch).items())
        if key not in kept:
            kept[key] = session.load(batch)
        return kept[key]


class AnswersByAddressAndVersion(Fault):
    """A step remembers what it answered to q, k and v, and knows them by where they lie."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, known = session.load(batch), {}

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            key = tuple((x.data_ptr(), x._version, x.shape) for x in (q, k, v))
            first = known.setdefault(key, out.detach().clone())
            return (out if torch.equal(first, out) else out + (first - out.detach())), lse

        return forward
