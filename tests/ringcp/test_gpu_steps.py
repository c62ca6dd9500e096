"""What a training step may cost on a GPU beside its kernels: no wait of the host, no compilation for new documents, and
nothing that a CUDA graph cannot hold. World 1; ranks as threads where a ring of several is needed."""

import sys
from collections.abc import Callable
from threading import Lock

import pytest
import torch
from torch import Tensor

import ringcp
from ringcp import kernels
from ringcp.attention import Ring
from ringcp.exchange import Mailbox
from ringcp.kernels.demand import Demand
from ringcp.merge import merge_
from ringcp.plan import make_plan
from tests.ringcp.ring_ranks import on_mailbox

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

TOKENS = 2048
WIDTHS = {"fa4": 128, "fa2": 128, "cudnn": 128, "ffpa": 512, "flex": 128, "eager": 64}
DOCUMENTS = torch.tensor([1] * 700 + [2] * 37 + [3] * 800 + [4] * 511)[None]
IMAGES = ((torch.arange(TOKENS) % 500) > 380).long()[None]
MASKS = {"causal": {}, "documents": {"documents": DOCUMENTS}, "window": {"window": 300, "documents": DOCUMENTS},
         "images": {"window": 300, "token_types": IMAGES}, "padding": {"padding": (torch.arange(TOKENS) > 1900)[None]}}
every = pytest.mark.parametrize("kernel, name", [(kernel, name) for kernel in WIDTHS for name in MASKS])


@every
def test_a_step_is_captured_and_replayed_with_other_numbers(kernel, name):
    mask, static = taken(kernel, name), numbers(kernel, 0)
    graph, results = captured(step_of(kernel, mask), static)
    for seed in (1, 2):
        fresh = numbers(kernel, seed)
        with torch.no_grad():
            for old, new in zip(static, fresh, strict=True):
                old.copy_(new)
        graph.replay()
        alike([x.clone() for x in results], step_of(kernel, mask)(*fresh))


@every
def test_a_later_step_never_waits_for_the_gpu(kernel, name):
    """The second and later forwards of a batch, as all layers but the first are, and of an equal mask."""
    mask, again, tensors = taken(kernel, name), taken(kernel, name), numbers(kernel, 0)
    steps = step_of(kernel, mask), step_of(kernel, mask), step_of(kernel, again)
    steps[0](*tensors)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [step(*tensors) for step in steps]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    alike(found[0], found[2])


def test_a_wait_for_the_gpu_would_show():
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError):
            torch.ones(1, device="cuda").item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize("kernel", WIDTHS)
def test_new_documents_compile_nothing(kernel, window):
    """Of any lengths but such as lie within one tile of a kernel as a whole, which FlashAttention-4 tells apart."""
    fields = [{"documents": pack(seed)} | ({"window": window} if window else {}) for seed in range(8)]
    masks, tensors = [ringcp.Mask(tokens=TOKENS, **each) for each in fields], numbers(kernel, 0)
    refusal(kernel, masks[0])
    for mask in masks[:3]:
        step_of(kernel, mask)(*tensors)
    before = compiled()
    for mask in masks[3:]:
        step_of(kernel, mask)(*tensors)
    print("COMPILED", kernel, before)
    assert compiled() == before
    assert {"fa4": before["cute"], "ffpa": before["cute"], "flex": before["dynamo"]}.get(kernel, 1) > 0


def test_the_fused_merge_is_compiled_once_for_all_sizes():
    out, lse = torch.zeros(2048, 4, 64, device="cuda"), torch.zeros(4, 2048, device="cuda")
    for indexed in (False, True):
        before = compiled()["triton"]
        for first, count in ((0, 2048), (16, 32), (1, 1), (3, 999), (0, 17), (5, 16)):
            place = torch.arange(first, first + count, device="cuda") if indexed else slice(first, first + count)
            merge_(out, lse, place, torch.ones(count, 4, 64, device="cuda"), torch.zeros(4, count, device="cuda"))
        assert compiled()["triton"] - before <= 1


@pytest.mark.parametrize("world", [2, 3])
@every
def test_ranks_as_threads_on_one_gpu_agree_with_the_whole(kernel, name, world):
    """Through `Ring` itself: autograd has one thread a GPU, where the backwards of all ranks would wait in line."""
    mask, whole = taken(kernel, name), numbers(kernel, 0)
    if kernel == "flex" and (name, world) != ("images", 2):
        pytest.skip("compiles every hop anew, for minutes: once is enough")
    layout, one = ringcp.make_layout("zigzag", TOKENS, world), OneAtATime(kernels.named(kernel))

    def work(exchange):
        plan = make_plan(mask, layout, exchange.rank, "cuda")
        q, k, v, dout = (layout.shard(x.detach(), exchange.rank) for x in whole)
        ring = Ring(plan, exchange, one, q.shape[-1] ** -0.5)
        out, lse = ring.forward(q, k, v)
        grads = ring.backward(dout, q, k, v, out, lse, True)
        return [out, lse, *(grad.to(q.dtype) for grad in grads)]

    with torch.no_grad():
        parts = on_mailbox(Mailbox(world, timeout=200), work)
    alike(step_of("eager", mask)(*whole), [layout.unshard(list(each)) for each in zip(*parts, strict=True)])


class OneAtATime:
    """A kernel that threads share: compilers of some do not take two at once."""

    def __init__(self, kernel):
        self.kernel, self.name, self.lock, self.partial = kernel, kernel.name, Lock(), kernel.partial

    def forward(self, *given) -> None:
        with self.lock:
            self.kernel.forward(*given)

    def backward(self, *given) -> None:
        with self.lock:
            self.kernel.backward(*given)


def taken(kernel: str, name: str) -> ringcp.Mask:
    mask = ringcp.Mask(tokens=TOKENS, **MASKS[name])
    refusal(kernel, mask)
    return mask


def refusal(kernel: str, mask: ringcp.Mask) -> None:
    """Skips what the kernel does not take."""
    width = WIDTHS[kernel]
    reason = kernels.named(kernel).refuses(Demand("cuda", torch.bfloat16, width, width, 1, mask.rules, mask.tokens))
    if reason:
        pytest.skip(f"kernel {kernel} {reason}")


def numbers(kernel: str, seed: int) -> list[Tensor]:
    """q, k, v that want gradients, and dout, laid out as a model's projections are."""
    draw, width = torch.Generator("cuda").manual_seed(seed), WIDTHS[kernel]
    made = [torch.randn(1, TOKENS, heads, width, device="cuda", generator=draw).bfloat16().transpose(1, 2)
            for heads in (4, 2, 2, 4)]
    return [*(x.requires_grad_() for x in made[:3]), made[3]]


def step_of(kernel: str, mask: ringcp.Mask) -> Callable[..., list[Tensor]]:
    """A forward and backward: out, lse, dq, dk, dv."""
    layout = ringcp.make_layout("zigzag", mask.tokens, 1)

    def step(q, k, v, dout):
        out, lse = ringcp.ring_attention(q, k, v, mask=mask, layout=layout, kernel=kernel)
        return [out.detach(), lse, *torch.autograd.grad(out, (q, k, v), dout)]

    return step


def captured(step: Callable, tensors: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step(*tensors)
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(*tensors)
    return graph, results


def alike(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Equal but for the rounding of bf16 and for sums in another order."""
    for name, a, b in zip(("out", "lse", "dq", "dk", "dv"), found, wanted, strict=True):
        assert torch.equal(a.isneginf(), b.isneginf()), f"{name}: other rows without keys"
        a, b = (x.float().nan_to_num(0.0, 0.0, 0.0) for x in (a, b))
        off = ((a - b).abs().max() / b.abs().max()).item()
        assert off < 0.03, f"{name} is off by {off:.3f} of the largest value"


def pack(seed: int) -> Tensor:
    """[1, S] documents of 200 to 700 tokens."""
    draw, ids = torch.Generator().manual_seed(seed), []
    while len(ids) < TOKENS:
        ids += [len(ids) + 1] * int(torch.randint(200, 700, (), generator=draw))
    return torch.tensor(ids[:TOKENS])[None]


def compiled() -> dict[str, int]:
    """Kernels compiled so far: by the CuTe DSL (its packages' own caches), by dynamo, and the merge by Triton."""
    caches = {}
    for name, module in list(sys.modules.items()):
        if name.startswith(("flash_attn.cute", "ffpa_attn.cute")):
            for member in list(vars(module).values()):
                for field, value in list((getattr(member, "__dict__", None) or {}).items()):
                    if field.startswith("compile_cache"):
                        caches[id(value)] = value
    dynamo, merge = sys.modules.get("torch._dynamo.utils"), sys.modules.get("ringcp.kernels.merge_triton")
    return {"cute": sum(len(value.cache) for value in caches.values()),
            "dynamo": dynamo.counters["stats"]["unique_graphs"] if dynamo else 0,
            "triton": sum(len(each[0]) for each in merge._merge.device_caches.values()) if merge else 0}
