"""Random cases over all rules together, and the string that rebuilds any case exactly."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, replace
from typing import Protocol

from cases.case import DTYPES, LAYOUTS, WORLDS, Case, Inputs, Scenario, Shape
from cases.course import Course
from cases.json_lines import parsed
from cases.mask import Mask
from cases.rules import discover
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.rule import Rule
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.runs import Runs
from cases.topology import Topology

REPLAY = "replay:"
MAX_TOKENS = 192
STRIDES = ("dense", "dense", "unbind", "transposed", "interleaved", "unlike", "fused", "expanded-keys")
HUGE = (1 << 40, (1 << 40) + 1, 1 << 53, (1 << 53) + 1)


class Draw(Protocol):
    """Where choices come from: a seeded generator or Hypothesis."""

    def integer(self, low: int, high: int) -> int: ...

    def one(self, options): ...


class Seeded:
    """Draw from a seed, the same on every machine."""

    def __init__(self, seed: int | str):
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def one(self, options):
        return options[self.random.randrange(len(options))]


def cases(seed: int, count: int, max_tokens: int = MAX_TOKENS, **choice: Sequence) -> Iterator[Case]:
    """`count` random cases; `choice` narrows worlds, layouts or dtypes. The same arguments give the same cases."""
    for number in range(count):
        made = case(Seeded(f"{seed}/{number}"), max_tokens, **choice)
        yield replace(made, name=f"random/{seed}-{number}")


def strategy(max_tokens: int = 96, **choice: Sequence):
    """The same cases as a Hypothesis strategy, which shrinks them."""
    from hypothesis import strategies as st

    class Drawn:
        def __init__(self, draw):
            self.draw = draw

        def integer(self, low: int, high: int) -> int:
            return self.draw(st.integers(low, high))

        def one(self, options):
            return self.draw(st.sampled_from(options))

    return st.composite(lambda draw: case(Drawn(draw), max_tokens, **choice))()


def case(draw: Draw, max_tokens: int = MAX_TOKENS, worlds: Sequence[int] = WORLDS, layouts: Sequence[str] | None = None,
         dtypes: Sequence[str] | None = None) -> Case:
    """One random case on one of these worlds, layouts and dtypes."""
    world = draw.one(worlds)
    tokens = draw.one([1, 2, world, 4 * world, 4 * world + 1, max_tokens, max_tokens - 1]
                      + [draw.integer(1, max_tokens) for _ in range(5)])
    tokens = min(max(1, tokens), max_tokens)
    batch, (heads, kv_heads) = draw.one([1, 1, 2]), draw.one([(4, 2), (2, 2), (4, 1), (8, 2), (1, 1), (6, 3), (8, 8)])
    shape = Shape(batch, tokens, heads, kv_heads, draw.one([32, 32, 24, 64, 80]), draw.one([None, None, None, 16]))
    chosen = mask(draw, shape, -(-tokens // world))
    inputs = Inputs(strides=draw.one(STRIDES),
                    dout=draw.one(["random", "random", "expanded", "expanded-heads", "ones", "sum", "prompt"]),
                    poison=draw.one([None, None, None, "huge"]), spread=draw.one([1.0, 1.0, 4.0]),
                    grads=draw.one(["qkv"] * 6 + ["q", "kv", "qk"]))
    scale = draw.one([None, None, None, 0.0, -0.3, 0.07, 1.7, -1.3])
    names = " ".join([rule.requirement for rule in chosen.rules] + ["A7"] * (len(chosen.rules) > 1)
                     + ["A9"] * (scale is not None) + ["B5"] * (inputs.poison is not None)
                     + ["B8"] * (inputs.grads != "qkv"))
    scenario = Scenario("random/case", names, chosen, shape, scale, inputs)
    return scenario.at(world, draw.one(layouts or LAYOUTS), draw.one(dtypes or DTYPES), draw.integer(0, 10**6))


def mask(draw: Draw, shape: Shape, shard: int) -> Mask:
    """A random composition of rules for this shape; each rule is in it or not."""
    batch, tokens = range(shape.batch), shape.tokens
    causal = draw.one([True, True, True, False])
    rules: list[Rule] = [Causal()] if causal else []
    if draw.one([True, False]):
        size = draw.one([1, 2, shard - 1, shard, shard + 1, shard + 2, 2 * shard + 1, tokens, tokens + 3,
                         tokens + (1 << 16)])
        variants = [None, None, "inclusive", "compacted"] + ([] if causal else ["symmetric"])
        rules.append(Window(max(1, size), variant=draw.one(variants)))
    if draw.one([True, False]):
        rules.append(Documents(tuple(documents(draw, tokens, shard) for _ in batch),
                               variant=draw.one([None, None, "runs"])))
    if draw.one([True, False, False]):
        rules.append(Padding(tuple(spans(draw, tokens, shard) for _ in batch)))
    if draw.one([True, False]):
        types = tuple(runs(draw, tokens, shard, [0, 0, 1, 1, 2]) for _ in batch)
        rules.append(Vision(types, variant=draw.one([None, None, "overlay", "bounded", "none"])))
    if draw.one([True, False, False]):
        rules.append(regions(draw, shape, shard))
    return Mask(tuple(rules))


def documents(draw: Draw, tokens: int, shard: int) -> Runs:
    """A few runs of small or of huge ids, or a document for every token."""
    kind = draw.one(["few", "few", "few", "huge", "single"])
    if kind == "single":
        return tuple((number, 1) for number in range(1, tokens + 1))
    return runs(draw, tokens, shard, [0, 1, 2, 3, 4, 5, 6, 7] if kind == "few" else [0, 1, *HUGE])


def runs(draw: Draw, tokens: int, shard: int, options: list[int]) -> Runs:
    """A row of at most 12 runs whose values come from `options`; lengths favour the shard length."""
    found, left = [], tokens
    while left and len(found) < 11:
        length = min(left, draw.one([0, 1, 2, shard - 1, shard, shard + 1, draw.integer(0, tokens), left]))
        found.append((draw.one(options), max(0, length)))
        left -= max(0, length)
    return (*found, (draw.one(options), left)) if left else tuple(found)


def spans(draw: Draw, tokens: int, shard: int) -> tuple[tuple[int, int], ...]:
    """Up to three spans of padding: left, tail, one rank's shard, anywhere or the whole row."""
    start = draw.integer(0, tokens)
    rank = draw.integer(0, (tokens - 1) // shard) * shard
    options = [(0, start), (start, tokens), (rank, min(tokens, rank + shard)), (0, tokens),
               (start, min(tokens, start + draw.integer(0, shard)))]
    return tuple(draw.one(options) for _ in range(draw.integer(0, 3)))


def regions(draw: Draw, shape: Shape, shard: int) -> Regions:
    """Canonical or ragged regions, selected by a router or by runs of queries that favour nothing at all."""
    tokens, batch = shape.tokens, shape.batch
    if draw.one([True, False]):
        size = max(1, draw.one([8, 16, shard, shard + 1, 5]))
        sizes = Regions.even(tokens, size, (), batch).sizes
    else:
        sizes = tuple(tuple(length for _, length in runs(draw, tokens, shard, [0])) for _ in range(batch))
    if draw.one([True, True, False]):
        return Regions(sizes, Router(draw.integer(0, 99), draw.integer(0, 3), draw.one([1, 4, shard]),
                                     draw.one([True, True, False])))
    highest = max(map(len, sizes)) - 1
    chosen = tuple(tuple(
        tuple((length, tuple(draw.integer(0, highest) for _ in range(draw.integer(0, 3))))
              for _, length in runs(draw, tokens, shard, [0]))
        for _ in range(shape.kv_heads)) for _ in range(batch))
    return Regions(sizes, chosen)


def replay(case: Case) -> str:
    """"replay:" and one line of JSON that rebuilds the case exactly; it holds no single quote, so '...' quotes it."""
    rules = [{"rule": rule.name, **_changed(rule)} for rule in case.mask.rules]
    line = {**_changed(case), "mask": rules, "shape": _changed(case.shape), "inputs": _changed(case.inputs)}
    line |= {name: _changed(line[name]) for name in ("course", "topology") if name in line}
    return REPLAY + json.dumps(line, separators=(",", ":"), default=_changed).replace("'", "\\u0027")


def from_replay(line: str) -> Case:
    """The case that `replay` printed. Raises ValueError when the line is no such case."""
    try:
        given = parsed(line.removeprefix(REPLAY))
    except ValueError as error:
        raise ValueError(f"not a printed case ({error}): {line[:80]}") from error
    try:
        kinds = _rule_kinds()
        rules = tuple(kinds[rule.pop("rule")](**rule) for rule in given.pop("mask"))
        shape, inputs = Shape(**given.pop("shape")), Inputs(**given.pop("inputs"))
        around = {"course": Course(**given.pop("course", {})), "topology": Topology(**given.pop("topology", {}))}
        found = Case(mask=Mask(rules), shape=shape, inputs=inputs,
                     requirements=tuple(given.pop("requirements")), **around, **given)
        found.rows()
        return found
    except KeyError as error:
        raise ValueError(f"not a printed case (it has no {error.args[0]}): {line[:80]}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a printed case ({error}): {line[:80]}") from error


def _rule_kinds() -> dict[str, type[Rule]]:
    found = [kind for module in discover() for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.name: kind for kind in found if issubclass(kind, Rule) and kind is not Rule}


def _changed(value) -> dict:
    """Fields of a dataclass that differ from their defaults."""
    return {field.name: getattr(value, field.name) for field in fields(value)
            if field.default is MISSING or getattr(value, field.name) != field.default}
