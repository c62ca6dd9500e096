"""Puts a trace behind torch.distributed for as long as an implementation runs: nothing stays patched afterwards.

Every collective and every isend and irecv, however it was imported, ends in a method of ProcessGroup; functional
collectives end in an operator instead. CommDebugMode sees neither isend nor irecv.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.recorder import Recorder
from harness.stacks import outside
from harness.trace import Call, Trace

FIRST, SECOND = 0, 1
METHODS = {
    "send": ("send", FIRST), "recv": ("recv", FIRST), "recv_anysource": ("recv", FIRST),
    "allreduce": ("all_reduce", FIRST), "allreduce_coalesced": ("all_reduce", FIRST),
    "allgather": ("all_gather", SECOND), "_allgather_base": ("all_gather", SECOND),
    "allgather_coalesced": ("all_gather", SECOND), "allgather_into_tensor_coalesced": ("all_gather", SECOND),
    "all_gather_single": ("all_gather", SECOND), "all_gather_single_coalesced": ("all_gather", SECOND),
    "reduce_scatter": ("reduce_scatter", SECOND), "_reduce_scatter_base": ("reduce_scatter", SECOND),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", SECOND), "reduce_scatter_single": ("reduce_scatter", SECOND),
    "reduce_scatter_single_coalesced": ("reduce_scatter", SECOND),
    "alltoall": ("all_to_all", SECOND), "alltoall_base": ("all_to_all", SECOND),
    "all_to_all_single": ("all_to_all", SECOND),
    "broadcast": ("broadcast", FIRST), "reduce": ("reduce", FIRST), "gather": ("gather", SECOND),
    "scatter": ("scatter", FIRST), "barrier": ("barrier", None),
}
FUNCTIONAL = {
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "all_gather_into_tensor": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all", "broadcast": "broadcast", "broadcast_": "broadcast",
}
NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd")


@contextmanager
def tapped(trace: Trace, recorder: Recorder | None = None) -> Iterator[None]:
    """Writes every call of this process's process groups to `trace` before it is made; `recorder` hears of it too, and
    of waits."""
    own = vars(dist.ProcessGroup)
    kept = [(dist.ProcessGroup, name, own[name]) for name in METHODS if name in own]
    for space in (getattr(torch.ops, name) for name in NAMESPACES):
        kept += [(space, name, getattr(space, name)) for name in FUNCTIONAL if hasattr(space, name)]
    for owner, name, _ in kept:
        tap = _method if owner is dist.ProcessGroup else _Operator
        setattr(owner, name, tap(getattr(owner, name), name, trace, recorder))
    try:
        with recorder.hearing() if recorder else nullcontext():
            yield
    finally:
        for owner, name, original in kept:
            setattr(owner, name, original)


def _method(original: Callable, name: str, trace: Trace, recorder: Recorder | None) -> Callable:
    kind, payload = METHODS[name]

    def tap(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> Any:
        if group.group_name in trace.apart:
            return original(group, *args, **kwargs)
        given = (*args, *kwargs.values())
        size = 0 if payload is None or len(given) <= payload else _bytes(given[payload])
        call = _call(trace, kind, group, size, *_ends(kind, name, given))
        trace.write(call)
        return _made(call, recorder, lambda: original(group, *args, **kwargs))

    return tap


class _Operator:
    """A functional collective with a trace in front; its overloads stay reachable."""

    def __init__(self, original: Any, name: str, trace: Trace, recorder: Recorder | None):
        self._original, self._kind, self._trace, self._recorder = original, FUNCTIONAL[name], trace, recorder

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        group = dist.distributed_c10d._resolve_process_group(kwargs.get("group_name", args[-1]))
        if group.group_name in self._trace.apart:
            return self._original(*args, **kwargs)
        call = _call(self._trace, self._kind, group, _bytes(args[FIRST]), -1, 0)
        self._trace.write(call)
        return _made(call, self._recorder, lambda: self._original(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def _made(call: Call, recorder: Recorder | None, make: Callable[[], Any]) -> Any:
    return recorder.around(call, make) if recorder else make()


def _call(trace: Trace, kind: str, group: dist.ProcessGroup, size: int, peer: int, tag: int) -> Call:
    ranks = tuple(dist.get_process_group_ranks(group))
    return Call(trace.phase, kind, group.group_name, ranks, ranks[peer] if peer >= 0 else -1, tag, size, _site())


def _ends(kind: str, name: str, given: tuple) -> tuple[int, int]:
    """Group rank of the peer or root, -1 for none, and the tag."""
    if name in ("send", "recv"):
        return given[1], given[2]
    if kind in ("broadcast", "reduce", "gather", "scatter"):
        return given[-1].rootRank, 0
    return -1, 0


def _bytes(given: Any) -> int:
    if isinstance(given, Tensor):
        return given.numel() * given.element_size()
    return sum(map(_bytes, given)) if isinstance(given, (list, tuple)) else 0


def _site() -> str:
    frame = innermost = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not outside(name):
            innermost = frame
            break
        frame = frame.f_back
    return f"{innermost.f_code.co_name} ({os.path.basename(innermost.f_code.co_filename)}:{innermost.f_lineno})"
