"""Mutants: ringcp with one small change in its own source, made automatically, loaded as a copy; no file is touched."""

import ast
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from harness.adapters.ring import Ring
from harness.sabotage.copies import Copy, source

MODULES = ("attention", "merge", "plan", "spans", "transfer", "layout", "mask", "work", "exchange", "kernels.tiled",
           "kernels.torch_cpu", "kernels.shape")
ELSEWHERE = {
    "exchange": ("Distributed", "_channel_groups", "exchange_for", "Alone", "Traffic", "Mailbox"),
    "layout": ("make_layout", "shard", "unshard", "_index", "_sizes", "__post_init__", "__eq__"),
    "mask": ("__post_init__", "_check_numbers", "_check_regions", "_one_of", "_keep", "__eq__"),
    "attention": ("_check", "_named", "total"),
    "plan": ("_to", "_move", "parts", "key_parts", "_most_given", "whole_work"),
    "work": ("calls", "spans_per_query", "simple"),
}
COMMUTATIVE = ("maximum", "minimum", "max", "min", "logaddexp", "transpose")
SWAPPED = {"maximum": "minimum", "amax": "amin", "cummax": "cummin", "any": "all", "max": "min", "zeros": "ones",
           "zeros_like": "ones_like", "new_zeros": "new_ones"}
SWAPPED |= {new: old for old, new in SWAPPED.items()}
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
            ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
            ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Div: ast.Mult}
Undo = Callable[[], None]
Site = tuple[ast.AST, Callable[[], Undo]]


@dataclass(frozen=True)
class Mutant:
    """The `number`-th change of a module: `before` became `after` in the line `text`.

    ELSEWHERE names what a trial on CPU threads does not reach (narrow sums and bands are GPU kernels' affair), and
    checks of what users give, counts and limits of waiting, which have tests of their own.
    """

    module: str
    number: int
    line: int
    text: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.module}/{self.number}"

    @property
    def spec(self) -> str:
        return f"mutant:{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by when lines move."""
        return self.module, self.text, f"{self.before} -> {self.after}"

    def __str__(self) -> str:
        return f"{self.module}:{self.line}  {_short(self.before)} -> {_short(self.after)}"


@cache
def every() -> tuple[Mutant, ...]:
    """All mutants of MODULES, in the order of the source."""
    found = []
    for module in MODULES:
        lines = source(module).splitlines()
        for number, (node, change) in enumerate(list(sites(ast.parse(source(module)), module))):
            before = _shown(node)
            undo = change()
            after = _shown(node)
            undo()
            text = lines[node.lineno - 1].strip()
            found.append(Mutant(module, number, node.lineno, text, before, after if after != before else "dropped"))
    return tuple(found)


def sample(count: int | None, seed: int) -> list[Mutant]:
    """So many mutants drawn by a seed, in the order of the source; None takes all."""
    found = every()
    if count is None or count >= len(found):
        return list(found)
    return [found[place] for place in sorted(random.Random(seed).sample(range(len(found)), count))]


def load(name: str) -> Ring:
    """The ring of one mutant, "merge/3". Raises ValueError for a name that is none."""
    module, _, number = name.partition("/")
    known = list(sites(ast.parse(source(module)), module)) if module in MODULES else []
    if not number.isdigit() or int(number) >= len(known):
        raise ValueError(f"unknown mutant {name!r}: MODULE/NUMBER, modules are {', '.join(MODULES)}")

    def change(below: str) -> ast.Module | None:
        if below != module:
            return None
        tree = ast.parse(source(module))
        list(sites(tree, module))[int(number)][1]()
        return ast.fix_missing_locations(tree)

    made = Ring(Copy(change).package)
    made.name = f"ring with mutant {name}"
    return made


def sites(tree: ast.Module, module: str) -> Iterator[Site]:
    """Every place that can be changed: the node that shows the change, and the change itself, which gives its undo."""
    for node, parent in _reached(tree, ELSEWHERE.get(module, ())):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                if type(operator) in COMPARED:
                    yield node, _placing(node.ops, place, COMPARED[type(operator)]())
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            shown = parent if isinstance(parent, ast.expr) else node
            yield shown, _setting(node, "value", node.value + 1)
            yield shown, _setting(node, "value", node.value - 1)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in COMPUTED:
            yield node, _setting(node, "op", COMPUTED[type(node.op)]())
        elif isinstance(node, ast.BoolOp):
            yield node, _setting(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        elif isinstance(node, ast.IfExp):
            yield node, _setting(node, "test", _not(node.test))
        elif isinstance(node, ast.If):
            yield node, _setting(node, "test", _not(node.test))
        elif isinstance(node, ast.Call):
            yield from _called(node)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            yield node, _setting(node, "operand", ast.copy_location(ast.UnaryOp(ast.Invert(), node.operand), node))
        yield from _dropped(node)


def _called(node: ast.Call) -> Iterator[Site]:
    """Neighbouring arguments that are not the same, exchanged; the name of a function with a counterpart."""
    ordered = not (isinstance(node.func, ast.Name | ast.Attribute) and _name(node.func) in COMMUTATIVE)
    for place, (one, other) in enumerate(zip(node.args, node.args[1:], strict=False) if ordered else ()):
        starred = isinstance(one, ast.Starred) or isinstance(other, ast.Starred)
        if not starred and ast.dump(one) != ast.dump(other):
            swapped = [*node.args[:place], other, one, *node.args[place + 2:]]
            yield node, _setting(node, "args", swapped)
    if isinstance(node.func, ast.Attribute) and node.func.attr in SWAPPED:
        yield node, _setting(node.func, "attr", SWAPPED[node.func.attr])


def _name(function: ast.Name | ast.Attribute) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr


def _dropped(node: ast.AST) -> Iterator[Site]:
    """Statements of a body that are calls or write into something that exists."""
    for place, statement in enumerate(getattr(node, "body", []) if isinstance(node, ast.stmt) else []):
        writes = isinstance(statement, ast.AugAssign) or isinstance(statement, ast.Assign) and any(
            isinstance(target, ast.Subscript | ast.Attribute) for target in statement.targets)
        calls = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if writes or calls:
            yield statement, _placing(node.body, place, ast.copy_location(ast.Pass(), statement))


def _shown(node: ast.AST) -> str:
    """The source of a node; of a statement that holds others its first line."""
    return ast.unparse(node).splitlines()[0]


def _short(text: str) -> str:
    return text if len(text) <= 70 else f"{text[:33]} ... {text[-32:]}"


def _not(test: ast.expr) -> ast.expr:
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


def _setting(node: ast.AST, name: str, value: object) -> Callable[[], Undo]:
    def change() -> Undo:
        old = getattr(node, name)
        setattr(node, name, value)
        return lambda: setattr(node, name, old)

    return change


def _placing(items: list, place: int, item: object) -> Callable[[], Undo]:
    def change() -> Undo:
        old, items[place] = items[place], item
        return lambda: items.__setitem__(place, old)

    return change


def _reached(tree: ast.Module, elsewhere: tuple[str, ...]) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Nodes inside functions with their parents, but for annotations, texts, assertions, refusals and what runs
    elsewhere."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name not in elsewhere:
            yield from _inside(node, tree, elsewhere)


def _inside(node: ast.AST, parent: ast.AST, elsewhere: tuple[str, ...]) -> Iterator[tuple[ast.AST, ast.AST]]:
    yield node, parent
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _passed_over(child, elsewhere):
                yield from _inside(child, node, elsewhere)


def _passed_over(node: ast.AST, elsewhere: tuple[str, ...]) -> bool:
    refusal = isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise)
    cuda = isinstance(node, ast.If) and "is_cuda" in ast.unparse(node.test)
    named = isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in elsewhere
    return refusal or cuda or named or isinstance(node, ast.JoinedStr | ast.Assert | ast.Raise)
