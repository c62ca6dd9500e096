"""What an implementation declares about itself, checked once when it is loaded, before any rank starts."""

from collections.abc import Iterable
from typing import Any

from cases import rules
from cases.rules.rule import Rule

DEAD = ("dead.undefined", "dead.singleton")
OWN = ("layout",), ("load", "open")
KINDS = {"name": str, "deterministic": bool, "in_process": bool, "uneven": bool, "kernel": str | None,
         "kernels": tuple, "own_layout": str | None}


def variants() -> list[str]:
    """Every variant that SPEC or a rule of somebody's own names."""
    rules.discover()
    return sorted([*DEAD, *(f"{rule.name}.{variant}" for rule in _below(Rule) for variant in rule.variants)])


def wrong(made: Any, base: type) -> str | None:
    """The first thing about `made`, of a class below `base`, that cannot be as it is: in words, None when all can."""
    for names in OWN:
        if all(getattr(getattr(made, name, None), "__func__", None) is getattr(base, name) for name in names):
            return f"{type(made).__name__} must override {' or '.join(names)}"
    try:
        found = {name: getattr(made, name) for name in ("variants", *KINDS)}
    except Exception as error:
        return f"what it declares raises {type(error).__name__} when it is read"
    return _kinds(found) or _variants(found["variants"])


def _kinds(found: dict[str, Any]) -> str | None:
    for name, kind in KINDS.items():
        if not isinstance(found[name], kind):
            return f"its {name} is {found[name]!r}, expected {_said(kind)}"
    if not all(isinstance(kernel, str) for kernel in found["kernels"]):
        return f"its kernels are {found['kernels']!r}, expected a tuple of names"
    return None


def _variants(found: Any) -> str | None:
    if not isinstance(found, frozenset | set):
        return f"its variants are {found!r}, expected a frozenset of names"
    known = variants()
    unknown = sorted(repr(name) for name in found if name not in known)
    return f"it declares the unknown variant {unknown[0]}: known are {', '.join(known)}" if unknown else None


def _said(kind: Any) -> str:
    return {str: "a string", bool: "True or False", tuple: "a tuple of names"}.get(kind, "a string or None")


def _below(kind: type) -> Iterable[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
