"""Faults with what is given: tensors modified or misread, and gradients that only some of them want."""

import torch
from torch import Tensor

from harness.implementation import Group, Step
from harness.sabotage.backward import in_memory_order
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed, scaled


class InputsModified(Fault):
    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        result = step(q, k, v)
        q.data.mul_(2.0)
        return result


class QueriesScaledUntilBackward(Fault):
    """Scales its queries in place in the forward, and back in the backward."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        if not out.requires_grad:
            return out, lse
        q.data.mul_(2.0)

        def restored(grad: Tensor) -> Tensor:
            q.data.mul_(0.5)
            return grad

        return Changed.apply(out, restored), lse


class KeysModified(Fault):
    """Scales its keys in place and forgets to scale them back."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        result = step(q, k, v)
        k.data[:, :, -1:].mul_(0.5)
        return result


class DoutModified(Fault):
    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)

        def spoiled(grad: Tensor) -> Tensor:
            kept = grad.clone()
            grad[:, :, :1].mul_(0)
            return kept

        return Changed.apply(out, spoiled), lse


class StridesIgnored(Fault):
    """Reads the memory of k in order, whatever its strides are."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k + (in_memory_order(k.detach()) - k.detach()).nan_to_num(), v)


class ValuesReadWithKeyStrides(Fault):
    """One set of strides is handed to a kernel for k and v."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        alike = k.shape != v.shape or k.stride() == v.stride()
        return step(q, k, v if alike else v + (reached(v.detach(), k.stride()) - v.detach()).nan_to_num())


class ExpandedKeysEmpty(Fault):
    """Keys of stride 0 are taken for keys that nobody wrote."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k * 0 if 0 in k.stride() else k, v)


class DoutOfOneHead(Fault):
    """A dout of stride 0 over heads is taken for that of the first head alone."""

    breaks = ("B4", "B7")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        first = torch.arange(out.shape[1])[:, None, None] == 0
        return Changed.apply(out, lambda grad: grad * first if not grad.stride(1) and grad.stride(2) else grad), lse


class GraphKept(Fault):
    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        with torch.enable_grad():
            return step(q, k, v)


class GradientsAllOrNone(Fault):
    """Gradients exist only when q, k and v all want them."""

    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out if all(x.requires_grad for x in (q, k, v)) else out.detach()), lse


class GradientsOnlyWithQuery(Fault):
    """k and v get theirs only when q wants one."""

    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out if q.requires_grad else out.detach()), lse


class ValueGradientOnlyWithKey(Fault):
    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q, k, v if k.requires_grad or q.requires_grad else v.detach())


class LastStrideTakenForOne(Fault):
    """Reads the numbers of a token one after the other, whatever stands between them."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return (out if k.stride(-1) == 1 or k.shape[-1] == 1 else out * 0.5), lse


class GradientOfSumDropped(Fault):
    """A dout whose strides are all 0, as out.sum() hands back, is taken for none."""

    breaks = ("B4", "B7")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        return Changed.apply(out, lambda grad: grad if any(grad.stride()) else grad * 0), lse


class MemoryBesideWritten(Fault):
    """Clears the whole tensor that q is a view of, but for q."""

    breaks = ("B7",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if q._base is not None:
            kept = q.detach().clone()
            q._base.detach().zero_()
            q.detach().copy_(kept)
        return step(q, k, v)


def reached(x: Tensor, strides: tuple[int, ...]) -> Tensor:
    """What stands at these strides in x's memory; its last number where they lead beyond it."""
    memory = x.new_empty(0).set_(x.untyped_storage())[x.storage_offset():]
    places = sum(torch.arange(size).view(-1, *[1] * (x.dim() - dim - 1)) * stride
                 for dim, (size, stride) in enumerate(zip(x.shape, strides, strict=True)))
    return memory[places.clamp(max=memory.numel() - 1)]


class GradientsOfTwoInputsDoubled(Fault):
    """The path for q and k alone adds dq twice."""

    breaks = ("B8",)

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        two = q.requires_grad and k.requires_grad and not v.requires_grad
        return step(scaled(q, 2.0) if two else q, k, v)
