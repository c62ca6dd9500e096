"""Ring: our own ring attention as an implementation like any other; turns a Case into the ring's own Mask."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch import Tensor

import ringcp
from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Session, Setting, Step
from harness.inputs import DTYPES
from ringcp import alone
from ringcp.exchange import Exchange
from ringcp.kernels.demand import Demand
from ringcp.plan import whole_work

RULES = ("causal", "window", "documents", "padding", "vision", "regions")


class Ring(Implementation):
    """Follows SPEC as it stands and every variant that a case pins.

    `kernel` forces one of ringcp's kernels ("ring:fa4" on the command line); what it cannot run is refused.
    `package` is ringcp, or a copy of it with something changed.
    """

    name = "ring"
    deterministic = True
    in_process = True
    kernels = tuple(kernel.name for kernel in ringcp.kernels.TABLE)

    def __init__(self, package: ModuleType = ringcp):
        self.package = package

    def refuses(self, case: Case, setting: Setting) -> str | None:
        unknown = [rule.name for rule in case.mask.rules if rule.name not in RULES]
        if unknown:
            return f"no mask rule {', '.join(unknown)}"
        if self.kernel is None:
            return None
        reason = self.package.kernels.named(self.kernel).refuses(demand(case, setting.device))
        return reason and f"kernel {self.kernel} {reason}"

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return list(ring_layout(case, world, self.package).positions)

    def open(self, case: Case, group: Group) -> "RingSession":
        return RingSession(self, case, group)


class RingSession(Session):
    def __init__(self, implementation: Ring, case: Case, group: Group):
        super().__init__(implementation, case, group)
        self.package = implementation.package
        self.place(case)
        self.exchange = _exchange(self.package, group)

    def place(self, case: Case) -> None:
        """Holds the tokens that this case gives it; a fault that misreads a mask still holds what it was given."""
        self.layout = ring_layout(case, self.group.size, self.package)

    def load(self, batch: Rows) -> Step:
        return self._step(batch, self.exchange)

    def silent(self, batch: Rows) -> Step:
        return self._step(batch, alone.Silent(self.group.rank, self.group.size))

    def kernels(self, batch: Rows, q: Tensor, k: Tensor, v: Tensor,
                dout: Tensor) -> dict[str, Callable[[], Callable[[], Any]]]:
        case, layout = self.case, ring_layout(self.case, self.group.size)
        work = whole_work(ring_mask(case, batch), layout, self.group.rank, str(q.device))
        scale = case.shape.head_dim ** -0.5 if case.scale is None else case.scale
        return {kernel.name: alone.alone(kernel, work, scale, q, k, v, dout)
                for kernel in alone.candidates(demand(case, q.device.type))}

    def _step(self, batch: Rows, exchange: Exchange) -> Step:
        mask = ring_mask(self.case, batch, self.package)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return self.package.ring_attention(q, k, v, mask=mask, layout=self.layout, group=exchange,
                                               scale=self.case.scale, kernel=self.implementation.kernel)

        return step

    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank has sent so far."""
        return self.exchange.traffic.bytes, self.exchange.traffic.messages


def ring_layout(case: Case, world: int, package: ModuleType = ringcp) -> ringcp.Layout:
    """The layout that the case asks for, its chunks handed out and ordered as the case asks."""
    made = _named(case, world, package)
    order = case.topology.order
    if order == "ranked":
        return made
    if order == "padded":
        return made.padded()
    chunks = [made.positions[case.topology.chunk(rank, world)] for rank in range(world)]
    chunks = [chunk.flip(-1) for chunk in chunks] if order == "descending" else chunks
    chunks = [chunk.roll(chunk.shape[-1] // 2, -1) for chunk in chunks] if order == "halves" else chunks
    return package.Layout(f"{made.name}-{order}", made.tokens, tuple(chunks))


def _named(case: Case, world: int, package: ModuleType) -> ringcp.Layout:
    """The layout by name; what follows a mask follows that of the first batch."""
    if case.layout == "balanced":
        return package.balanced_layout(ring_mask(case, case.rows(), package), world)
    return package.make_layout(case.layout, case.shape.tokens, world)


def ring_mask(case: Case, batch: Rows, package: ModuleType = ringcp) -> ringcp.Mask:
    """The case's mask in the ring's own words, with the batch's metadata."""
    rules = {rule.name: rule for rule in case.mask.rules}
    window, documents, vision = rules.get("window"), rules.get("documents"), rules.get("vision")
    return package.Mask(
        tokens=batch.tokens, batch=batch.batch, causal="causal" in rules,
        window=window and window.size, window_rule=(window and window.variant) or "exclusive",
        documents=batch.documents, document_rule=(documents and documents.variant) or "ids",
        padding=batch.padding,
        token_types=batch.token_types, vision_rule=(vision and vision.variant) or "overlay",
        token_regions=batch.token_regions, selected=batch.selected, regions=batch.regions,
    )


def demand(case: Case, device: str) -> Demand:
    """What the case asks of a kernel."""
    rules, shape = {rule.name for rule in case.mask.rules}, case.shape
    groups = shape.kv_heads if "regions" in rules else 1
    return Demand(device, DTYPES[case.dtype], shape.head_dim, shape.v_dim, groups, frozenset(rules), shape.tokens)


def _exchange(package: ModuleType, group: Group) -> Exchange:
    if group.size == 1:
        return package.exchange.Alone()
    if group.process_group is not None:
        return package.exchange_for(group.process_group)
    mailbox = group.shared.setdefault("ring", package.Mailbox(group.size, stop=group.shared.get("stop")))
    return package.exchange.InProcess(group.rank, mailbox)
