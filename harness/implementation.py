"""The contract between the suite and an implementation of context-parallel attention."""

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import isbuiltin
from types import ModuleType
from typing import Any, Protocol

from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness import declared, stacks


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

    def silent(self, batch: Rows) -> Step | None:
        """For benches: a step that computes as much as the batch's own and moves nothing, whatever it answers; what the
        own one takes longer is communication that shows. None when there is none."""
        return None

    def kernels(self, batch: Rows, q: Tensor, k: Tensor, v: Tensor,
                dout: Tensor) -> dict[str, Callable[[], Callable[[], Any]]]:
        """For benches: by the name of each kernel, what computes all that this rank's queries ask, in the fewest calls,
        without exchange or merge: called it runs the forward and gives what runs the backward."""
        return {}

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
    own_layout     name of the one layout it has; None follows the layout that a case asks for,
                   and refuses a name that it does not know ("balanced" stands outside of the default cases)
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


KNOWN = {
    "ring": "harness.adapters.ring:Ring",
    "dense": "harness.adapters.dense:Dense",
    "torch-cp": "harness.adapters.torch_cp:TorchCp",
    "ring-flash-attn:ring": "harness.adapters.ring_flash_attn:Ring",
    "ring-flash-attn:zigzag": "harness.adapters.ring_flash_attn:Zigzag",
    "ring-flash-attn:zigzag-varlen": "harness.adapters.ring_flash_attn:ZigzagVarlen",
    "ring-flash-attn:stripe": "harness.adapters.ring_flash_attn:Stripe",
    "ring-flash-attn:llama3": "harness.adapters.ring_flash_attn:Llama3",
}


def load(spec: str) -> Implementation:
    """The implementation named in KNOWN, by "ring:KERNEL", "sabotage:NAME", "mutant:MODULE/NUMBER" or
    "package.module:name".

    Raises ValueError with one clear line when there is none, or when what it declares cannot be so.
    """
    made = _found(spec)
    wrong = declared.wrong(made, Implementation)
    if wrong:
        raise ValueError(f"implementation {spec!r}: {wrong}")
    made.name = made.name or spec.partition(":")[2]
    return made


def _found(spec: str) -> Implementation:
    module_name, colon, name = KNOWN.get(spec, spec).partition(":")
    if not colon:
        known = ", ".join(KNOWN)
        faulty = "faults are sabotage:NAME (ringcheck score --list)"
        raise ValueError(f"unknown implementation {spec!r}: known are {known}; {faulty}; others load as "
                         "package.module:name")
    if module_name == "sabotage":
        from harness.sabotage import faults

        return faults.load(name)
    if module_name == "mutant":
        from harness.sabotage import mutants

        return mutants.load(name)
    if module_name in KNOWN:
        made = load(module_name)
        if name not in made.kernels:
            known = f"known are {', '.join(made.kernels)}" if made.kernels else "it has none to choose from"
            raise ValueError(f"{module_name} has no kernel {name!r}: {known}")
        made.kernel, made.name = name, spec
        return made
    siblings = [known for known in KNOWN if known.startswith(f"{module_name}:")]
    if siblings:
        raise ValueError(f"{module_name} has no {name!r}: known are {', '.join(siblings)}")
    if not module_name or not name:
        lacking = "name" if module_name else "module"
        raise ValueError(f"implementation {spec!r} lacks the {lacking}: package.module:name")
    return _made(_attribute(_imported(module_name, spec), name, spec), name, spec)


def _imported(module_name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"implementation {spec!r}: no module named {error.name or module_name!r}") from error
    except (Exception, SystemExit) as error:
        said = stacks.raised_below(error)
        raise ValueError(f"implementation {spec!r}: module {module_name} cannot be imported: {said}") from error


def _attribute(module: ModuleType, name: str, spec: str) -> Any:
    """What stands under a name or, inside classes, under a dotted one."""
    found, path = module, f"module {module.__name__}"
    for part in name.split("."):
        try:
            found, path = getattr(found, part), f"{path}.{part}"
        except AttributeError as error:
            raise ValueError(f"implementation {spec!r}: {path} has no {part!r}") from error
    return found


def _made(found: Any, name: str, spec: str) -> Implementation:
    """An implementation as it is, or what its class or a function makes."""
    foreign = isinstance(found, type) and not issubclass(found, Implementation)
    if isinstance(found, Implementation):
        return found
    if foreign or isbuiltin(found) or not callable(found):
        what = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ValueError(f"implementation {spec!r} is {what}, not a harness.implementation.Implementation")
    try:
        made = found()
    except (Exception, SystemExit) as error:
        raise ValueError(f"implementation {spec!r}: {name}() raised {stacks.raised_below(error)}") from error
    if not isinstance(made, Implementation):
        kind = type(made).__name__
        raise ValueError(f"implementation {spec!r} makes a {kind}, not a harness.implementation.Implementation")
    return made
