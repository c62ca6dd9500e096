"""Fault: an implementation that does what its host does, except for one thing."""

from contextlib import AbstractContextManager
from typing import Any, ClassVar

from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness import implementation
from harness.adapters.ring import Ring, RingSession
from harness.implementation import Group, Implementation, Session, Setting, Step
from harness.sabotage.copies import Copy

HOST = "ring"
Result = tuple[Tensor, Tensor | None]


class Fault(Implementation):
    """Wraps a correct implementation. Subclasses override `misread` (what the host is asked), `metadata` (the batch
    that the host is given), `loaded` (how it loads) or `step` (what it is given and returns).

    breaks  the SPEC ids that this fault violates
    lost    a rank raises or never answers: the right verdict is ERROR
    """

    breaks: ClassVar[tuple[str, ...]]
    lost: ClassVar[bool] = False

    def __init__(self, host: Implementation):
        self.host = host
        self.name = f"{kebab(type(self))} on {host.name}"
        self.variants, self.in_process, self.own_layout = host.variants, host.in_process, host.own_layout
        self.deterministic = host.deterministic

    @classmethod
    def on(cls, host: str) -> "Fault":
        """The fault on a host by name. Raises ValueError when it cannot sit there."""
        return cls(implementation.load(host or HOST))

    def misread(self, case: Case) -> Case:
        """The case as the fault understands it."""
        return case

    def metadata(self, batch: Rows) -> Rows:
        """The batch as the fault understands it."""
        return batch

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        return session.load(self.metadata(batch))

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        return self.host.refuses(case, setting)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return self.host.layout(case, world)

    def open(self, case: Case, group: Group) -> "FaultySession":
        return FaultySession(self, case, group)


class FaultySession(Session):
    """Passes everything to the host's session, with the fault in between."""

    def __init__(self, fault: Fault, case: Case, group: Group):
        super().__init__(fault, case, group)
        self.inner = fault.host.open(fault.misread(case), group)
        if isinstance(self.inner, RingSession):
            self.inner.place(case)

    def load(self, batch: Rows) -> Step:
        step = self.implementation.loaded(self.inner, batch, self.group)
        return lambda q, k, v: self.implementation.step(step, self.group, q, k, v)

    def traffic(self) -> tuple[int, int] | None:
        return self.inner.traffic()

    def scope(self) -> AbstractContextManager:
        return self.inner.scope()

    def close(self) -> None:
        self.inner.close()


class RingFault(Fault):
    """A fault inside the ring: `instead(original, ...)` is called for the function or method `part` of a copy of
    ringcp. Subclasses that change more than one part override `bend`."""

    part: ClassVar[str]

    def __init__(self):
        self.copy = Copy()
        super().__init__(Ring(self.copy.package))
        self.bend(self.copy)

    @classmethod
    def on(cls, host: str) -> "Fault":
        if host not in ("", HOST):
            raise ValueError(f"fault {kebab(cls)} is one of the ring itself and takes no other host, got {host!r}")
        return cls()

    def bend(self, copy: Copy) -> None:
        copy.replace(self.part, self.instead)

    def instead(self, original: Any, *arguments: Any) -> Any:
        raise NotImplementedError


def last(group: Group) -> bool:
    """The one rank on which a fault of one rank shows."""
    return group.rank == group.size - 1


def kebab(kind: type) -> str:
    """"WindowTooWide" -> "window-too-wide"."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("-")
