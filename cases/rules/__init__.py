"""One mask rule a file; every module here is found by `discover`, nothing registers itself."""

import importlib
import pkgutil
from types import ModuleType


def discover() -> list[ModuleType]:
    """The rule modules, sorted by name. Each may hold rule classes and a tuple CASES of scenarios."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}") for name in names]
