"""Relations that hold between answers of an implementation itself, whatever the truth is.

Each relation names further runs and says, in the terms of the plain answer, what two answers must be equal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cases import runs, smaller
from cases.case import LAYOUTS, Case
from cases.mask import Mask
from cases.rows import Rows
from cases.rules.documents import Documents
from cases.rules.window import Window
from harness.inputs import Numbers
from harness.problem import Problem

Tensors = dict[str, Tensor]
MOST_DOCUMENTS = 6
EXTRA_DIMS, SHIFT = 8, 4.0


@dataclass(frozen=True)
class Run:
    """One more run: whole-row numbers in the dtype of the case; `alone` is every rank for itself, as a world of 1."""

    case: Case
    numbers: Numbers
    alone: bool = False


@dataclass(frozen=True)
class Relation:
    """What must be equal: `pairs` of the plain answer and those of the runs gives (expected, actual) by tensor, both
    shaped as the plain tensors."""

    name: str
    requirement: str
    runs: tuple[Run, ...]
    pairs: Callable[[Tensors, list[Tensors]], dict[str, tuple[Tensor, Tensor]]]


def world_and_layout(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    case, numbers = problem.case, problem.clean
    if case.world > 1:
        yield Relation("same result on one rank", "D1", (Run(replace(case, world=1), numbers, alone=True),), _same)
    for layout in LAYOUTS if own_layout is None and case.world > 1 else ():
        if layout != case.layout:
            yield Relation(f"same result in the layout {layout}", "D1",
                           (Run(replace(case, layout=layout), numbers),), _same)


def linear(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    """Values and douts of even and of odd tokens add up to all of them, without any rounding."""
    case, numbers = problem.case, problem.clean
    even = (torch.arange(case.shape.tokens) % 2 == 0)[:, None]
    for name, still, summed in (("v", ("lse", "dv"), ("out", "dq", "dk")),
                                ("dout", ("out", "lse"), ("dq", "dk", "dv"))):
        halves = (replace(numbers, **{name: getattr(numbers, name) * part}) for part in (even, ~even))

        def pairs(plain: Tensors, others: list[Tensors], still=still, summed=summed) -> dict:
            first, second = others
            found = {one: (plain[one], first[one]) for one in still if one in plain}
            return found | {one: (plain[one].double(), first[one].double() + second[one].double()) for one in summed
                            if one in plain}

        yield Relation(f"linear in {name}", "B4" if name == "dout" else "B1",
                       tuple(Run(case, half) for half in halves), pairs)


def wide_window(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    case = problem.case
    if _names(case) & {"window", "vision"}:
        return
    for extra in (0, 3):
        wider = Mask((*case.mask.rules, Window(case.shape.tokens + extra)))
        said = f"a window of {case.shape.tokens + extra} tokens, as wide as the row, changes nothing"
        yield Relation(said, "A2", (Run(replace(case, mask=wider), problem.clean),), _same)


def repeated_heads(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    case, numbers = problem.case, problem.clean
    heads = case.shape.heads // case.shape.kv_heads
    if heads == 1 or "regions" in _names(case):
        return
    k, v = (x.repeat_interleave(heads, 1) for x in (numbers.k, numbers.v))
    repeated = replace(case, shape=replace(case.shape, kv_heads=case.shape.heads))

    def pairs(plain: Tensors, others: list[Tensors]) -> dict:
        other = dict(others[0])
        for name in {"dk", "dv"} & other.keys():
            other[name] = other[name].double().unflatten(1, (-1, heads)).sum(2)
        return _same(plain, [other])

    yield Relation("grouped heads equal repeated keys and values", "A8",
                   (Run(repeated, replace(numbers, k=k, v=v)),), pairs)


def shifted_logits(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    """One dim more, in which every key is 1 and every query SHIFT, adds one number to all scores."""
    case, numbers, dim = problem.case, problem.clean, problem.case.shape.head_dim
    scale = dim ** -0.5 if case.scale is None else case.scale
    if not scale:
        return
    shape = replace(case.shape, head_dim=dim + EXTRA_DIMS, value_dim=case.shape.v_dim)

    def wider(x: Tensor, value: float) -> Tensor:
        wide = torch.nn.functional.pad(x, (0, EXTRA_DIMS))
        wide[..., dim] = value
        return wide

    def pairs(plain: Tensors, others: list[Tensors]) -> dict:
        other = {name: x[..., :dim] if name in ("dq", "dk") else x for name, x in others[0].items()}
        if "lse" in other:
            other["lse"] = other["lse"].double() - SHIFT * scale
        return _same(plain, [other])

    made = replace(numbers, q=wider(numbers.q, SHIFT), k=wider(numbers.k, 1.0))
    yield Relation("a number added to all scores changes lse alone", "B1",
                   (Run(replace(case, shape=shape, scale=scale), made),), pairs)


def separate_documents(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    blocks = [block for block in _blocks(problem) if block[0] > 0]
    if not 1 < len(blocks) <= MOST_DOCUMENTS:
        return
    made = []
    for _, start, end in blocks:
        alone = problem.case
        for first, last in ((end, alone.shape.tokens), (0, start)):
            alone = smaller.without(alone, first, last) if last > first else alone
        rest = Mask(tuple(rule for rule in alone.mask.rules if rule.name != "documents"))
        made.append(Run(replace(alone, mask=rest), _each(problem.clean, lambda x, s=start, e=end: x[:, :, s:e])))

    def pairs(plain: Tensors, others: list[Tensors]) -> dict:
        whole = {name: x.clone() for name, x in plain.items()}
        for (_, start, end), other in zip(blocks, others, strict=True):
            for name in whole:
                whole[name][:, :, start:end] = other[name]
        return _same(plain, [whole])

    yield Relation("packed documents equal separate ones", "A3", tuple(made), pairs)


def permuted_documents(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    case, blocks = problem.case, _blocks(problem)
    if len(blocks) < 2 or "regions" in _names(case):
        return
    order = torch.cat([torch.arange(start, end) for _, start, end in reversed(blocks)])
    back = order.argsort()
    rules = tuple(_reordered(rule, problem.rows, order) for rule in case.mask.rules)

    def pairs(plain: Tensors, others: list[Tensors]) -> dict:
        return _same(plain, [{name: x[:, :, back] for name, x in others[0].items()}])

    yield Relation("documents in another order give their results in that order", "A3",
                   (Run(replace(case, mask=Mask(rules)), _each(problem.clean, lambda x: x[:, :, order])),), pairs)


def split_document(problem: Problem, own_layout: str | None) -> Iterator[Relation]:
    """A document cut in two: nothing changes before the cut or in other documents, and the cut's token sees itself."""
    case, rows = problem.case, problem.rows
    if "causal" not in _names(case) or _names(case) & {"vision", "regions"}:
        return
    live = (~rows.padded).all(0)
    middle = next((at for at in range(rows.tokens // 2, rows.tokens) if live[at]), 0)
    if not middle:
        return
    ids = torch.ones(rows.batch, rows.tokens, dtype=torch.int64) if rows.documents is None else rows.documents
    place = torch.arange(rows.tokens)
    same = ids == ids[:, middle:middle + 1]
    cut = torch.where(same & (place >= middle), ids.max() + 1, ids)
    variant = next((rule.variant for rule in case.mask.rules if rule.name == "documents"), None)
    rest = tuple(rule for rule in case.mask.rules if rule.name != "documents")
    other = Documents(tuple(runs.of(row.tolist()) for row in cut), variant=variant)
    untouched = {"out": (~same | (place < middle))[:, None, :, None], "dk": ~same[:, None, :, None]}

    def pairs(plain: Tensors, others: list[Tensors]) -> dict:
        found, heads = {}, case.shape.heads // case.shape.kv_heads
        for name, x in plain.items():
            kept = untouched["dk" if name in ("dk", "dv") else "out"]
            kept = kept[..., 0] if name == "lse" else kept
            found[name] = x, torch.where(kept, others[0][name], x)
        expected, actual = (x.clone() for x in found["out"])
        expected[:, :, middle] = problem.clean.v[:, :, middle].repeat_interleave(heads, 1)
        actual[:, :, middle] = others[0]["out"][:, :, middle]
        return found | {"out": (expected, actual)}

    yield Relation("a document cut in two changes only what follows in it", "A3",
                   (Run(replace(case, mask=Mask((*rest, other))), problem.clean),), pairs)


RELATIONS = (world_and_layout, linear, wide_window, repeated_heads, shifted_logits, separate_documents,
             permuted_documents, split_document)


def _same(plain: Tensors, others: list[Tensors]) -> dict[str, tuple[Tensor, Tensor]]:
    return {name: (x, others[0][name]) for name, x in plain.items() if name in others[0]}


def _names(case: Case) -> set[str]:
    return {rule.name for rule in case.mask.rules}


def _each(numbers: Numbers, change: Callable[[Tensor], Tensor]) -> Numbers:
    return Numbers(*(change(x) for x in numbers.tensors()))


def _blocks(problem: Problem) -> list[tuple[int, int, int]]:
    """(id, start, end) of every run of ids of one batch row; none where a document is not contiguous."""
    ids = problem.rows.documents
    if ids is None or len(ids) > 1:
        return []
    found, start = [], 0
    for value, length in runs.of(ids[0].tolist()):
        found.append((value, start, start + length))
        start += length
    real = [value for value, _, _ in found if value > 0]
    return found if len(set(real)) == len(real) else []


def _reordered(rule, rows: Rows, order: Tensor):
    """A rule for rows whose tokens stand in another order."""
    if rule.name == "documents":
        return replace(rule, ids=tuple(runs.of(row[order].tolist()) for row in rows.documents))
    if rule.name == "vision":
        return replace(rule, types=tuple(runs.of(row[order].tolist()) for row in rows.token_types))
    if rule.name == "padding":
        return replace(rule, spans=tuple(_spans(row[order]) for row in rows.padding))
    return rule


def _spans(padding: Tensor) -> tuple[tuple[int, int], ...]:
    found, start = [], 0
    for padded, length in runs.of(padding.long().tolist()):
        if padded:
            found.append((start, start + length))
        start += length
    return tuple(found)
