"""Fault: an implementation that does what its host does, except for one thing."""

from contextlib import AbstractContextManager
from typing import ClassVar

from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Session, Setting, Step


class Fault(Implementation):
    """Wraps a correct implementation. Subclasses override `misread` (what the host is asked), `loaded` (how it
    loads) or `step` (what it is given and returns).

    breaks  the SPEC ids that this fault violates
    """

    breaks: ClassVar[tuple[str, ...]]

    def __init__(self, host: Implementation):
        self.host = host
        self.name = f"{kebab(type(self))} on {host.name}"
        self.variants, self.in_process, self.own_layout = host.variants, host.in_process, host.own_layout

    def misread(self, case: Case) -> Case:
        """The case as the fault understands it."""
        return case

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        return session.load(batch)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]:
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

    def load(self, batch: Rows) -> Step:
        step = self.implementation.loaded(self.inner, batch, self.group)
        return lambda q, k, v: self.implementation.step(step, self.group, q, k, v)

    def traffic(self) -> tuple[int, int] | None:
        return self.inner.traffic()

    def scope(self) -> AbstractContextManager:
        return self.inner.scope()

    def close(self) -> None:
        self.inner.close()


def kebab(kind: type) -> str:
    """"WindowTooWide" -> "window-too-wide"."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("-")
