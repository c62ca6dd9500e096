"""Ring: our own ring attention as an implementation like any other; turns a Case into the ring's own Mask."""

from torch import Tensor

import ringcp
from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Session, Setting, Step

RULES = ("causal", "window", "documents", "padding", "vision", "regions")


class Ring(Implementation):
    """Follows SPEC as it stands and every variant that a case pins."""

    name = "ring"
    deterministic = True
    in_process = True
    kernel: str | None = None

    def refuses(self, case: Case, setting: Setting) -> str | None:
        unknown = [rule.name for rule in case.mask.rules if rule.name not in RULES]
        return f"no mask rule {', '.join(unknown)}" if unknown else None

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


def _exchange(group: Group):
    if group.size == 1:
        return ringcp.exchange.Alone()
    if group.process_group is not None:
        return ringcp.exchange_for(group.process_group)
    mailbox = group.shared.setdefault("ring", ringcp.Mailbox(group.size, stop=group.shared.get("stop")))
    return ringcp.exchange.InProcess(group.rank, mailbox)
