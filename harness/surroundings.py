"""What an implementation must leave as it found: torch's settings of the process, which the next trial lives with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from harness.contract import Breach

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]

SETTINGS: dict[str, Setting] = {
    "grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "default device": (torch.get_default_device, torch.set_default_device),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "deterministic algorithms": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "autocast on cpu": (lambda: torch.is_autocast_enabled("cpu"), lambda on: torch.set_autocast_enabled("cpu", on)),
}


@contextmanager
def restored(rank: int) -> Iterator[Callable[[], list[Breach]]]:
    """Yields a look at what has changed since; puts every setting back at the end, also after an exception."""
    before = {name: get() for name, (get, _) in SETTINGS.items()}

    def changed() -> list[Breach]:
        now = {name: get() for name, (get, _) in SETTINGS.items()}
        return [Breach("D3", f"torch's {name} is left changed on rank {rank}", str(before[name]), str(now[name]), rank)
                for name in before if now[name] != before[name]]

    try:
        yield changed
    finally:
        for name, (get, put) in SETTINGS.items():
            if get() != before[name]:
                put(before[name])
