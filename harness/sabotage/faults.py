"""The faults by name: `--impl sabotage:lse-in-base-two`, or on another host `sabotage:lse-in-base-two@dense`."""

from difflib import get_close_matches
from types import ModuleType

from harness.sabotage import (
    backward,
    caches,
    causal,
    dead,
    documents,
    heads,
    ids,
    inputs,
    late,
    layers,
    layout,
    leaves,
    merge,
    modes,
    numerics,
    padding,
    paths,
    protocol,
    regions,
    returns,
    routing,
    rows,
    scale,
    selections,
    sessions,
    size,
    state,
    timed,
    topology,
    variants,
    vision,
    window,
)
from harness.sabotage.fault import Fault, kebab

CLASSES = (merge, backward, returns, heads, scale, causal, window, documents, padding, dead, vision, regions, state,
           caches, rows, ids, inputs, routing, layout, topology, protocol, timed, late, layers, paths, sessions,
           leaves, modes, selections, variants, numerics, size)

OUTSIDE = frozenset({"caches", "rows", "ids", "late", "layers", "paths", "sessions", "leaves", "modes", "selections",
                     "variants"})
"""Classes of faults that others brought, who tried to fool the suite and had not seen the diagnosis."""


def of(module: ModuleType) -> list[type[Fault]]:
    """The faults of a class: the leaves of what its file defines; what others stand on is no fault itself."""
    own = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Fault)
           and kind.__module__ == module.__name__]
    return [kind for kind in own if not any(issubclass(other, kind) for other in own if other is not kind)]


FAULTS = {kebab(kind): kind for module in CLASSES for kind in of(module)}
GROUPS = {kebab(kind): module.__name__.rpartition(".")[2] for module in CLASSES for kind in of(module)}


def names() -> list[str]:
    """All faults."""
    return list(FAULTS)


def load(name: str) -> Fault:
    """The fault on its host. Raises ValueError for a name that is none."""
    fault, _, host = name.partition("@")
    if fault not in FAULTS:
        near = get_close_matches(fault, FAULTS, n=3, cutoff=0.5)
        hint = f"nearest are {', '.join(near)}" if near else "ringcheck score --list shows all"
        raise ValueError(f"unknown fault {fault!r}: {hint}")
    return FAULTS[fault].on(host)
