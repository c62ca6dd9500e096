"""What a hypothesis may look at and what it says: tensors alone, and dense attention pair by pair to predict with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from harness.problem import Problem

Tensors = dict[str, Tensor]
FORWARD, BACKWARD = ("out", "lse"), ("dq", "dk", "dv")
OWN = "own"


@dataclass(frozen=True)
class Guess:
    """A mistake in words, the SPEC id it breaks, and what it would have answered (only the tensors it changes).

    `rest` makes tensors that are looked at only where the first ones fit.
    """

    words: str
    requirement: str
    first: Tensors
    rest: Callable[[], Tensors] | None = None

    @cached_property
    def predicted(self) -> Tensors:
        return self.first | (self.rest() if self.rest else {})


@dataclass(frozen=True)
class Evidence:
    """Problem, answer, who holds which token `[B, S]`, the tensors that failed, and by name what else was asked in the
    same course.

    Pairs are bool `[B, Hq, S, S]`, queries before keys; everything is fp64.
    """

    problem: Problem
    actual: Tensors
    owner: Tensor
    world: int
    failed: tuple[str, ...]
    others: dict[str, Problem] = field(default_factory=dict)

    @property
    def forward_failed(self) -> bool:
        return any(name in FORWARD for name in self.failed)

    @property
    def backward_failed(self) -> bool:
        return any(name in BACKWARD for name in self.failed)

    @cached_property
    def heads(self) -> int:
        """Query heads a key/value head."""
        return self.problem.case.shape.heads // self.problem.case.shape.kv_heads

    @cached_property
    def scale(self) -> float:
        given = self.problem.case.scale
        return self.problem.case.shape.head_dim ** -0.5 if given is None else given

    @cached_property
    def q(self) -> Tensor:
        return self.problem.clean.q.double()

    @cached_property
    def k(self) -> Tensor:
        """`[B, Hq, S, D]`: of each query head."""
        return self.problem.clean.k.double().repeat_interleave(self.heads, 1)

    @cached_property
    def v(self) -> Tensor:
        return self.problem.clean.v.double().repeat_interleave(self.heads, 1)

    @cached_property
    def dout(self) -> Tensor:
        return self.problem.clean.dout.double()

    @cached_property
    def scores(self) -> Tensor:
        return self.q @ self.k.mT

    @cached_property
    def allowed(self) -> Tensor:
        return self.pairs(self.problem.mask)

    def pairs(self, mask: Mask, rows: Rows | None = None) -> Tensor:
        """What another mask or other metadata allows."""
        rows, tokens = rows or self.problem.rows, torch.arange(self.problem.rows.tokens)
        allowed = mask.allowed(rows, tokens, tokens)
        return allowed.repeat_interleave(self.problem.case.shape.heads // allowed.shape[1], 1)

    @cached_property
    def apart(self) -> Tensor:
        """`[B, 1, S, S]`: hop in which a ring that sends upward brings the key to the query, 0 on the same rank."""
        return ((self.owner[:, :, None] - self.owner[:, None]) % self.world)[:, None]

    @cached_property
    def local(self) -> Tensor:
        """`[B, S]`: place of each token among those of its rank, in the order of their positions."""
        place = torch.zeros_like(self.owner)
        for rank in range(self.world):
            held = self.owner == rank
            place[held] = (held.cumsum(1) - 1)[held]
        return place

    def weights(self, allowed: Tensor, scale: float | None = None, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Attention weights `[B, Hq, S, S]` and lse `[B, Hq, S]`; bias is added to the scaled scores."""
        scores = self.scores * (self.scale if scale is None else scale)
        scores = (scores if bias is None else scores + bias).masked_fill(~allowed, -torch.inf)
        lse = scores.logsumexp(-1)
        return (scores - lse[..., None].masked_fill(lse.isinf()[..., None], 0)).exp(), lse

    @cached_property
    def true_weights(self) -> Tensor:
        return self.weights(self.allowed)[0]

    @cached_property
    def true_dscores(self) -> Tensor:
        return self.dscores(self.true_weights, self.true_weights @ self.v)

    def dscores(self, weights: Tensor, out: Tensor, dout: Tensor | None = None) -> Tensor:
        """Gradients of the scaled scores."""
        dout = self.dout if dout is None else dout
        return weights * (dout @ self.v.mT - (out * dout).sum(-1, keepdim=True))

    def grads(self, weights: Tensor, dscores: Tensor, scale: float | None = None,
              dout: Tensor | None = None) -> Tensors:
        """dq, dk and dv of weights and gradients of scores, summed over the heads of a group."""
        scale = self.scale if scale is None else scale
        return {"dq": scale * dscores @ self.k, "dk": self.grouped(scale * dscores.mT @ self.q),
                "dv": self.grouped(weights.mT @ (self.dout if dout is None else dout))}

    def grouped(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.heads)).sum(2)

    def attended(self, words: str, requirement: str, allowed: Tensor | None = None, scale: float | None = None,
                 bias: Tensor | None = None) -> Guess:
        """The guess of attention over other pairs, with another scale or biased scores; gradients where some failed."""
        weights, lse = self.weights(self.allowed if allowed is None else allowed, scale, bias)
        out = weights @ self.v
        rest = (lambda: self.grads(weights, self.dscores(weights, out), scale)) if self.backward_failed else None
        return Guess(words, requirement, {"out": out, "lse": lse}, rest)

    def answer(self, allowed: Tensor | None = None, scale: float | None = None) -> Tensors:
        """All five tensors of attention over other pairs or with another scale."""
        weights, lse = self.weights(self.allowed if allowed is None else allowed, scale)
        out = weights @ self.v
        return {"out": out, "lse": lse, **self.grads(weights, self.dscores(weights, out), scale)}

    def backward(self, allowed: Tensor) -> Tensors:
        """Gradients over other pairs after a right forward."""
        lse = self.problem.truth.lse
        scores = (self.scores * self.scale).masked_fill(~allowed, -torch.inf)
        weights = (scores - lse.masked_fill(lse.isinf(), 0)[..., None]).exp()
        return self.grads(weights, self.dscores(weights, self.problem.truth.out))

    def after(self, words: str, requirement: str, out: Tensor, lse: Tensor) -> Iterator[Guess]:
        """The guess that the forward ends with this, and the backward begins with it."""
        def rest() -> Tensors:
            finite = lse.masked_fill(lse.isinf() | lse.isnan(), 0)[..., None]
            weights = (self.scores * self.scale - finite).masked_fill(~self.allowed, -torch.inf).exp()
            return self.grads(weights, self.dscores(weights, out))

        yield Guess(words, requirement, {"out": out, "lse": lse}, rest if self.backward_failed else None)

    def over(self, words: str, requirement: str, allowed: Tensor, bias: Tensor | None = None) -> Iterator[Guess]:
        """The guess that other pairs are attended: in both directions, or in the one that failed."""
        if bias is None and torch.equal(allowed, self.allowed):
            return
        if self.forward_failed:
            yield self.attended(words, requirement, allowed, bias=bias)
        elif bias is None:
            yield Guess(f"in the backward, {words}", requirement, self.backward(allowed))
