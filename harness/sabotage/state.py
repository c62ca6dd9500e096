"""Faults of memory: batches, buffers and saved tensors that outlive their step."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.rows import Rows
from harness import contract
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed


def memory(session: Session) -> dict:
    """What a fault keeps in a session."""
    return vars(session).setdefault("kept", {})


class MetadataByReference(Fault):
    """Reads the batch when a step runs, after its buffers were refilled."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        def late(q: Tensor, k: Tensor, v: Tensor) -> Result:
            return session.load(batch)(q, k, v)

        return late


class MetadataModified(Fault):
    breaks = ("B7",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)
        for tensor in (batch.documents, batch.padding, batch.token_types):
            if tensor is not None:
                tensor.zero_()
        return step


class SelectionModified(Fault):
    """Sorts the selected regions in place."""

    breaks = ("B7",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)
        if batch.selected is not None:
            batch.selected.copy_(batch.selected.flip(-1))
        return step


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


class NewestBatchEverywhere(Fault):
    """A step reads what was loaded last, as a recompute does that looks metadata up again."""

    breaks = ("D3", "D4")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kept = memory(session)
        kept["newest"] = session.load(batch)
        return lambda q, k, v: kept["newest"](q, k, v)


class SavedTensorsOverwritten(Fault):
    """What a forward saves overwrites what the one before saved; `place` is where it lies."""

    breaks = ("D3",)

    def place(self, session: Session) -> dict:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), self.place(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            places = iter(range(1000))

            def pack(x: Tensor) -> int:
                place = next(places)
                kept[place] = x
                return place

            with torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__):
                return step(q, k, v)

        return forward


class SavedTensorsOfNewest(SavedTensorsOverwritten):
    """All steps of a session save in one place."""

    def place(self, session: Session) -> dict:
        return memory(session)


class SavedTensorsOfNewestCall(SavedTensorsOverwritten):
    """A loaded step keeps what its latest call saved: layers that share it run backward from the last one's."""

    def place(self, session: Session) -> dict:
        return {}


class OutputBufferReused(Fault):
    """Outputs of one shape share one buffer."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            return In.apply(out, kept.setdefault(("out", out.shape), torch.empty_like(out))), lse

        return forward


class GradientBufferReused(Fault):
    """Key gradients of one shape share one buffer, which is zeroed once."""

    breaks = ("D3", "B4")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def buffered(grad: Tensor) -> Tensor:
            return kept.setdefault(("grad", grad.shape), torch.zeros_like(grad)).add_(grad)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            return step(q, Changed.apply(k, buffered), v)

        return forward


class In(torch.autograd.Function):
    """x in a buffer of others."""

    @staticmethod
    def forward(context, x: Tensor, buffer: Tensor) -> Tensor:
        return buffer.detach().copy_(x)

    @staticmethod
    def backward(context, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class DifferentOnRecompute(Fault):
    """Every second forward of a step leaves out its last query's output, as a dropout would."""

    breaks = ("D4", "D5")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept["calls"] = kept.get("calls", 0) + 1
            out, lse = step(q, k, v)
            return out * (1 if kept["calls"] % 2 else 0.5), lse

        return forward


class MetadataOfFirstMicrobatch(Fault):
    """The first batch's padding serves all later ones of its session."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        if batch.padding is not None:
            batch = replace(batch, padding=memory(session).setdefault("padding", batch.padding.clone()))
        return session.load(batch)


class SecondCallAnswersFirst(Fault):
    """The second call of a loaded step gives the first one's output."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, given = session.load(batch), []

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            out, lse = step(q, k, v)
            given.append(out.detach().clone())
            return (out + (given[0] - out.detach()) if len(given) == 2 else out), lse

        return forward


class CachedByFirstRow(Cached):
    """Batches with equal metadata in their first row are taken for the same."""

    def key(self, batch: Rows) -> object:
        return tuple(tuple(tensor[0].flatten().tolist()) for tensor in contract.metadata(batch).values())
