"""The ways in which a model runs a step, forward and back, and the modes of torch that it may be in meanwhile."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from harness.implementation import Step

Result = tuple[Tensor, Tensor | None]
Graph = tuple[Tensor, list[Tensor], Tensor]


def gradients(graphs: Sequence[Graph], accumulated: bool = False, twice: bool = False) -> list[list[Tensor]]:
    """Gradients of the sum over graphs (out, wanted, dout) of sum(out * dout), in one backward, by graph; zeros where
    it does not reach. `accumulated` takes them by `.grad`; `twice` goes through the graph before, too."""
    joined = [graph for graph in graphs if graph[0].requires_grad]
    outs, douts = [out for out, _, _ in joined], [dout for _, _, dout in joined]
    wanted = [x for _, own, _ in joined for x in own]
    if twice:
        torch.autograd.grad(outs, wanted, douts, allow_unused=True, retain_graph=True)
    if accumulated and joined:
        torch.autograd.backward(outs, douts)
        grads = iter([x.grad for x in wanted])
    else:
        grads = iter(torch.autograd.grad(outs, wanted, douts, allow_unused=True) if wanted else ())
    return [[_or_zeros(x, next(grads) if out.requires_grad else None) for x in own] for out, own, _ in graphs]


def _or_zeros(x: Tensor, grad: Tensor | None) -> Tensor:
    return torch.zeros_like(x) if grad is None else grad


def differentiating(verb: str) -> AbstractContextManager:
    """What surrounds the backward of a forward that was run by `verb`."""
    return LOWERED() if verb == "lowered" else nullcontext()


class _Lowered:
    """bf16 for torch's default dtype, as where a model is built and trained in it. The setting is one for all threads
    of the process: the last rank that leaves puts it back."""

    def __init__(self):
        self._lock, self._inside = threading.Lock(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._before = torch.get_default_dtype()
                torch.set_default_dtype(torch.bfloat16)
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    torch.set_default_dtype(self._before)


LOWERED = _Lowered()


def _offloaded(step: Step, q: Tensor, k: Tensor, v: Tensor) -> Result:
    """Saved tensors live elsewhere between forward and backward, as with CPU offload."""
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x.clone()):
        return step(q, k, v)


def _cast(step: Step, q: Tensor, k: Tensor, v: Tensor) -> Result:
    with torch.autocast(q.device.type, torch.bfloat16):
        return step(q, k, v)


def _lowered(step: Step, q: Tensor, k: Tensor, v: Tensor) -> Result:
    with LOWERED():
        return step(q, k, v)


FORWARDS: dict[str, Callable[[Step, Tensor, Tensor, Tensor], Result]] = {
    "forward": lambda step, q, k, v: step(q, k, v),
    "checkpoint": lambda step, q, k, v: checkpoint(step, q, k, v, use_reentrant=False),
    "reentrant": lambda step, q, k, v: checkpoint(step, q, k, v, use_reentrant=True),
    "offload": _offloaded,
    "inner": lambda step, q, k, v: step(*(x * 1 if x.requires_grad else x for x in (q, k, v))),
    "autocast": _cast,
    "lowered": _lowered,
    "peek": torch.no_grad()(lambda step, q, k, v: step(q, k, v)),
    "infer": torch.inference_mode()(lambda step, q, k, v: step(q, k, v)),
}
