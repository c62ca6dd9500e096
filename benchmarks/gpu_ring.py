"""The ring on GPUs: `torchrun --nproc-per-node N benchmarks/gpu_ring.py [NAME ...]` prints TFLOP/s a GPU for each work.

Every work is also run as its kernel bound: the busiest rank's local queries against all the keys they need, in the
fewest calls, without exchange and merge.
"""

import sys
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

import ringcp
from ringcp import kernels
from ringcp.kernels.demand import Demand
from ringcp.spans import spans
from ringcp.work import Work

K = 1024


@dataclass(frozen=True)
class Bench:
    """One work: tokens of the whole row, heads, head_dim, layout and mask fields."""

    name: str
    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    layout: str = "zigzag"
    window: int | None = None
    document: int | None = None

    def mask(self) -> ringcp.Mask:
        documents = None
        if self.document:
            documents = torch.arange(self.tokens)[None] // self.document + 1
        return ringcp.Mask(tokens=self.tokens, window=self.window, documents=documents)


WORKS = (
    Bench("causal-64k", 64 * K, 32, 8, 128),
    Bench("causal-128k", 128 * K, 32, 8, 128),
    Bench("documents-4k", 64 * K, 32, 8, 128, document=4 * K),
    Bench("documents-4k-contiguous", 64 * K, 32, 8, 128, "contiguous", document=4 * K),
    Bench("window-1k-d256", 64 * K, 32, 16, 256, "contiguous", window=K),
    Bench("causal-d512", 32 * K, 16, 4, 512),
    Bench("documents-2k-d512", 32 * K, 16, 4, 512, "contiguous", document=2 * K),
)


def main(names: list[str]) -> None:
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank)
    if rank == 0:
        print(f"# matmul {matmul():.0f} TFLOP/s   {world} x {torch.cuda.get_device_name()}   torch {torch.__version__}")
        print(f"{'work':<26}    fwd   both | bound    fwd   both | share   fwd  both | GiB peak")
    for bench in WORKS:
        if not names or bench.name in names:
            try:
                run(bench, rank, world)
            except ValueError as error:
                if rank == 0:
                    print(f"{bench.name:<26} {error}")
    dist.destroy_process_group()


def run(bench: Bench, rank: int, world: int) -> None:
    mask, layout = bench.mask(), ringcp.make_layout(bench.layout, bench.tokens, world)
    whole = spans(mask)
    area = int((whole[..., 1] - whole[..., 0]).clamp(min=0).sum())
    flops = 4 * area * bench.heads * bench.head_dim / world
    local = len(layout.positions[rank])
    q, k, v, dout = (as_projected(local, heads, bench.head_dim)
                     for heads in (bench.heads, bench.kv_heads, bench.kv_heads, bench.heads))

    def forward():
        return ringcp.ring_attention(q, k, v, mask=mask, layout=layout)[0]

    def both():
        torch.autograd.grad(forward(), (q, k, v), dout)

    torch.cuda.reset_peak_memory_stats()
    seconds = timed(forward), timed(both)
    peak = torch.cuda.max_memory_allocated() / 2**30
    bound = kernel_bound(bench, mask, layout, rank, q, dout)
    rates = [flops * factor / each / 1e12 for factor, each in zip((1, 3.5, 1, 3.5), (*seconds, *bound), strict=True)]
    if rank == 0:
        print(f"{bench.name:<26} {rates[0]:6.0f} {rates[1]:6.0f} | bound {rates[2]:6.0f} {rates[3]:6.0f} | "
              f"share {rates[0] / rates[2]:5.2f} {rates[1] / rates[3]:5.2f} | {peak:5.1f}", flush=True)


def as_projected(tokens: int, heads: int, head_dim: int) -> torch.Tensor:
    """[1, H, L, D] as a model's projections lay it out: tokens before heads in memory."""
    made = torch.randn(1, tokens, heads, head_dim, device="cuda", dtype=torch.bfloat16)
    return made.transpose(1, 2).requires_grad_()


def kernel_bound(bench, mask, layout, rank, q, dout) -> tuple[float, float]:
    """Seconds of the local queries against all keys of the row as one piece of work."""
    positions = layout.positions[rank]
    found = spans(mask)[:, :, positions]
    keys = torch.zeros(mask.tokens + 1, dtype=torch.int64)
    live = found[..., 1] > found[..., 0]
    keys.index_add_(0, found[..., 0][live], torch.ones(int(live.sum()), dtype=torch.int64))
    keys.index_add_(0, found[..., 1][live], -torch.ones(int(live.sum()), dtype=torch.int64))
    needed = (keys.cumsum(0)[:-1] > 0).nonzero()[:, 0]
    work = Work(torch.searchsorted(needed, found.contiguous()), len(needed), "cuda")
    kernel = kernels.select(Demand("cuda", q.dtype, bench.head_dim, bench.head_dim, 1, mask.window is not None))
    k, v = (torch.randn(1, bench.kv_heads, len(needed), bench.head_dim, device="cuda", dtype=q.dtype) for _ in range(2))
    scale = bench.head_dim**-0.5
    with torch.no_grad():
        parts = [parts_of(call, q, k, v, dout) for layer in work.calls for call in layer]

        def forward():
            return [kernel._run(*each[:3], call, scale) for call, each in parts]

        results = forward()

        def backward():
            for (call, (queries, keys_, values, grads)), (out, lse) in zip(parts, results, strict=True):
                kernel._run_backward(grads, queries, keys_, values, out, lse, call, scale)

        first = timed(forward)
        return first, first + timed(backward)


def parts_of(call, q, k, v, dout):
    tokens = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v, dout)]
    return call, [x[where].contiguous() for x, where in
                  zip(tokens, (call.queries, call.keys, call.keys, call.queries), strict=True)]


def timed(work, repeats: int = 10) -> float:
    """Median seconds, the slowest rank's."""
    for _ in range(2):
        work()
    laps = []
    for _ in range(repeats):
        dist.barrier()
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        laps.append(time.perf_counter() - started)
    slowest = torch.tensor(laps, device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(slowest.median())


def matmul() -> float:
    """TFLOP/s of a bf16 matrix product on random data."""
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        a @ b
    torch.cuda.synchronize()
    return 20 * 2 * 8192**3 / (time.perf_counter() - started) / 1e12


if __name__ == "__main__":
    main(sys.argv[1:])
