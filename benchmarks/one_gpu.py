"""Where a step's time goes on one GPU: `python benchmarks/one_gpu.py [--only steps,merge,share] [--json FILE]`.

Three kinds of measurement, each of which stands alone: one that fails leaves a line with its error, and the rest go on.

steps  one profiled forward and backward of `ring` at world 1 (causal 64k D128; window 1024, 64k, D256):
       step_ms and issue_ms, medians without the profiler: from the call until the GPU is idle, and until the host is
       free; then the profiled step's timeline (benchmarks/timelines.py). The profiler slows the host down, so times
       before and between kernels are upper bounds.
merge  GB/s that the merge of a partial result moves (all it reads and writes, lse too) beside a copy of the same dtype
share  each bench/* mask at world 1: time of the fastest kernel alone in the fewest calls over that of the ring's step,
       taken in turns; TFLOP/s by exact area; memory beyond inputs, outputs and gradients

Lines are appended to FILE (default results/one-gpu.jsonl), rows of a table go to stdout. Exit code 1 when one failed.
`--device cpu --tokens 1k` tries all of it without a GPU; there are no kernels to profile there.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ringcp  # noqa: E402
from benchmarks.timelines import timeline  # noqa: E402
from cases import bench  # noqa: E402
from cases.case import Case  # noqa: E402
from harness.adapters.ring import demand, ring_mask  # noqa: E402
from harness.arguments import natural, size  # noqa: E402
from harness.environment import environment  # noqa: E402
from ringcp.alone import alone, candidates  # noqa: E402
from ringcp.merge import merge_  # noqa: E402
from ringcp.plan import whole_work  # noqa: E402
from ringcp.spans import spans  # noqa: E402

PROFILED = "bench/causal-64k", "bench/window-1k-d256"
KINDS = "steps", "merge", "share"
LABEL = "ring step"
Measures = Iterator[tuple[str, Callable[[], dict]]]


@dataclass(frozen=True)
class Problem:
    """A bench case at world 1, with numbers: q `[1, Hq, S, D]`, k and v `[1, Hkv, S, D]`, dout as out."""

    case: Case
    mask: ringcp.Mask
    layout: ringcp.Layout
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor

    def step(self) -> list[torch.Tensor]:
        """out, lse, dq, dk, dv of the ring."""
        out, lse = ringcp.ring_attention(self.q, self.k, self.v, mask=self.mask, layout=self.layout)
        return [out, lse, *torch.autograd.grad(out, (self.q, self.k, self.v), self.dout)]

    def bounds(self) -> dict[str, Callable[[], None]]:
        """What each kernel needs alone for all of it, by name."""
        work, device = whole_work(self.mask, self.layout, 0, str(self.q.device)), self.q.device.type
        given = work, self.case.shape.head_dim**-0.5, self.q, self.k, self.v, self.dout
        return {kernel.name: _both(alone(kernel, *given)) for kernel in candidates(demand(self.case, device))}

    def flops(self) -> int:
        """Of a forward and backward, from the pairs that the mask allows."""
        found, shape = spans(self.mask), self.case.shape
        area = int((found[..., 1] - found[..., 0]).clamp(min=0).sum())
        return 14 * area * shape.heads * shape.head_dim


def problem(name: str, device: str, tokens: int | None) -> Problem:
    scenario = next(one for one in bench.CASES if one.name == name)
    scenario = scenario if tokens is None else scenario.resized(tokens)
    case = scenario.at(1, scenario.layouts[0], "bf16")
    shape, draw = case.shape, torch.Generator(device).manual_seed(7)
    made = [torch.randn(1, shape.tokens, heads, shape.head_dim, device=device, generator=draw).bfloat16()
            .transpose(1, 2) for heads in (shape.heads, shape.kv_heads, shape.kv_heads, shape.heads)]
    layout = ringcp.make_layout(case.layout, shape.tokens, 1)
    return Problem(case, ring_mask(case, case.rows()), layout, *(x.requires_grad_() for x in made[:3]), made[3])


def steps(device: str, tokens: int | None, laps: int) -> Measures:
    for name in PROFILED:
        yield name, lambda name=name: profiled(problem(name, device, tokens), laps)


def profiled(one: Problem, laps: int) -> dict:
    """Times of plain steps, and the timeline of one under the profiler."""
    device = one.q.device.type
    for _ in range(3):
        one.step()
    plain = [lap(one.step, device) for _ in range(laps)]
    kinds = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * (device == "cuda")
    idle(device)
    with torch.profiler.profile(activities=kinds) as profile:
        with torch.profiler.record_function(LABEL):
            one.step()
        idle(device)
    host = [e for e in profile.events() if e.name == LABEL and e.device_type == torch.autograd.DeviceType.CPU]
    events = [(e.time_range.start, e.time_range.end - e.time_range.start, e.name) for e in profile.events()
              if e.device_type == torch.autograd.DeviceType.CUDA and e.name != LABEL]
    return {"step_ms": 1e3 * statistics.median(whole for _, whole in plain),
            "issue_ms": 1e3 * statistics.median(issued for issued, _ in plain),
            "tflops": one.flops() / statistics.median(whole for _, whole in plain) / 1e12,
            **timeline(events, host[0].time_range.start if host else None)}


def merges(device: str, tokens: int | None, laps: int) -> Measures:
    count = tokens or 32 * 1024
    for dtype in (torch.bfloat16, torch.float32):
        for place in ("dense", "half", "scattered"):
            label = f"{str(dtype).removeprefix('torch.')} {place}"
            yield label, lambda dtype=dtype, place=place: merging(device, dtype, place, count, laps)


def merging(device: str, dtype: torch.dtype, place: str, tokens: int, laps: int) -> dict:
    """A running output of `dtype` takes a bf16 part, as kernels give it, at all rows, the last half or any half."""
    heads, width = 32, 128
    out, copy = (torch.randn(tokens, heads, width, device=device).to(dtype) for _ in range(2))
    live = tokens if place == "dense" else tokens // 2
    where = {"dense": slice(None), "half": slice(tokens - live, tokens)}.get(place)
    if where is None:
        where = torch.randperm(tokens, device=device)[:live]
    part = torch.randn(live, heads, width, device=device).bfloat16()
    lse, part_lse = torch.randn(heads, tokens, device=device), torch.randn(heads, live, device=device)
    moved = live * heads * (width * (2 * out.element_size() + part.element_size()) + 12)
    mine = repeated(lambda: merge_(out, lse, where, part, part_lse), device, laps)
    plain = repeated(lambda: copy.copy_(out), device, laps)
    found = {"gb_s": moved / mine / 1e9, "copy_gb_s": 2 * out.numel() * out.element_size() / plain / 1e9}
    return found | {"of_copy": found["gb_s"] / found["copy_gb_s"]}


def shares(device: str, tokens: int | None, laps: int) -> Measures:
    for scenario in bench.CASES:
        yield scenario.name, lambda name=scenario.name: share(problem(name, device, tokens), laps)


def share(one: Problem, laps: int) -> dict:
    device, offered = one.q.device.type, one.bounds()
    for _ in range(2):
        one.step()
    tried = {name: min(lap(run, device)[1] for _ in range(3)) for name, run in offered.items()}
    best = min(tried, key=tried.get)
    turns = [(lap(one.step, device)[1], lap(offered[best], device)[1]) for _ in range(laps)]
    step, bound = (statistics.median(each) for each in zip(*turns, strict=True))
    return {"step_ms": 1e3 * step, "bound_ms": 1e3 * bound, "bound_kernel": best, "share": bound / step,
            "tflops": one.flops() / step / 1e12, "extra_mib": extra(one)}


def extra(one: Problem) -> float | None:
    """MiB that a step holds at most beyond its inputs, outputs and gradients; None on CPU."""
    if one.q.device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    given = sum(x.numel() * x.element_size() for x in one.step())
    return (torch.cuda.max_memory_allocated() - before - given) / 2**20


def _both(forward: Callable[[], Callable]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            forward()()

    return run


def lap(run: Callable, device: str) -> tuple[float, float]:
    """Seconds until the host is free and until all is done, from an idle device."""
    idle(device)
    begun = time.perf_counter()
    run()
    issued = time.perf_counter() - begun
    idle(device)
    return issued, time.perf_counter() - begun


def repeated(run: Callable, device: str, laps: int, rounds: int = 20) -> float:
    """Seconds of one call among many in a row; the median of several rows, the first left out."""
    def several() -> None:
        for _ in range(rounds):
            run()

    return statistics.median([lap(several, device)[1] / rounds for _ in range(1 + laps)][1:])


def idle(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def row(one: dict) -> str:
    """A line of the table: kind, name and figures; the five longest kernels of a step below it."""
    figures = one.get("error") or "  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                                            for name, value in one["found"].items() if name != "kernels")
    longest = (one.get("found", {}).get("kernels") or [])[:5]
    below = [f"{'':8}{each['ms']:8.3f} ms  {each['count']:3} x  {each['name'][:70]}" for each in longest]
    return "\n".join([f"{one['kind']:6} {one['what']:24} {figures}"[:240], *below])


def main(argv: list[str]) -> int:
    ask = argparse.ArgumentParser(prog="one_gpu.py", description=__doc__.splitlines()[0])
    ask.add_argument("--only", default=",".join(KINDS), help="kinds, commas separate")
    ask.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    ask.add_argument("--tokens", type=size, help="resizes every problem, such as 8k")
    ask.add_argument("--laps", type=counted, default=8, help="timed laps of each")
    ask.add_argument("--json", type=Path, default=Path("results/one-gpu.jsonl"))
    given, makers = ask.parse_args(argv), dict(zip(KINDS, (steps, merges, shares), strict=True))
    unknown = set(given.only.split(",")) - set(KINDS)
    if unknown:
        ask.error(f"--only knows {', '.join(KINDS)}, not {', '.join(sorted(unknown))}")
    if given.device == "cuda" and not torch.cuda.is_available():
        ask.error("torch sees no GPU here; --device cpu --tokens 1k tries the script without one")
    given.json.parent.mkdir(parents=True, exist_ok=True)
    found = []
    with given.json.open("a") as file:
        header = {"kind": "run", "environment": environment(given.device, "alone", torch.get_num_threads())}
        print(json.dumps(header), file=file, flush=True)
        for kind in (kind for kind in KINDS if kind in given.only.split(",")):
            for what, measure in makers[kind](given.device, given.tokens, given.laps):
                found.append({"kind": kind, "what": what, **told(measure)})
                print(json.dumps(found[-1]), file=file, flush=True)
                print(row(found[-1]), flush=True)
    return int(any("error" in one for one in found))


def counted(text: str) -> int:
    if not natural(text):
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def told(measure: Callable[[], dict]) -> dict:
    try:
        return {"found": measure()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
