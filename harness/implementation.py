"""The contract between the suite and an implementation of context-parallel attention."""

import importlib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from cases.case import Case
from cases.rows import Rows


@dataclass(frozen=True)
class Setting:
    """The circumstances of a trial that an implementation may have to refuse.

    recomputes  ways in which saved tensors come back in the backward: "checkpoint", "reentrant", "offload"
    """

    world: int
    device: str = "cpu"
    in_process: bool = False
    recomputes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """The ranks that run one case together.

    rank, size    place in this group, never the global rank (SPEC D2)
    ranks         global ranks of the group, in group order
    process_group torch.distributed group, None when the ranks are threads of one process
    shared        one dict for all ranks when they are threads of one process, None when `process_group` is given;
                  shared["stop"] is a threading.Event, set when another rank raised or time ran out
    """

    rank: int
    size: int
    ranks: tuple[int, ...]
    process_group: Any = None
    shared: dict | None = None

    def mesh(self, device_type: str = "cpu"):
        """A one-dimensional DeviceMesh over this group, named "cp"."""
        from torch.distributed.device_mesh import DeviceMesh

        return DeviceMesh.from_group(self.process_group, device_type, mesh_dim_names=("cp",))


class Step(Protocol):
    """Attention of one batch: local q `[B, Hq, L, D]`, k `[B, Hkv, L, D]`, v `[B, Hkv, L, Dv]` ->
    out `[B, Hq, L, Dv]` and lse `[B, Hq, L]` or None; differentiable in q, k and v."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor | None]: ...


class Session:
    """What `Implementation.open` gives by default: forwards to the implementation's `load`."""

    def __init__(self, implementation: "Implementation", case: Case, group: Group):
        self.implementation, self.case, self.group = implementation, case, group

    def load(self, batch: Rows) -> Step:
        return self.implementation.load(self.case, self.group, batch)

    def traffic(self) -> tuple[int, int] | None:
        """Bytes and messages that this rank has sent so far, None when nobody counts."""
        return None

    def scope(self) -> AbstractContextManager:
        return nullcontext()

    def close(self) -> None:
        pass


class Implementation:
    """Base class of everything under test. The smallest adapter overrides `layout` and `load`.

    variants       SPEC variants that it follows in place of the rule ("window.inclusive", "vision.bounded")
    deterministic  same inputs give the same bits
    in_process     its ranks may run as threads of one process
    uneven         a rank may hold far more than its share of the tokens
    kernel         name of the kernel that runs, for the record
    kernels        names that `kernel` may be set to ("ring:fa4")
    own_layout     name of the one layout it has; None follows the layout that a case asks for
    """

    name: str = ""
    variants: frozenset[str] = frozenset()
    deterministic: bool = False
    in_process: bool = False
    uneven: bool = False
    kernel: str | None = None
    kernels: tuple[str, ...] = ()
    own_layout: str | None = None

    def refuses(self, case: Case, setting: Setting) -> str | None:
        """A reason why this case cannot be run, or None. Asked on every rank before any communication."""
        return None

    def layout(self, case: Case, world: int) -> list[Tensor]:
        """Who holds which tokens: one int64 tensor of global positions a rank, `[L]` or `[batch, L]`.

        Over all ranks each position stands exactly once; L may differ and may be 0; -1 is a filler slot.
        """
        raise NotImplementedError

    def load(self, case: Case, group: Group, batch: Rows) -> Step:
        """Prepares one batch. `batch` may be refilled or freed afterwards; copy what the step needs."""
        raise NotImplementedError

    def open(self, case: Case, group: Group) -> Session:
        """Untimed preparation for one case."""
        return Session(self, case, group)


KNOWN = {"ring": "harness.adapters.ring:Ring", "dense": "harness.adapters.dense:Dense"}


def load(spec: str) -> Implementation:
    """The implementation named in KNOWN, by "ring:KERNEL", "sabotage:NAME", "mutant:MODULE/NUMBER" or
    "package.module:name".

    Raises ValueError with one clear line when there is none.
    """
    module_name, colon, name = KNOWN.get(spec, spec).partition(":")
    if not colon:
        known = ", ".join(KNOWN)
        raise ValueError(f"unknown implementation {spec!r}: known are {known}; others load as package.module:name")
    if module_name == "sabotage":
        from harness.sabotage import faults

        return faults.load(name)
    if module_name == "mutant":
        from harness.sabotage import mutants

        return mutants.load(name)
    if module_name in KNOWN:
        made = load(module_name)
        if name not in made.kernels:
            raise ValueError(f"{module_name} has no kernel {name!r}: known are {', '.join(made.kernels)}")
        made.kernel, made.name = name, spec
        return made
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"implementation {spec!r}: no module named {error.name!r}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"implementation {spec!r}: module {module_name} cannot be imported: {said}") from error
    try:
        found = getattr(module, name)
    except AttributeError as error:
        raise ValueError(f"implementation {spec!r}: module {module_name} has no {name!r}") from error
    made = found() if isinstance(found, type) or not isinstance(found, Implementation) else found
    if not isinstance(made, Implementation):
        kind = type(made).__name__
        raise ValueError(f"implementation {spec!r} is a {kind}, not a harness.implementation.Implementation")
    made.name = made.name or name
    return made
