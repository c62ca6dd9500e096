"""Smaller cases: each reducer yields cases that ask less than the one it is given, the boldest first."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from cases import runs
from cases.case import Case, Inputs
from cases.course import Course
from cases.mask import Mask
from cases.rules import regions
from cases.rules.rule import Rule
from cases.topology import Topology

LEAST_DIM = 8
PLAIN = Inputs()


def around(case: Case) -> Iterator[Case]:
    """One plain step instead of a course, one group of all ranks instead of a topology; then one thing less in them."""
    if case.topology != Topology():
        yield replace(case, topology=Topology())
        if (case.topology.order, case.topology.beside) != ("ranked", ""):
            yield replace(case, topology=replace(case.topology, order="ranked", beside=""))
    if case.course != Course():
        yield replace(case, course=Course())
        for name, plain in asdict(Course()).items():
            if getattr(case.course, name) != plain:
                yield replace(case, course=replace(case.course, **{name: plain}))


def world(case: Case) -> Iterator[Case]:
    for fewer in range(1, case.world if not case.topology.groups else 1):
        yield replace(case, world=fewer)


def rules(case: Case) -> Iterator[Case]:
    for rule in case.mask.rules:
        yield _masked(case, [other for other in case.mask.rules if other is not rule])


def batch(case: Case) -> Iterator[Case]:
    for row in range(case.shape.batch if case.shape.batch > 1 else 0):
        kept = [_row(rule, row) for rule in case.mask.rules]
        yield replace(_masked(case, kept), shape=replace(case.shape, batch=1))


def tokens(case: Case) -> Iterator[Case]:
    """Leaves out a half, then quarters, ... then single tokens, from the end of the row to its beginning."""
    total = case.shape.tokens
    length = total // 2
    while length:
        for start in range(total - length, -1, -length):
            yield without(case, start, start + length)
        length //= 2


def heads(case: Case) -> Iterator[Case]:
    shape = case.shape
    for number, kv_heads in ((1, 1), (2, 1), (2, 2), (4, 2)):
        if number <= shape.heads and kv_heads <= shape.kv_heads and (number, kv_heads) != (shape.heads, shape.kv_heads):
            made = replace(case, shape=replace(shape, heads=number, kv_heads=kv_heads))
            yield _masked(made, [_grouped(rule, kv_heads) for rule in made.mask.rules])


def dims(case: Case) -> Iterator[Case]:
    shape = case.shape
    if shape.value_dim is not None:
        yield replace(case, shape=replace(shape, value_dim=None))
    for dim in (LEAST_DIM, 16, 32):
        if dim < shape.head_dim:
            yield replace(case, shape=replace(shape, head_dim=dim))


def numbers(case: Case) -> Iterator[Case]:
    """Plainer inputs, scale, layout and dtype."""
    if case.inputs != PLAIN:
        yield replace(case, inputs=PLAIN)
    for name in ("strides", "dout", "poison", "grads", "spread"):
        if getattr(case.inputs, name) != getattr(PLAIN, name):
            yield replace(case, inputs=replace(case.inputs, **{name: getattr(PLAIN, name)}))
    for name, plain in (("scale", None), ("layout", "contiguous"), ("note", "")):
        if getattr(case, name) != plain:
            yield replace(case, **{name: plain})
    if case.dtype != "fp64":
        yield replace(case, dtype="fp64")


def details(case: Case) -> Iterator[Case]:
    """One rule simpler: a smaller window, fewer documents, spans, images or selected regions."""
    simpler: dict[str, Callable[..., Iterator[Rule]]] = {
        "window": _narrower, "documents": _fewer_documents, "padding": _fewer_spans, "vision": _fewer_images,
        "regions": _fewer_regions}
    for rule in case.mask.rules:
        for other in simpler[rule.name](rule) if rule.name in simpler else ():
            yield _masked(case, [other if own is rule else own for own in case.mask.rules])


REDUCERS = (around, rules, world, batch, tokens, details, heads, numbers, dims)


def without(case: Case, start: int, end: int) -> Case:
    """The case without the tokens start .. end-1 of every row."""
    made = replace(case, shape=replace(case.shape, tokens=case.shape.tokens - (end - start)))
    rows = case.rows() if any(rule.name == "regions" for rule in case.mask.rules) else None
    return _masked(made, [_cut(rule, rows, start, end) for rule in case.mask.rules])


def _masked(case: Case, rules: list[Rule]) -> Case:
    return replace(case, mask=Mask(tuple(rules)))


def _cut(rule: Rule, rows, start: int, end: int) -> Rule:
    if rule.name == "documents":
        return replace(rule, ids=tuple(_cut_runs(row, start, end) for row in rule.ids))
    if rule.name == "vision":
        return replace(rule, types=tuple(_cut_runs(row, start, end) for row in rule.types))
    if rule.name == "padding":
        return replace(rule, spans=tuple(_cut_spans(row, start, end) for row in rule.spans))
    if rule.name == "regions":
        sizes = tuple(tuple(size for _, size in _cut_runs(tuple(enumerate(row)), start, end, empty=True))
                      for row in rule.sizes)
        chosen = tuple(tuple(runs.swap(_cut_runs(runs.swap(group), start, end)) for group in row)
                       for row in rule.selections(rows))
        return replace(rule, sizes=sizes, chosen=chosen)
    return rule


def _cut_runs(row: runs.Runs, start: int, end: int, empty: bool = False) -> runs.Runs:
    """(value, length) runs without the tokens start .. end-1; runs of no length stay only when `empty`."""
    found, first = [], 0
    for value, length in row:
        lost = max(0, min(end, first + length) - max(start, first))
        found.append((value, length - lost))
        first += length
    return tuple(found) if empty else runs.merged(found)


def _cut_spans(row: tuple, start: int, end: int) -> tuple:
    def moved(edge: int) -> int:
        return edge if edge <= start else max(start, edge - (end - start))

    spans = [(moved(first), moved(last)) for first, last in row]
    return tuple(span for span in spans if span[0] < span[1])


def _row(rule: Rule, row: int) -> Rule:
    """The rule for one batch row alone."""
    own = {name: (getattr(rule, name)[row],) for name in ("ids", "types", "spans", "sizes") if hasattr(rule, name)}
    if rule.name == "regions" and not isinstance(rule.chosen, regions.Router) and len(rule.chosen) > 1:
        own["chosen"] = (rule.chosen[row],)
    return replace(rule, **own) if own else rule


def _grouped(rule: Rule, groups: int) -> Rule:
    """The rule for the first `groups` key/value heads."""
    if rule.name != "regions" or isinstance(rule.chosen, regions.Router):
        return rule
    return replace(rule, chosen=tuple(row[:groups] for row in rule.chosen))


def _narrower(rule: Rule) -> Iterator[Rule]:
    for size in dict.fromkeys((1, 2, rule.size // 2, rule.size - 1)):
        if 1 <= size < rule.size:
            yield replace(rule, size=size)


def _fewer_documents(rule: Rule) -> Iterator[Rule]:
    """Joins a run to the one before it; numbers the ids 1, 2, ..."""
    for at, row in enumerate(rule.ids):
        for run in range(1, len(row)):
            joined = runs.merged((*row[:run], (row[run - 1][0], row[run][1]), *row[run + 1:]))
            yield replace(rule, ids=(*rule.ids[:at], joined, *rule.ids[at + 1:]))
    names: dict[int, int] = {}
    numbered = tuple(tuple((names.setdefault(value, len(names) + 1) if value > 0 else 0, length)
                           for value, length in row) for row in rule.ids)
    if numbered != rule.ids:
        yield replace(rule, ids=numbered)


def _fewer_spans(rule: Rule) -> Iterator[Rule]:
    for at, row in enumerate(rule.spans):
        for span in range(len(row)):
            yield replace(rule, spans=(*rule.spans[:at], row[:span] + row[span + 1:], *rule.spans[at + 1:]))


def _fewer_images(rule: Rule) -> Iterator[Rule]:
    for at, row in enumerate(rule.types):
        for run, (kind, length) in enumerate(row):
            if kind:
                text = runs.merged((*row[:run], (0, length), *row[run + 1:]))
                yield replace(rule, types=(*rule.types[:at], text, *rule.types[at + 1:]))


def _fewer_regions(rule: Rule) -> Iterator[Rule]:
    """One region less in one run of queries."""
    if isinstance(rule.chosen, regions.Router):
        return
    for at, row in enumerate(rule.chosen):
        for group, selection in enumerate(row):
            for run, (queries, picks) in enumerate(selection):
                for pick in range(len(picks)):
                    fewer = (queries, picks[:pick] + picks[pick + 1:])
                    other = (*row[:group], (*selection[:run], fewer, *selection[run + 1:]), *row[group + 1:])
                    yield replace(rule, chosen=(*rule.chosen[:at], other, *rule.chosen[at + 1:]))
