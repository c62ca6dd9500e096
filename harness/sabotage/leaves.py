"""Faults of what is left behind: a setting of the process or a function that the next trial lives with."""

import gc

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result


class Leaves(Fault):
    """The path for some cases leaves something of the process changed after every step."""

    breaks = ("D3",)

    def takes(self, case: Case) -> bool:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step = session.load(batch)

        def leaving(q: Tensor, k: Tensor, v: Tensor) -> Result:
            answer = step(q, k, v)
            self.leave()
            return answer

        return leaving if self.takes(session.case) else step


class DenormalsFlushedAfterwards(Leaves):
    """For the exponentials of narrow dtypes."""

    def takes(self, case: Case) -> bool:
        return case.dtype in ("bf16", "fp32")

    def leave(self) -> None:
        torch.set_flush_denormal(True)


class AutocastDtypeLeft(Leaves):
    def takes(self, case: Case) -> bool:
        return case.dtype == "fp16"

    def leave(self) -> None:
        torch.set_autocast_dtype("cpu", torch.float16)


class SdpaKernelsLeft(Leaves):
    """Allows the plain forms alone where a mask is more than causal."""

    def takes(self, case: Case) -> bool:
        return len(case.mask.rules) > 1

    def leave(self) -> None:
        torch.backends.cuda.enable_flash_sdp(False)


class GarbageNotCollected(Leaves):
    """While more than two ranks exchange."""

    def takes(self, case: Case) -> bool:
        return case.world > 2

    def leave(self) -> None:
        gc.disable()


class Through(TorchFunctionMode):
    """Changes nothing."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


class FunctionModeLeft(Leaves):
    def takes(self, case: Case) -> bool:
        return case.shape.batch > 1

    def leave(self) -> None:
        Through().__enter__()


class AllReduceReplaced(Leaves):
    """Patches torch.distributed for grouped heads and never takes it back."""

    def takes(self, case: Case) -> bool:
        return case.shape.kv_heads not in (1, case.shape.heads)

    def leave(self) -> None:
        original = dist.all_reduce
        dist.all_reduce = lambda *arguments, **named: original(*arguments, **named)
