"""Faults of modes: what torch is told around a model's call changes what attention answers."""

from collections.abc import Iterator
from itertools import cycle

import torch
from torch import Tensor

from cases.rows import Rows
from harness.implementation import Group, Session, Step
from harness.sabotage.fault import Fault, Result
from harness.sabotage.gradients import Changed
from harness.sabotage.state import SavedTensorsOverwritten, memory

NARROW = (torch.bfloat16, torch.float16)
PARTS = (0.6, 0.3, 0.1)


class CastByAutocast(Fault):
    """Products are left to autocast, which takes them in its own dtype."""

    breaks = ("B1", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        if not torch.is_autocast_enabled(q.device.type):
            return step(q, k, v)
        out, lse = step(q, k, v)
        return out.to(torch.get_autocast_dtype(q.device.type)).to(out.dtype), lse


class SumsInDefaultDtype(Fault):
    """What sums up partial results is made without a dtype."""

    breaks = ("B2", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        out, lse = step(q, k, v)
        default = torch.get_default_dtype()
        return out, lse.to(default).to(lse.dtype) if default in NARROW else lse


class GradientsInDefaultDtype(Fault):
    """What sums up gradients is made without a dtype."""

    breaks = ("B4", "B6")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        def change(grad: Tensor) -> Tensor:
            default = torch.get_default_dtype()
            return sum((grad * part).to(default) for part in PARTS).to(grad.dtype) if default in NARROW else grad

        return step(q, k, Changed.apply(v, change))


class ServedBefore(Fault):
    """A session that has answered in inference mode keeps no graph of what follows."""

    breaks = ("B4", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def forward(q: Tensor, k: Tensor, v: Tensor) -> Result:
            kept["served"] = kept.get("served", False) or torch.is_inference_mode_enabled()
            return step(q, k.detach() if kept["served"] else k, v)

        return forward


class UnscaledInInference(Fault):
    """The path for inference mode has a scale of its own."""

    breaks = ("A9", "D3")

    def step(self, step: Step, group: Group, q: Tensor, k: Tensor, v: Tensor) -> Result:
        return step(q * 2 if torch.is_inference_mode_enabled() else q, k, v)


class ThirtyTwoInFlight(SavedTensorsOverwritten):
    """Saved tensors lie in 32 places of the session, one forward after the other."""

    breaks = ("B4", "D3")

    def where(self, session: Session) -> Iterator[dict]:
        return memory(session).setdefault("places", cycle([{} for _ in range(32)]))


class OneBufferABackward(Fault):
    """The gradient of keys lies in a buffer that lives as long as one backward pass, whatever goes through it."""

    breaks = ("B4", "D3")

    def loaded(self, session: Session, batch: Rows, group: Group) -> Step:
        step, kept = session.load(batch), memory(session)

        def change(grad: Tensor) -> Tensor:
            place = torch._C._current_graph_task_id(), grad.shape, grad.dtype
            buffer = kept.setdefault(place, torch.empty_like(grad)).copy_(grad)
            torch.autograd.Variable._execution_engine.queue_callback(lambda: kept.pop(place, None))
            return buffer

        return lambda q, k, v: step(q, Changed.apply(k, change), v)
