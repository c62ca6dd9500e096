"""Rings that give back what no method may, or touch what is not theirs; beside that the dense ring."""

from collections import namedtuple
from contextlib import nullcontext

import torch

from harness.adapters.dense import Dense
from harness.implementation import Session


def returning(change):
    """`change(out, lse, q, k, v)` is what its step returns."""

    class Returning(Dense):
        def load(self, case, group, batch):
            step = super().load(case, group, batch)
            return lambda q, k, v: change(*step(q, k, v), q, k, v)

    return Returning


def declaring(**methods):
    return type("Declaring", (Dense,), {name: lambda self, *_, made=made: made for name, made in methods.items()})


def opening(**methods):
    kind = type("Opened", (Session,), {name: lambda self, *_, made=made: made for name, made in methods.items()})
    return type("Opening", (Dense,), {"open": lambda self, case, group: kind(self, case, group)})


def backward(grad):
    """`grad(g)` is what the backward of its last function returns."""

    class Last(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, g):
            return grad(g)

    return returning(lambda out, lse, *_: (Last.apply(out), lse))


Pair = namedtuple("Pair", "out lse")
Triple = namedtuple("Triple", "out lse kernel")


class OnOneRank(Dense):
    """Returns nothing on the last rank alone."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)
        return lambda q, k, v: (step(q, k, v), None)[group.rank == group.size - 1]


class Fades(Dense):
    """From the second call on its step computes something else, and returns nothing."""

    def load(self, case, group, batch):
        step, calls = super().load(case, group, batch), []

        def fading(q, k, v):
            calls.append(1)
            if len(calls) == 1:
                return step(q, k, v)
            step((q[..., :1] * q[..., :1]).expand_as(q), k, v)

        return fading


class Borrowed(Dense):
    """Its step is a function of torch."""

    def load(self, case, group, batch):
        return torch.nn.functional.scaled_dot_product_attention


class TakesTwo(Dense):
    def load(self, case, group, batch):
        return lambda q, kv: None


class LoadsNothing(Dense):
    def load(self, case, group):
        return None


class RaisesTypeError(Dense):
    """An error of its own that looks like a call with wrong arguments."""

    def load(self, case, group, batch):
        return lambda q, k, v: len(3)


class LaysOut(Dense):
    """`lay(positions)` in place of the positions of every rank."""

    def __init__(self, lay):
        self.lay = lay

    def layout(self, case, world):
        return self.lay(super().layout(case, world))


class Scribbles(Dense):
    """Writes to the metadata that it kept a reference to, in the forward or in the backward."""

    phase = "forward"

    def load(self, case, group, batch):
        step, documents = super().load(case, group, batch), batch.documents

        def scribbling(q, k, v):
            out, lse = step(q, k, v)
            if self.phase == "forward":
                documents.add_(1)
            elif out.requires_grad:
                out.register_hook(lambda grad: [documents.add_(1), None][1])
            return out, lse

        return scribbling


class Differentiates(Dense):
    """Runs a backward of its own while it steps."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def differentiating(q, k, v):
            if q.requires_grad:
                (q * 1).sum().backward()
            return step(q, k, v)

        return differentiating


def marking(name, on):
    def change(out, lse, q, k, v):
        {"q": q, "k": k, "v": v}[name].requires_grad_(on)
        return out, lse

    return returning(change)


def nothing(*_):
    return nullcontext()
