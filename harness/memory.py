"""Memory that nobody wrote yet, filled with what no right program reads (SPEC B5)."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ALLOCATORS = ("aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided",
              "aten::empty_permuted")
GROWN = ("aten::resize_", "aten::resize_as_")


def fresh(content: str | None) -> AbstractContextManager:
    """While it is held, tensors of this thread and of its backward begin as `content` says: "nan" or None."""
    return nullcontext() if content is None else _Poisoned()


class _Poisoned(TorchDispatchMode):
    """NaN in floating point, the largest value in integers, True in bools."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled; True would import torch's compiler, which takes seconds, in every rank."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name
        before = args[0].numel() if name in GROWN else 0
        made = func(*args, **(kwargs or {}))
        if name in ALLOCATORS and isinstance(made, Tensor) and made.device.type != "meta":
            made.fill_(_poison(made.dtype))
        elif name in GROWN and made.numel() > before:
            made.view(-1)[before:].fill_(_poison(made.dtype))
        return made


def _poison(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return float("nan") if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max
