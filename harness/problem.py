"""A case made concrete: metadata, numbers and the true answer, kept for the next trial that asks the same."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import cached_property

from torch import Tensor

from cases.case import Case
from cases.work import dead_rows
from harness import inputs
from harness.inputs import Numbers
from reference.dense import Truth, truth
from reference.twin import Twin, twin

KEPT_ELEMENTS = 1 << 26
SINGLETON_KEY = 0


class Problem:
    """What is asked of an implementation that follows `variants`, on whole rows.

    mask    the case's mask as the variants read it
    clean   the numbers as drawn; `given` has poison and, under dead.undefined, dout 0 in dead rows
    changed the only one that is drawn from `seed`, the others from the case's own; None is all of them
    size    elements of q, k, v and dout together
    """

    def __init__(self, case: Case, variants: frozenset[str], seed: int, changed: str | None = None):
        self.case, self.variants, self.seed = case, variants, seed
        self.mask = case.mask.under(variants)
        self.rows = self.mask.rows(case.shape.batch, case.shape.tokens, case.shape.kv_heads)
        self.clean = inputs.draw(case, seed)
        if changed is not None:
            self.clean = replace(inputs.draw(case), **{changed: getattr(self.clean, changed)})
        if "dead.undefined" in variants:
            self.clean = self.without_dead_dout(self.clean)
        self.given = inputs.poisoned(self.clean, case, self.mask, self.rows)
        self.size = sum(tensor.numel() for tensor in self.clean.tensors())

    @cached_property
    def truth(self) -> Truth:
        """The true answer; under dead.singleton a wholly padded row answers with V of its key 0 (SPEC B3)."""
        exact = truth(*self.clean.tensors(), self.mask, self.rows, self.case.scale, terms=self.case.dtype != "fp64")
        whole = self.rows.padded.all(1)
        return self._singleton(exact, whole) if "dead.singleton" in self.variants and bool(whole.any()) else exact

    @cached_property
    def twin(self) -> Twin | None:
        """An independent answer in the case's dtype, which says what that dtype costs; fp64 needs none."""
        return None if self.case.dtype == "fp64" else twin(*self.clean.tensors(), self.mask, self.rows, self.case.scale)

    @property
    def compared(self) -> Tensor | None:
        """`[B, Hq, S]` bool: queries whose out, lse and dq are compared; None is all of them."""
        return self.truth.live if "dead.undefined" in self.variants else None

    def valued(self, held: Tensor) -> "Problem":
        """The same with the values of the keys that are `held` `[B, S]`, and 0 for all others. What attention makes of
        both parts adds up: it is linear in v."""
        other, gone = copy(self), ~held[:, None, :, None]
        for name in ("truth", "twin"):
            vars(other).pop(name, None)
        other.clean, other.given = (replace(numbers, v=numbers.v.masked_fill(gone, 0))
                                    for numbers in (self.clean, self.given))
        return other

    def without_dead_dout(self, numbers: Numbers) -> Numbers:
        dead = dead_rows(self.mask, self.rows)
        dead = dead.repeat_interleave(self.case.shape.heads // dead.shape[1], 1)[..., None]
        return replace(numbers, dout=numbers.dout.masked_fill(dead, 0)) if bool(dead.any()) else numbers

    def _singleton(self, exact: Truth, whole: Tensor) -> Truth:
        shape, key = self.case.shape, SINGLETON_KEY
        q, k, v, dout = (x[whole].double() for x in self.clean.tensors())
        heads = shape.heads // shape.kv_heads
        scale = shape.head_dim ** -0.5 if self.case.scale is None else self.case.scale
        changed = {name: getattr(exact, name).clone() for name in ("out", "lse", "dv", "live", "seen")}
        changed["out"][whole] = v[:, :, key].repeat_interleave(heads, 1)[:, :, None].expand_as(changed["out"][whole])
        changed["lse"][whole] = (q * k[:, :, key].repeat_interleave(heads, 1)[:, :, None]).sum(-1) * scale
        changed["dv"][whole, :, key] = dout.sum(2).unflatten(1, (-1, heads)).sum(2)
        changed["live"][whole] = True
        changed["seen"][whole, :, key] = True
        return replace(exact, **changed)


class _Kept:
    """The problems used last, as long as their numbers stay below KEPT_ELEMENTS."""

    def __init__(self):
        self._problems: OrderedDict[tuple, Problem] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, case: Case, variants: frozenset[str], seed: int, changed: str | None) -> Problem:
        key = case.truth_digest, tuple(sorted(variants)), seed, changed
        with self._lock:
            problem = self._problems.get(key)
            if problem is None:
                problem = self._problems[key] = Problem(case, variants, seed, changed)
                self._size += problem.size
            self._problems.move_to_end(key)
            while len(self._problems) > 1 and self._size > KEPT_ELEMENTS:
                self._size -= self._problems.popitem(last=False)[1].size
        return problem


_kept = _Kept()


def problem_of(case: Case, variants: Iterable[str], seed: int | None = None, changed: str | None = None) -> Problem:
    """The problem of a case, drawn from `seed` (default: the case's own), or only `changed` of it."""
    return _kept.get(case, frozenset(variants), case.seed if seed is None else seed, changed)
