"""Numbers read off one trial record: pure functions, None where the record does not say.

A new metric is a function here and, to be a column of the page, a line in COLUMNS.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

Trial = dict[str, Any]
LINE = 1.0
ITEMSIZE = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}


def forward_ms(trial: Trial) -> float | None:
    """Median time of a forward pass, slowest rank. Milliseconds, lower is better."""
    return _milliseconds(trial, "forward_s")


def backward_ms(trial: Trial) -> float | None:
    """Median time of a backward pass, slowest rank. Milliseconds, lower is better."""
    return _milliseconds(trial, "backward_s")


def step_ms(trial: Trial) -> float | None:
    """Median time of forward and backward together, slowest rank. Milliseconds, lower is better."""
    return _milliseconds(trial, "step_s")


def load_ms(trial: Trial) -> float | None:
    """Time to prepare one batch, slowest rank. Milliseconds, lower is better."""
    times = _measured(trial, "load_s")
    return max(times) * 1e3 if times else None


def tflops_forward(trial: Trial) -> float | None:
    """Arithmetic of the allowed pairs, 2*A*(D+Dv), over the forward time. TFLOP/s a rank, higher is better."""
    return _rate(trial, flops_forward(trial), forward_ms(trial))


def tflops_step(trial: Trial) -> float | None:
    """Forward and backward arithmetic over their time together. TFLOP/s a rank, higher is better."""
    forward, backward = flops_forward(trial), flops_backward(trial)
    return None if forward is None or backward is None else _rate(trial, forward + backward, step_ms(trial))


def flops_forward(trial: Trial) -> float | None:
    """2*A*(D+Dv) for A allowed pairs of query head and key. FLOP of all ranks, no direction."""
    return (trial.get("work") or {}).get("flops_forward")


def flops_backward(trial: Trial) -> float | None:
    """2*A*(3D+2Dv); recompute is never counted. FLOP of all ranks, no direction."""
    return (trial.get("work") or {}).get("flops_backward")


def load_imbalance(trial: Trial) -> float | None:
    """Allowed pairs of the fullest rank over the mean rank. Ratio from 1, lower is better."""
    return _max_over_mean((trial.get("work") or {}).get("area_by_rank"))


def time_imbalance(trial: Trial) -> float | None:
    """Median step of the slowest rank over the mean rank. Ratio from 1, lower is better."""
    return _max_over_mean(_measured(trial, "rank_step_s"))


def remote_share(trial: Trial) -> float | None:
    """Share of allowed pairs whose key lives on another rank. 0 to 1, lower needs less exchange."""
    hops = (trial.get("work") or {}).get("area_by_hop")
    total = sum(map(sum, hops)) if hops else 0
    return 1 - sum(row[rank] for rank, row in enumerate(hops)) / total if total else None


def sent_over_need(trial: Trial) -> float | None:
    """Bytes sent by all ranks in one step over the bytes of the remote keys and values that some query attends.

    Ratio, lower is better: a forward alone is 1 at best, backward adds the keys again (unless kept) and gradients.
    """
    sent, need = _measured(trial, "bytes_sent"), (trial.get("work") or {}).get("need_bytes")
    if not sent or not need:
        return None
    if not sum(need):
        return math.inf if sum(sent) else None
    return sum(sent) / sum(need)


def peak_mib(trial: Trial) -> float | None:
    """Peak memory of the fullest rank. MiB, lower is better."""
    peaks = _measured(trial, "peak_bytes")
    return max(peaks) / 2**20 if peaks else None


def share_forward(trial: Trial) -> float | None:
    """Forward time of the fastest kernel alone on the busiest rank's work over that of the ring. Higher is better."""
    return _ratio(_median(trial, "bound_forward_s"), _median(trial, "forward_s"))


def share_step(trial: Trial) -> float | None:
    """The same of forward and backward together. Share of the kernel bound, higher is better."""
    return _ratio(_median(trial, "bound_step_s"), _median(trial, "step_s"))


def bound_tflops(trial: Trial) -> float | None:
    """Forward and backward arithmetic over the time of the fastest kernel alone on the busiest rank's work.

    TFLOP/s a rank, higher is better; exchange can only slow it down.
    """
    forward, backward, bound = flops_forward(trial), flops_backward(trial), _milliseconds(trial, "bound_step_s")
    return None if forward is None or backward is None else _rate(trial, forward + backward, bound)


def sent_bytes(trial: Trial) -> float | None:
    """Bytes that all ranks together sent in one forward and backward. Bytes, lower is better."""
    sent = _measured(trial, "bytes_sent")
    return sum(sent) if sent else None


def least_bytes(trial: Trial) -> float | None:
    """The least that all ranks together can send in a step (SPEC D9). Bytes, no direction.

    Each remote key and value that some query of a rank attends once, kept for the backward, and its dK and dV in the
    accumulation dtype, which has at least 4 bytes. None where some gradient is not asked for, or the dtype is unknown.
    """
    need, case = (trial.get("work") or {}).get("need_bytes"), trial["case"]
    inputs, itemsize = case.get("inputs"), ITEMSIZE.get(str(case.get("dtype")))
    grads = inputs.get("grads", "qkv") if isinstance(inputs, dict) else "qkv"
    if not need or not itemsize or grads != "qkv":
        return None
    return sum(need) * (1 + max(itemsize, 4) / itemsize)


def speedup(trial: Trial, base: Trial) -> float | None:
    """Step time of `base`, the same case on fewer ranks, over that of `trial`. Ratio, higher is better.

    Ideal is the ratio of their worlds.
    """
    return times_of(trial, base)


def strong_efficiency(trial: Trial, base: Trial) -> float | None:
    """Speed-up over the ratio of the worlds. Share of the ideal, 1 is ideal, higher is better."""
    faster = speedup(trial, base)
    return None if faster is None else faster * base["case"]["world"] / trial["case"]["world"]


def weak_efficiency(trial: Trial, base: Trial) -> float | None:
    """TFLOP/s a rank over that of `base`, the same tokens a rank on fewer ranks. 1 is ideal, higher is better.

    Arithmetic and not time is held equal: the work of a causal mask grows with the square of its tokens.
    """
    return _ratio(tflops_step(trial), tflops_step(base))


def exposed_s(lane: dict[str, Any]) -> float:
    """Exposed communication of one rank of a `timeline`: its waits together. Seconds, lower is better."""
    return sum(end - start for start, end, *_ in lane.get("waits") or [])


def compute_s(lane: dict[str, Any]) -> float:
    """Time of one rank of a `timeline` in forward and backward that is no wait. Seconds, no direction."""
    return sum(end - start for _, start, end in lane.get("phases") or []) - exposed_s(lane)


def relative_spread(trial: Trial, name: str = "step_s") -> float | None:
    """Slowest less fastest iteration over the median. Share, lower is better."""
    times = _measured(trial, name)
    return _ratio(max(times) - min(times), median(times)) if times else None


def exposed_ms(trial: Trial) -> float | None:
    """Median step less the median step whose exchange moves nothing. Milliseconds, lower is better."""
    whole, silent = _median(trial, "step_s"), _median(trial, "silent_step_s")
    return None if whole is None or silent is None else (whole - silent) * 1e3


def sent_mb(trial: Trial) -> float | None:
    """Bytes that the rank which sends most sends in one forward and backward. MB of 10^6, lower is better."""
    sent = _measured(trial, "bytes_sent")
    return max(sent) / 1e6 if sent else None


def messages(trial: Trial) -> float | None:
    """Messages that all ranks together sent in one forward and backward. Number, lower is better."""
    sent = _measured(trial, "messages")
    return sum(sent) if sent else None


def extra_gib(trial: Trial) -> float | None:
    """Peak memory of a step beyond inputs, outputs and gradients, fullest rank. GiB, lower is better."""
    extra = _measured(trial, "extra_bytes")
    return max(extra) / 2**30 if extra else None


def times_of(trial: Trial, other: Trial, name: str = "step_s") -> float | None:
    """Median time of `other` over that of `trial`. Ratio, above 1 where `trial` is faster."""
    return _ratio(_median(other, name), _median(trial, name))


def worst(trial: Trial, level: str = "required") -> dict[str, Any] | None:
    """The compared deviation of this level that is furthest beyond its budget."""
    compared = [
        d for d in trial.get("deviations") or [] if d.get("ratio") is not None and d.get("level", "required") == level
    ]
    return max(compared, key=lambda d: d["ratio"] if d["ratio"] == d["ratio"] else math.inf, default=None)


def worst_ratio(trial: Trial) -> float | None:
    """Largest error/budget over tensors, required level. 1 is the line, lower is better."""
    deviation = worst(trial)
    return None if deviation is None else deviation["ratio"]


def strict_verdict(trial: Trial) -> str | None:
    """PASS or FAIL of the strict level, None where no strict rule was judged."""
    deviation = worst(trial, "strict")
    return None if deviation is None else "PASS" if deviation["ratio"] <= LINE else "FAIL"


@dataclass(frozen=True)
class Column:
    """A metric as a column of the page: heading, unit, format and what is better ("lower", "higher"). One that is not
    `always` there is left out where no trial has it."""

    title: str
    unit: str
    of: Callable[[Trial], float | None]
    better: str = "lower"
    form: str = ".2f"
    always: bool = True


COLUMNS = (
    Column("forward", "ms", forward_ms),
    Column("forward", "TFLOP/s", tflops_forward, "higher", ".3g"),
    Column("fwd+bwd", "ms", step_ms),
    Column("fwd+bwd", "TFLOP/s", tflops_step, "higher", ".3g"),
    Column("fwd bound", "share", share_forward, "higher", always=False),
    Column("bound", "share", share_step, "higher", always=False),
    Column("exposed", "ms", exposed_ms, always=False),
    Column("extra", "GiB", extra_gib, always=False),
    Column("load", "max/mean", load_imbalance),
    Column("time", "max/mean", time_imbalance),
    Column("sent", "/need", sent_over_need),
    Column("error", "/budget", worst_ratio),
)


def _measured(trial: Trial, name: str) -> list[float] | None:
    return (trial.get("measurement") or {}).get(name) or None


def _milliseconds(trial: Trial, name: str) -> float | None:
    seconds = _median(trial, name)
    return None if seconds is None else seconds * 1e3


def _median(trial: Trial, name: str) -> float | None:
    times = _measured(trial, name)
    return median(times) if times else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _rate(trial: Trial, flops: float | None, milliseconds: float | None) -> float | None:
    world = trial["case"]["world"]
    return flops / (milliseconds / 1e3) / world / 1e12 if flops is not None and milliseconds and world else None


def _max_over_mean(values: list[float] | None) -> float | None:
    return max(values) / mean(values) if values and sum(values) else None
