"""Our packages in a process whose own `harness`, `cases`, ... bear their names: theirs stay where they are, ours are
imported beside them."""

import builtins
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

NAMES = ("cases", "reference", "ringcp", "harness", "reports")


class Aside(MetaPathFinder):
    """Swaps the modules of NAMES for ours, from `root`, while one of ours is imported.

    Ours import each other by these names inside functions too, long after they were imported themselves; so each is
    given an `__import__` of its own that swaps again.
    """

    def __init__(self, root: Path):
        self.root = root
        self._ours: dict[str, ModuleType] = {}
        self._lock, self._depth = threading.RLock(), 0
        self._builtins = {**vars(builtins), "__import__": self._import}

    def load(self, name: str) -> ModuleType:
        """Our module of this name."""
        with self._swapped():
            return import_module(name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in NAMES:
            return None
        spec = PathFinder.find_spec(name, path or [str(self.root)], target)
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._builtins)
        return spec

    def _import(self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if not level and name.partition(".")[0] not in NAMES:
            return builtins.__import__(name, globals, locals, fromlist, level)
        with self._swapped():
            return builtins.__import__(name, globals, locals, fromlist, level)

    @contextmanager
    def _swapped(self) -> Iterator[None]:
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                theirs = taken_out()
                sys.modules.update(self._ours)
                sys.meta_path.insert(0, self)
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    sys.meta_path.remove(self)
                    self._ours = taken_out()
                    sys.modules.update(theirs)


class _Loader(SourceFileLoader):
    """Runs a module with these builtins."""

    def __init__(self, name: str, path: str, known: dict[str, Any]):
        super().__init__(name, path)
        self.known = known

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self.known
        super().exec_module(module)


def taken_out() -> dict[str, ModuleType]:
    """The modules of NAMES, no longer in sys.modules."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in NAMES}


def foreign(name: str, root: Path) -> Path | None:
    """Where a package of this name lies that is not ours, or None."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) if module else find_spec(name)
    places = list(getattr(spec, "submodule_search_locations", None) or [])
    if not places and spec and spec.origin:
        places = [spec.origin]
    if not places and module is not None:
        places = [getattr(module, "__file__", None) or name]
    return next((Path(place) for place in places if Path(place).resolve().parent != root), None)
