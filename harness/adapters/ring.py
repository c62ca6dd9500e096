"""Ring: our own ring attention as an implementation like any other; turns a Case into the ring's own Mask."""

from torch import Tensor

import ringcp
from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Session, Setting, Step
from harness.inputs import DTYPES
from ringcp import kernels
from ringcp.kernels.demand import Demand

RULES = ("causal", "window", "documents", "padding", "vision", "regions")


class Ring(Implementation):
    """Follows SPEC as it stands and every variant that a case pins.

    `kernel` forces one of ringcp's kernels ("ring:fa4" on the command line); what it cannot run is refused.
    """

    name = "ring"
    deterministic = True
    in_process = True
    kernels = tuple(kernel.name for kernel in kernels.TABLE)

    def refuses(self, case: Case, setting: Setting) -> str | None:
        unknown = [rule.name for rule in case.mask.rules if rule.name not in RULES]
        if unknown:
            return f"no mask rule {', '.join(unknown)}"
        if self.kernel is None:
            return None
        reason = kernels.why(demand(case, setting.device))[self.kernel]
        return reason and f"kernel {self.kernel} {reason}"

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return list(ringcp.make_layout(case.layout, case.shape.tokens, world).positions)

    def open(self, case: Case, group: Group) -> "RingSession":
        return RingSession(self, case, group)


class RingSession(Session):
    def __init__(self, implementation: Ring, case: Case, group: Group):
        super().__init__(implementation, case, group)
        self.layout = ringcp.make_layout(case.layout, case.shape.tokens, group.size)
        self.exchange = _exchange(group)

    def load(self, batch: Rows) -> Step:
        mask = ring_mask(self.case, batch)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return ringcp.ring_attention(q, k, v, mask=mask, layout=self.layout, group=self.exchange,
                                         scale=self.case.scale, kernel=self.implementation.kernel)

        return step

    def traffic(self) -> tuple[int, int]:
        """Bytes and messages that this rank has sent so far."""
        return self.exchange.traffic.bytes, self.exchange.traffic.messages


def ring_mask(case: Case, batch: Rows) -> ringcp.Mask:
    """The case's mask in the ring's own words, with the batch's metadata."""
    rules = {rule.name: rule for rule in case.mask.rules}
    window, documents, vision = rules.get("window"), rules.get("documents"), rules.get("vision")
    return ringcp.Mask(
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
    return Demand(device, DTYPES[case.dtype], shape.head_dim, shape.v_dim, groups, "window" in rules)


def _exchange(group: Group):
    if group.size == 1:
        return ringcp.exchange.Alone()
    if group.process_group is not None:
        return ringcp.exchange_for(group.process_group)
    mailbox = group.shared.setdefault("ring", ringcp.Mailbox(group.size, stop=group.shared.get("stop")))
    return ringcp.exchange.InProcess(group.rank, mailbox)
