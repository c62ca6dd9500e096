"""Delays on the streams of a GPU: work that is only right because one stream happens to be ahead goes wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

CYCLES = 1.7e9
"""Of a GPU's clock, about, in a second: delays need no precision."""


def occupy(seconds: float) -> None:
    """The current stream does nothing for a while; the host goes on."""
    torch.cuda._sleep(int(seconds * CYCLES))


@contextmanager
def delayed(seconds: Callable[[str], float]) -> Iterator[None]:
    """The current stream is held up at once, and every stream that is made the current one, whenever that happens (on
    the way back, too). `seconds` tells how long, by a name for the occasion."""
    chosen, count = torch.cuda.set_stream, 0

    def choose(stream: torch.cuda.Stream) -> None:
        nonlocal count
        count += 1
        chosen(stream)
        occupy(seconds(f"stream {count}"))

    occupy(seconds("stream 0"))
    torch.cuda.set_stream = choose
    try:
        yield
    finally:
        torch.cuda.set_stream = chosen
