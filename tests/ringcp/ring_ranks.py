"""Runs a function on several ranks as threads, and a whole ring attention with its gradients put together again."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import ringcp
from ringcp.exchange import Alone, Exchange, InProcess, Mailbox


def on_ranks(world: int, work: Callable[[Exchange], object]) -> list:
    """The results of `work(exchange)` by rank; the first exception is raised again."""
    return on_mailbox(Mailbox(world, timeout=20), work)


def on_mailbox(mailbox: Mailbox, work: Callable[[Exchange], object]) -> list:
    """The same over a mailbox of one's own."""
    world = mailbox.size
    results, errors = [None] * world, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(InProcess(rank, mailbox) if world > 1 else Alone())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@dataclass
class Whole:
    """Results of all ranks in whole-row order, and what each rank sent."""

    out: Tensor
    lse: Tensor
    dq: Tensor
    dk: Tensor
    dv: Tensor
    sent: list[int]


def ring(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, mask: ringcp.Mask, layout: ringcp.Layout, *,
         scale: float | None = None, kernel: str | None = None) -> Whole:
    """Forward and backward of whole tensors through a ring of `layout.world` threads."""

    def work(exchange: Exchange):
        local = [layout.shard(tensor, exchange.rank).requires_grad_() for tensor in (q, k, v)]
        out, lse = ringcp.ring_attention(*local, mask=mask, layout=layout, group=exchange, scale=scale, kernel=kernel)
        out.backward(layout.shard(dout, exchange.rank))
        return [out.detach(), lse, *(tensor.grad for tensor in local)], exchange.traffic.bytes

    parts = on_ranks(layout.world, work)
    return Whole(*(layout.unshard([tensors[index] for tensors, _ in parts]) for index in range(5)),
                 sent=[sent for _, sent in parts])


def draw(mask: ringcp.Mask, heads: int = 4, kv_heads: int = 2, head_dim: int = 8, value_dim: int = 8,
         dtype: torch.dtype = torch.float64, seed: int = 0) -> list[Tensor]:
    """Whole q, k, v and dout."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (heads, head_dim), (kv_heads, head_dim), (kv_heads, value_dim), (heads, value_dim)
    return [torch.randn(mask.batch, count, mask.tokens, width, generator=generator, dtype=torch.float64).to(dtype)
            for count, width in sizes]
