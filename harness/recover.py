"""Reads the attention matrix itself back from an implementation, through one-hot inputs, forward and backward.

With one-hot values a column of out is a column of the attention weights; with one-hot douts a column of dv is a row of
them, as the backward sees them. With one-hot keys and queries dq and dk show the gradients of single scores likewise.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from cases.case import Case
from cases.work import owners
from harness import inputs, reading
from harness.attempt import attempt
from harness.clock import Timing
from harness.implementation import Implementation
from harness.inputs import DTYPES, Numbers
from harness.problem import Problem, problem_of
from harness.ranks import Ranks
from harness.trial import agree, opened
from reference.dense import truth

LARGEST_TOKENS = 256
LARGEST_PASSES = 64
SECONDS = 15.0
BY_QUERY, BY_KEY = ("out", "dq"), ("dv", "dk")


@dataclass(frozen=True)
class Posed:
    """What `attempt` needs of a problem, with inputs of our own. `rows` of the answer that a pass shows: a block of
    keys for out and dq, a block of (query head of the group, query) pairs for dv and dk."""

    case: Case
    rows: Any
    clean: Numbers
    given: Numbers
    block: int
    width: int
    tensors: tuple[str, str]


@dataclass(frozen=True)
class Matrix:
    """One matrix `[B, Hq, S, S]` in fp64, as the implementation has it and as it is: weights of attention for out and
    dv, gradients of the scaled scores for dq and dk."""

    tensor: str
    actual: Tensor
    expected: Tensor


def recoverable(case: Case) -> bool:
    """Whether a case is small enough to be read back pair by pair."""
    shape = case.shape
    passes = -(-shape.heads // shape.kv_heads * shape.tokens // min(shape.head_dim, shape.v_dim))
    return shape.tokens <= LARGEST_TOKENS and passes <= LARGEST_PASSES


def run_recovery(case: Case, implementation: Implementation, ranks: Ranks, timing: Timing | None = None,
                 spec: str | None = None) -> dict[str, Any] | None:
    """Rank 0: {"verdict": "DONE", "recovered": what is wrong with the matrix (`reading.read`) or None}."""
    layout, verdict = agree(case, implementation, ranks)
    session, verdict = (None, verdict) if verdict else opened(implementation, case, ranks)
    found = {}
    if not verdict:
        problem = problem_of(case, implementation.variants)
        found = matrices(session, problem, layout, ranks)
        session.close()
    if ranks.group.rank != 0:
        return None
    told = reading.read(list(found.values()), problem, owners(layout, problem.rows)) if found else None
    return {"verdict": "DONE", "recovered": told}


def matrices(session, problem: Problem, layout: list[Tensor], ranks: Ranks) -> dict[str, Matrix]:
    """What can be read back within SECONDS, on rank 0, by tensor; whole matrices only."""
    shape, end = problem.case.shape, time.monotonic() + SECONDS
    found: dict[str, Matrix] = {}
    for posed in passes(problem):
        if ranks.all_gather(time.monotonic() > end)[0]:
            return {name: matrix for name, matrix in found.items() if name in ("out", "dv")} if found else {}
        answer = attempt(session, posed, layout, ranks)
        if ranks.group.rank == 0 and answer.tensors:
            exact = truth(*posed.clean.tensors(), problem.mask, problem.rows, problem.case.scale, terms=False)
            for name in posed.tensors:
                if name in answer.tensors:
                    matrix = found.setdefault(name, _empty(name, shape))
                    _fill(matrix.actual, answer.tensors[name].double(), posed, name, shape)
                    _fill(matrix.expected, getattr(exact, name), posed, name, shape)
    return found


def passes(problem: Problem) -> Iterator[Posed]:
    """Weights first, then gradients of scores; each pass shows one block of keys and one of queries."""
    case, dtype = problem.case, DTYPES[problem.case.dtype]
    shape, scale = case.shape, case.scale
    scale = shape.head_dim ** -0.5 if scale is None else scale
    spread = min(8.0, 1 / max(abs(scale) * shape.head_dim ** 0.5, 1e-3))
    pairs = shape.heads // shape.kv_heads * shape.tokens
    plain = replace(case, inputs=replace(case.inputs, dout="random"))
    normal = inputs.draw(replace(plain, dtype="fp64", inputs=replace(plain.inputs, spread=spread)), problem.seed)
    for tensors, width in ((("out", "dv"), shape.v_dim), (("dq", "dk"), shape.head_dim)):
        for block in range(-(-pairs // width) if tensors[0] == "out" or scale else 0):
            by_key = _one_hot_keys(shape, block, width)
            by_query = _one_hot_queries(shape, block, width)
            made = (Numbers(normal.q, normal.k, by_key, by_query) if tensors[0] == "out" else
                    Numbers(by_query / max(abs(scale), 1e-3), by_key, normal.v, normal.dout))
            clean = Numbers(*(x.to(dtype) for x in made.tensors()))
            if "dead.undefined" in problem.variants:
                clean = problem.without_dead_dout(clean)
            given = inputs.poisoned(clean, case, problem.mask, problem.rows)
            yield Posed(plain, problem.rows, clean, given, block, width, tensors)


def _one_hot_keys(shape, block: int, width: int) -> Tensor:
    """[B, Hkv, S, width]: 1 in column c of key block * width + c."""
    x = torch.zeros(shape.batch, shape.kv_heads, shape.tokens, width, dtype=torch.float64)
    key = torch.arange(shape.tokens)[block * width:(block + 1) * width]
    x[:, :, key, key - block * width] = 1
    return x


def _one_hot_queries(shape, block: int, width: int) -> Tensor:
    """[B, Hq, S, width]: 1 in column c of the query that pair block * width + c names, in every group."""
    heads = shape.heads // shape.kv_heads
    x = torch.zeros(shape.batch, shape.kv_heads, heads * shape.tokens, width, dtype=torch.float64)
    pair = torch.arange(heads * shape.tokens)[block * width:(block + 1) * width]
    x[:, :, pair, pair - block * width] = 1
    return x.view(shape.batch, shape.heads, shape.tokens, width)


def _empty(name: str, shape) -> Matrix:
    size = shape.batch, shape.heads, shape.tokens, shape.tokens
    return Matrix(name, *(torch.zeros(size, dtype=torch.float64) for _ in range(2)))


def _fill(matrix: Tensor, x: Tensor, posed: Posed, name: str, shape) -> None:
    """Puts the columns of one pass where they belong."""
    first, width = posed.block * posed.width, posed.width
    if name in BY_QUERY:
        keys = max(0, min(width, shape.tokens - first))
        matrix[..., first:first + keys] = x[..., :keys]
        return
    heads = shape.heads // shape.kv_heads
    pairs = matrix.view(shape.batch, shape.kv_heads, heads * shape.tokens, shape.tokens)
    count = max(0, min(width, heads * shape.tokens - first))
    pairs[:, :, first:first + count] = x[..., :count].mT
