"""Lanes of a timeline, read from its record: phases, transfers and waits of every rank, odd ones left out."""

from dataclasses import dataclass
from typing import Any

from reports import metrics
from reports.figures import values
from reports.metrics import Trial

Span = tuple[float, float]


@dataclass(frozen=True)
class Transfer:
    """One call that moves bytes: seconds from the start of the step, what it is, of which hop."""

    span: Span
    kind: str
    bytes: float | None
    hop: int | None

    @property
    def way(self) -> str:
        """The lane it is drawn in: sent, got or all."""
        return "sent" if self.kind == "send" else "got" if self.kind in ("receive", "recv") else "all"


@dataclass(frozen=True)
class Lane:
    """What one rank did: phases by name, transfers, waits with their hops."""

    phases: tuple[tuple[str, Span], ...]
    transfers: tuple[Transfer, ...]
    waits: tuple[tuple[Span, int | None], ...]

    @property
    def exposed(self) -> float:
        return metrics.exposed_s({"waits": [span for span, _ in self.waits]})

    @property
    def compute(self) -> float:
        phases = [(name, *span) for name, span in self.phases]
        return metrics.compute_s({"phases": phases, "waits": [span for span, _ in self.waits]})


def of_trial(trial: Trial) -> list[Lane]:
    """The lanes of all ranks; none where no timeline was recorded."""
    return [_lane(values.table(one)) for one in values.items(values.table(trial.get("timeline")).get("ranks"))]


def _lane(told: dict[str, Any]) -> Lane:
    phases = [(str(one[0]), span) for one in values.items(told.get("phases")) if (span := _span(one, 1))]
    waits = [(span, _whole(one[2:3])) for one in values.items(told.get("waits")) if (span := _span(one, 0))]
    moved = [_transfer(values.table(one)) for one in values.items(told.get("transfers"))]
    return Lane(tuple(phases), tuple(one for one in moved if one), tuple(waits))


def _transfer(told: dict[str, Any]) -> Transfer | None:
    span = _span([told.get("start"), told.get("end")], 0)
    return span and Transfer(
        span,
        str(told.get("kind")),
        values.positive(told.get("bytes")),
        _whole([told.get("hop")]),
    )


def _span(told: Any, first: int) -> Span | None:
    pair = [values.finite(one) for one in values.items(told)[first : first + 2]]
    return (pair[0], pair[1]) if len(pair) == 2 and None not in pair and 0 <= pair[0] <= pair[1] else None


def _whole(told: list[Any]) -> int | None:
    number = values.finite(told[0]) if told else None
    return None if number is None else int(number)


def length(trial: Trial, lanes: list[Lane]) -> float:
    """Seconds of the step, or up to the end of what was recorded."""
    ends = [span[1] for lane in lanes for _, span in lane.phases] + [
        one.span[1] for lane in lanes for one in lane.transfers
    ]
    return max(values.positive(values.table(trial.get("timeline")).get("step_s")) or 0, *ends, 1e-9)
