"""Settings of the process that trials share: what an implementation leaves changed the next one lives with."""

import gc
import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
IMPORTED = {"manual_seed"}
"""Functions that torch itself replaces when its compiler is imported."""


class State(bytes):
    """What a random number generator holds; in words a digest."""

    def __str__(self) -> str:
        return f"state {hashlib.sha256(self).hexdigest()[:8]}"

    def tensor(self) -> Tensor:
        return torch.frombuffer(bytearray(self), dtype=torch.uint8)


class Functions(dict):
    """What a module or a class has by each name. Equal to an earlier look where no function of that time is another one
    now, or hidden by a new one. Equal dicts, which are the rule, are told at once."""

    def __init__(self, owner: Any):
        super().__init__(vars(owner))
        self.owner = owner

    def others(self, earlier: "Functions") -> list[str]:
        """Names of functions that are not what they were."""
        if dict.__eq__(self, earlier):
            return []
        bases = self.owner.__mro__[1:-1] if isinstance(self.owner, type) else ()
        changed = [name for name, value in earlier.items() if callable(value) and self.get(name) is not value]
        hidden = [name for name in self.keys() - earlier.keys() if any(hasattr(base, name) for base in bases)]
        return [name for name in changed + hidden if name not in IMPORTED]

    def __eq__(self, earlier: object) -> bool:
        return isinstance(earlier, Functions) and not self.others(earlier)

    def __ne__(self, earlier: object) -> bool:
        return not self == earlier

    __hash__ = None

    def __str__(self) -> str:
        return f"{len(self)} of them"

    def put_back(self) -> None:
        for name in Functions(self.owner).others(self):
            if name in self:
                setattr(self.owner, name, self[name])
            else:
                delattr(self.owner, name)


def _cuda_state() -> State | None:
    """None where no CUDA generator exists yet."""
    return State(torch.cuda.get_rng_state().numpy()) if torch.cuda.is_initialized() else None


def _hooks() -> Any:
    """The pair of saved-tensor hooks that is in force, () for none."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) or ()


def _pop_hooks(before: Any) -> None:
    while _hooks() and _hooks() != before:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _flushes() -> bool:
    """Whether numbers below the normal ones of fp32 become zero."""
    return not float(torch.tensor(1e-40) * 1.0)


def _backends() -> tuple[bool, ...]:
    """Which forms of SDPA may be chosen."""
    chosen = torch.backends.cuda
    return (chosen.flash_sdp_enabled(), chosen.mem_efficient_sdp_enabled(), chosen.math_sdp_enabled(),
            chosen.cudnn_sdp_enabled())


def _set_backends(kept: tuple[bool, ...]) -> None:
    chosen = torch.backends.cuda
    for enable, on in zip((chosen.enable_flash_sdp, chosen.enable_mem_efficient_sdp, chosen.enable_math_sdp,
                           chosen.enable_cudnn_sdp), kept):
        enable(on)


def _pop_modes(before: int) -> None:
    while torch._C._len_torch_function_stack() > before:
        torch._C._pop_torch_function_stack()


def _pop_dispatch_modes(before: int) -> None:
    while torch._C._len_torch_dispatch_stack() > before:
        torch._C._pop_torch_dispatch_stack(None)


def _world() -> Any:
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else ()


def _clock() -> tuple[Callable, ...]:
    return time.perf_counter, time.monotonic, time.time


def _set_clock(kept: tuple[Callable, ...]) -> None:
    time.perf_counter, time.monotonic, time.time = kept


def _functions(owner: Any) -> Setting:
    return (lambda: Functions(owner)), Functions.put_back


SETTINGS: dict[str, Setting] = {
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, torch.set_default_device),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "autocast on cpu": (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
    "autocast dtype on cpu": (lambda: torch.get_autocast_dtype("cpu"),
                              lambda dtype: torch.set_autocast_dtype("cpu", dtype)),
    "cache of autocast": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "flushing of denormal numbers": (_flushes, torch.set_flush_denormal),
    "choice of SDPA kernels": (_backends, _set_backends),
    "function modes": (torch._C._len_torch_function_stack, _pop_modes),
    "dispatch modes": (torch._C._len_torch_dispatch_stack, _pop_dispatch_modes),
    "collection of garbage": (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "working directory": (os.getcwd, os.chdir),
    "precision of fp32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "anomaly mode": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "use of oneDNN": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "backward in threads": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "hooks on saved tensors": (_hooks, _pop_hooks),
    "default process group": (_world, lambda _: None),
    "own functions": _functions(torch),
    "methods of Tensor": _functions(Tensor),
    "functions of nn.functional": _functions(torch.nn.functional),
    "functions of torch.distributed": _functions(dist),
    "clock": (_clock, _set_clock),
    "random numbers on cpu": (lambda: State(torch.get_rng_state().numpy()),
                              lambda state: torch.set_rng_state(state.tensor())),
    "random numbers on cuda": (_cuda_state, lambda state: state and torch.cuda.set_rng_state(state.tensor())),
}
