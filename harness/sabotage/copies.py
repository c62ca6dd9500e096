"""Copies: ringcp once more under a name of its own, so that a part of it can be changed and nobody else sees it."""

import ast
import importlib
import itertools
import sys
import threading
from collections.abc import Callable
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import ringcp

ROOT = Path(ringcp.__file__).parent
ORIGINAL = "ringcp"
Change = Callable[[str], ast.Module | None]

_numbers = itertools.count()
_loading = threading.Lock()


class Copy:
    """A private ringcp: `package`, and all its modules by their dotted name below the package ("" is the package).

    change  gives the syntax tree that stands for a module's own, by its dotted name; None keeps the original
    """

    def __init__(self, change: Change = lambda below: None):
        name = f"{ORIGINAL}_{next(_numbers)}"
        finder = _Finder(name, change)
        with _loading:
            sys.meta_path.insert(0, finder)
            try:
                self.package = importlib.import_module(name)
            finally:
                sys.meta_path.remove(finder)
                own = [key for key in sys.modules if key == name or key.startswith(f"{name}.")]
                self.modules = {key.removeprefix(name).lstrip("."): sys.modules.pop(key) for key in own}

    def replace(self, path: str, instead: Callable) -> None:
        """Makes `instead(original, *arguments)` of the function or method at `path` ("merge.Total.add"), in every
        module that names it."""
        owner, name, original = self.find(path)
        replaced = _calling(instead, original)
        setattr(owner, name, replaced)
        for module in self.modules.values():
            for key, value in list(vars(module).items()):
                if value is original:
                    setattr(module, key, replaced)

    def find(self, path: str) -> tuple[Any, str, Any]:
        """Owner, name and value of a dotted path."""
        *modules, name = path.split(".")
        owner_path = [*modules]
        while ".".join(owner_path) not in self.modules:
            owner_path.pop()
        owner: Any = self.modules[".".join(owner_path)]
        for part in modules[len(owner_path):]:
            owner = getattr(owner, part)
        return owner, name, getattr(owner, name)


def _calling(instead: Callable, original: Callable) -> Callable:
    def replaced(*arguments: Any, **named: Any) -> Any:
        return instead(original, *arguments, **named)

    return replaced


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of one copy in the original's files and makes them import each other."""

    def __init__(self, name: str, change: Change):
        self.name, self.change = name, change

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self.name and not fullname.startswith(f"{self.name}."):
            return None
        file = source_file(self._below(fullname))
        return spec_from_loader(fullname, self, origin=str(file), is_package=file.name == "__init__.py")

    def exec_module(self, module: ModuleType) -> None:
        below = self._below(module.__name__)
        tree = self.change(below)
        code = compiled(below) if tree is None else compile(tree, module.__spec__.origin, "exec")
        exec(code.replace(co_names=tuple(map(self._own, code.co_names))), vars(module))

    def _own(self, name: str) -> str:
        """The copy's name of what a module imports at its top level."""
        return self.name + name.removeprefix(ORIGINAL) if name.split(".")[0] == ORIGINAL else name

    def _below(self, fullname: str) -> str:
        return fullname.removeprefix(self.name).lstrip(".")


def source_file(below: str) -> Path:
    """The file of a module by its dotted name below ringcp."""
    path = ROOT.joinpath(*below.split(".")) if below else ROOT
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def source(below: str) -> str:
    return source_file(below).read_text(encoding="utf-8")


@cache
def compiled(below: str) -> CodeType:
    return compile(source(below), source_file(below), "exec")
