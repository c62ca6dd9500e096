"""Memory of one rank's step: what it takes beside inputs and results, and what docs/design.md allows it to take.

B batch rows, H heads, L local tokens, D head_dim; every size in bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ringcp.attention import Ring
from ringcp.exchange import KEYS, Receive, Send, Traffic
from ringcp.kernels.banded import Banded
from ringcp.merge import Merged, Total


class Deaf:
    """The exchange of one rank of a ring that is alone: what it should be sent is made up, in memory that is held as
    long as a process group's transfers are. `hoards` never lets go of any."""

    def __init__(self, rank: int, size: int, hoards: bool = False):
        self.rank, self.size, self.traffic, self.hoards = rank, size, Traffic(), hoards
        self.hoard: list[Tensor] = []

    def start(self, sends: list[Send], receives: list[Receive], channel: int = KEYS) -> Callable[[], list[Tensor]]:
        self.traffic.count(sends)
        arrived = [torch.empty(item.shape, dtype=item.dtype, device=item.device).fill_(0.5) for item in receives]
        leaving = [item.tensor for item in sends]
        self.hoard += arrived if self.hoards else []

        def wait() -> list[Tensor]:
            leaving.clear()
            return arrived

        return wait


class Hollow(Banded):
    """Gives back what a flash-attention kernel does, without numbers: what is held beside is the ring's own."""

    name = "hollow"

    def dense(self, q, k, v, call, scale):
        lse = q.new_zeros(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)
        return q.new_zeros(*q.shape[:3], v.shape[3]), lse

    def dense_backward(self, dout, q, k, v, out, lse, call, scale):
        return tuple(x.new_zeros(x.shape) for x in (q, k, v))

    def ragged(self, q, k, v, call, scale):
        return q.new_zeros(*q.shape[:2], v.shape[2]), q.new_zeros(q.shape[1], q.shape[0], dtype=torch.float32)

    def ragged_backward(self, dout, q, k, v, out, lse, call, scale):
        return tuple(x.new_zeros(x.shape) for x in (q, k, v))


class Storages(TorchDispatchMode):
    """The most memory that tensors made inside of it held at once, after any operation: a CPU does not count it."""

    def __init__(self):
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        before = {x.untyped_storage()._cdata for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and (held := tensor.untyped_storage())._cdata not in before:
                self.alive[held._cdata] = StorageWeakRef(held), held.nbytes()
        self.alive = {key: (where, size) for key, (where, size) in self.alive.items() if not where.expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return result


@contextmanager
def peak(device: str) -> Iterator[SimpleNamespace]:
    """`.bytes`, known behind the block: the most that was held inside of it beyond what was held before."""
    found = SimpleNamespace(bytes=0)
    if device == "cpu":
        with Storages() as storages:
            yield found
        found.bytes = storages.peak
        return
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    yield found
    torch.cuda.synchronize()
    found.bytes = torch.cuda.max_memory_allocated() - before


def step_bytes(ring: Ring, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> int:
    """The most that a forward and backward hold beyond inputs, out, lse, dq, dk and dv."""
    with torch.no_grad(), peak(q.device.type) as found:
        results = ring.forward(q, k, v)
        results += ring.backward(dout, q, k, v, *results, True)
    return found.bytes - sum(map(size, results))


def allowed_bytes(ring: Ring, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> int:
    """Two hops of keys and values, two fp32 pairs of their gradients, one fp32 accumulator each of out and dQ, and
    the workspace of one hop's kernel. A hop is as many keys as the rank holds."""
    wide = max(4, q.element_size())
    pair = (k.numel() + v.numel()) * wide
    return 2 * (size(k) + size(v)) + 2 * pair + (q.numel() + dout.numel()) * wide + workspace(ring, q, k, v, dout)


@torch.no_grad()
def workspace(ring: Ring, q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> int:
    """The most that a kernel holds for one hop beyond its inputs, but for dK and dV, which are pairs of their own."""
    most = 0
    for hop in (hop for hop in ring.plan.hops if hop.work is not None):
        keys, values = (torch.ones(x.shape[0], hop.work.keys, x.shape[1], x.shape[3], dtype=x.dtype, device=x.device)
                        .transpose(1, 2) for x in (k, v))
        out, lse = torch.zeros_like(dout), q.new_zeros(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
        with peak(q.device.type) as forward:
            ring.kernel.forward(q, keys, values, hop.work, ring.scale, merged(ring, q, v))
        sums = [total(ring, x) for x in (q, keys, values)]
        with peak(q.device.type) as backward:
            ring.kernel.backward(dout, q, keys, values, out, lse, hop.work, ring.scale, *sums)
        pair = sum(size(each.result()) for each in sums[1:])
        most = max(most, forward.bytes, backward.bytes - pair)
    return most


def merged(ring: Ring, q: Tensor, v: Tensor) -> Merged:
    part = ring.kernel.partial(q.dtype)
    return Merged(q.shape[0] * q.shape[2], q.shape[1], v.shape[3], part, torch.promote_types(q.dtype, torch.float32),
                  q.device)


def total(ring: Ring, like: Tensor) -> Total:
    part = ring.kernel.partial(like.dtype)
    return Total((like.shape[0] * like.shape[2], like.shape[1], like.shape[3]), part, part, like.device)


def size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
