"""Rings that lose a rank, or that talk past each other; beside that the dense ring."""

import os
import signal
import time

import torch
import torch.distributed as dist

from harness.adapters.dense import Dense
from harness.implementation import Session


class Loss(Dense):
    """`spoil` runs on every rank before the step."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def spoiled(q, k, v):
            self.spoil(group, group.rank == group.size - 1)
            return step(q, k, v)

        return spoiled

    def spoil(self, group, last):
        raise NotImplementedError


class Raising(Loss):
    def spoil(self, group, last):
        if last:
            raise RuntimeError("no kernel for this shape")


class OutOfMemory(Loss):
    def spoil(self, group, last):
        if last:
            raise torch.OutOfMemoryError("Tried to allocate 3.00 TiB")


class Unsayable(Exception):
    """Neither its message nor a copy of it can be made."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__

    def __reduce__(self):
        raise TypeError("no copy")


class RaisesUnsayable(Loss):
    def spoil(self, group, last):
        if last:
            raise Unsayable


class RaisesAtLength(Loss):
    def spoil(self, group, last):
        if last:
            raise ValueError("\n\n  no\n" + "room " * 200_000 + "\nline" * 5000)


class Leaves(Loss):
    def spoil(self, group, last):
        if last:
            raise SystemExit("enough\nof it")


class Interrupts(Loss):
    def spoil(self, group, last):
        if last:
            raise KeyboardInterrupt


class Exits(Loss):
    def spoil(self, group, last):
        if last:
            os._exit(0)


class FailsToClose(Dense):
    def open(self, case, group):
        return Unclosable(self, case, group)


class Unclosable(Session):
    def close(self):
        if self.group.rank == self.group.size - 1:
            raise OSError("still in use")


class EndsTheGroup(Dense):
    def open(self, case, group):
        return Ending(self, case, group)


class Ending(Session):
    """Takes down what all ranks share."""

    def close(self):
        dist.destroy_process_group()


class Hanging(Loss):
    def spoil(self, group, last):
        if last:
            time.sleep(3600)


class Stopped(Loss):
    def spoil(self, group, last):
        if last:
            os.kill(os.getpid(), signal.SIGSTOP)


class KilledAfterSending(Loss):
    """Kills itself when its message is on the way."""

    def spoil(self, group, last):
        if last:
            dist.isend(torch.zeros(3), 0, group=group.process_group)
            os.kill(os.getpid(), signal.SIGKILL)


class FirstKilledAfterSending(Loss):
    """The rank that keeps the record kills itself when its message is on the way."""

    def spoil(self, group, last):
        if group.rank == 0:
            dist.isend(torch.zeros(3), 1, group=group.process_group)
            os.kill(os.getpid(), signal.SIGKILL)


class RaisesInBackward(Dense):
    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def spoiled(q, k, v):
            out, lse = step(q, k, v)
            return (Broken.apply(out) if group.rank == group.size - 1 else out), lse

        return spoiled


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, grad):
        raise RuntimeError("no backward for this shape")


class SkipsACollective(Loss):
    """One rank leaves out a collective, as if it had nothing to say."""

    def spoil(self, group, last):
        if not last:
            dist.all_reduce(torch.zeros(2), group=group.process_group)


class UnlikeSizes(Loss):
    """Sends `sent` numbers where `awaited` are expected."""

    sent, awaited = 10, 30

    def spoil(self, group, last):
        if last:
            dist.recv(torch.zeros(self.awaited), 0, group=group.process_group)
        elif group.rank == 0:
            dist.send(torch.zeros(self.sent), group.ranks[-1], group=group.process_group)


class TooLong(UnlikeSizes):
    """gloo ends the process of a rank that gets more than it expects."""

    sent, awaited = 30, 10


class LocalOnly(Dense):
    """Attends the keys of its own rank and of no other."""

    def load(self, case, group, batch):
        from harness.adapters.dense import attend

        own = self.layout(case, group.size)[group.rank]
        allowed = case.mask.allowed(batch, own, own).repeat_interleave(case.shape.heads, 1)

        def step(q, k, v):
            return attend(q, k, v, allowed, case.scale)

        return step
