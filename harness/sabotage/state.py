"""Faults of memory: batches, buffers and saved tensors that outlive their step."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, cycle, repeat

import torch
from torch import Tensor

from cases.rows import Rows
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


class NewestBatchEverywhere(Fault):
    """A step reads what was loaded last, as a recompute does that looks metadata up again."""

    breaks = ("D3", "D4")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kept = memory(session)
        kept["newest"] = session.load(batch)
        return lambda q, k, v: kept["newest"](q, k, v)


class SavedTensorsOverwritten(Fault):
    """What a forward saves overwrites what an earlier one saved; `where` tells call by call where it lies."""

    breaks = ("D3",)

    def where(self, session: Session) -> Iterator[dict]:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, where = session.load(batch), self.where(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept, places = next(where), count()

            def pack(x: Tensor) -> int:
                place = next(places)
                kept[place] = x
                return place

            with torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__):
                return step(q, k, v)

        return forward


class SavedTensorsOfNewest(SavedTensorsOverwritten):
    """All steps of a session save in one place."""

    def where(self, session: Session) -> Iterator[dict]:
        return repeat(memory(session))


class SavedTensorsOfNewestCall(SavedTensorsOverwritten):
    """A loaded step keeps what its latest call saved: layers that share it run backward from the last one's."""

    def where(self, session: Session) -> Iterator[dict]:
        return repeat({})


class SavedTensorsOfTwoNewestCalls(SavedTensorsOverwritten):
    """A loaded step saves in two places in turn: three layers are one too many."""

    def where(self, session: Session) -> Iterator[dict]:
        return cycle(({}, {}))


class SavedTensorsOnAStack(Fault):
    """A backward takes what the newest forward saved, whichever it belongs to."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, stack = session.load(batch), []

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            saved, taken = [], []

            def pack(x: Tensor) -> int:
                stack.extend([] if saved else [saved])
                saved.append(x)
                return len(saved) - 1

            def unpack(place: int) -> Tensor:
                taken.extend([] if taken else [stack.pop()])
                return taken[0][place]

            with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                return step(q, k, v)

        return forward


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


class RegionsOfFirstMicrobatch(Fault):
    """Where regions lie is taken from the session's first batch; what is selected is fresh."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        if batch.token_regions is not None:
            first = memory(session).setdefault("regions", batch.token_regions.clone())
            batch = replace(batch, token_regions=first)
        return session.load(batch)


class TwoSlotsOfMetadata(Fault):
    """Every third batch is loaded where the first one lay, which may still be in flight."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        slots = memory(session)
        turn = slots["turn"] = 1 - slots.get("turn", 1)
        slots[turn] = session.load(batch)
        return lambda q, k, v: slots[turn](q, k, v)
