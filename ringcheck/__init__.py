"""The door for people who installed the distribution: `from ringcheck import Implementation` in an adapter."""

import sys
from functools import cache
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent
EXPORTS = {
    **dict.fromkeys(("Group", "Implementation", "Session", "Setting", "Step"), "harness.implementation"),
    **dict.fromkeys(("Case", "Scenario", "Shape"), "cases.case"),
    "Mask": "cases.mask",
    "Rows": "cases.rows",
    "Rule": "cases.rules.rule",
}
MODULES = {"captured": "cases.captured"}


def own(name: str):
    """Imports a module of this distribution for a process of ours.

    Raises ImportError with one line when a folder of the same name hides it (a user's own `cases` or `harness`).
    """
    from ringcheck.aside import foreign

    top = name.partition(".")[0]
    found = foreign(top, ROOT)
    if found:
        raise ImportError(f"ringcheck needs its own package {top!r}, but that name is taken by {found}")
    return import_module(name)


def __getattr__(name: str):
    if name in EXPORTS:
        return getattr(_lent(EXPORTS[name]), name)
    if name in MODULES:
        return _lent(MODULES[name])
    raise AttributeError(f"module 'ringcheck' has no attribute {name!r}")


def _lent(name: str):
    """A module of ours for a process that may have packages of the same names."""
    beside = _beside()
    return beside.load(name) if beside else import_module(name)


@cache
def _beside():
    """None where the names are ours, as in every process of ours, or free; decided once, so that a class is one."""
    from ringcheck.aside import NAMES, Aside, foreign

    loaded = [name for name in NAMES if name in sys.modules]
    if "harness" in loaded and not foreign("harness", ROOT):
        return None
    return Aside(ROOT) if any(foreign(name, ROOT) for name in NAMES) else None
