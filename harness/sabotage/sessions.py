"""Faults of sessions: what the first batch was like decides for all that follow."""

from dataclasses import replace

import torch
from torch import Tensor

from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault
from harness.sabotage.state import memory


class RoomForFirstDocuments(Fault):
    """The table of documents is as long as the first batch needs; what is beyond joins its last one."""

    breaks = ("A3", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        if batch.documents is None:
            return session.load(batch)
        own = [list(dict.fromkeys(row[row > 0].tolist())) for row in batch.documents]
        room = memory(session).setdefault("room", max(map(len, own)))
        documents = batch.documents.clone()
        for row, ids in zip(documents, own):
            row[torch.isin(row, torch.tensor(ids[room:], dtype=row.dtype))] = ids[room - 1] if room else 0
        return session.load(replace(batch, documents=documents))


class KindOfFirstBatch(Fault):
    """Whether there is padding, an image or a second document is looked up once a session."""

    breaks = ("D3",)

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        kinds = {name: nothing for name, nothing in _without(batch).items()
                 if not torch.equal(getattr(batch, name), nothing)}
        kept = memory(session).setdefault("kinds", set(kinds))
        return session.load(replace(batch, **{name: nothing for name, nothing in kinds.items() if name not in kept}))


class PaddingKept(Fault):
    """A batch without padding gets that of the last one that had some."""

    breaks = ("B3", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        if batch.padding is None:
            return session.load(batch)
        if batch.padding.any():
            memory(session)["padding"] = batch.padding.clone()
            return session.load(batch)
        return session.load(replace(batch, padding=memory(session).get("padding", batch.padding)))


def _without(batch: Rows) -> dict[str, Tensor]:
    """What each part of the metadata is where nothing is padded, shown or packed."""
    nothing = {"padding": torch.zeros_like, "token_types": torch.zeros_like, "documents": torch.ones_like}
    return {name: like(getattr(batch, name)) for name, like in nothing.items() if getattr(batch, name) is not None}
