"""The door for people who installed the distribution: `from ringcheck import Implementation` in an adapter."""

from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent
EXPORTS = {
    **dict.fromkeys(("Group", "Implementation", "Session", "Setting", "Step"), "harness.implementation"),
    "Case": "cases.case",
    "Mask": "cases.mask",
    "Rows": "cases.rows",
}
MODULES = {"captured": "cases.captured"}


def own(name: str):
    """Imports a module of this distribution.

    Raises ImportError with one line when a folder of the same name hides it (a user's own `cases` or `harness`).
    """
    top = import_module(name.partition(".")[0])
    found = Path(next(iter(top.__path__))).resolve()
    if found.parent != ROOT:
        raise ImportError(f"ringcheck needs its own package {top.__name__!r}, but that name is taken by {found}")
    return import_module(name)


def __getattr__(name: str):
    if name in EXPORTS:
        return getattr(own(EXPORTS[name]), name)
    if name in MODULES:
        return own(MODULES[name])
    raise AttributeError(f"module 'ringcheck' has no attribute {name!r}")
