"""Crew: processes that work off a list one item at a time; one that dies over an item is replaced, and told of."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from harness.interrupts import deaf, follow_parent

WORLD = get_context("spawn")


class Hand(NamedTuple):
    """One process, and the item that it works on."""

    process: Any
    connection: Connection
    item: Any


def work(items: Iterable[Any], size: int, job: Callable[[Any], Callable[[Any], Any]], given: Any,
         lost: Callable[[Any], Any], then: Callable[[Any], Iterable[Any]] = lambda result: ()) -> Iterator[Any]:
    """Results as they come. Each process makes its worker once, as `job(given)`; `lost(item)` stands for the result of
    an item over which a process died; `then(result)` gives further items."""
    left, idle, busy = deque(items), [], []
    try:
        while left or busy:
            while left and len(busy) < size:
                hand = idle.pop() if idle else _started(job, given)
                hand.connection.send(left[0])
                busy.append(hand._replace(item=left.popleft()))
            ready = wait([hand.connection for hand in busy])
            for hand in [hand for hand in busy if hand.connection in ready]:
                busy.remove(hand)
                try:
                    result = hand.connection.recv()
                except EOFError:
                    result = lost(hand.item)
                else:
                    idle.append(hand)
                left.extend(then(result))
                yield result
    finally:
        for hand in busy + idle:
            hand.process.terminate()


def _started(job: Callable, given: Any) -> Hand:
    mine, theirs = WORLD.Pipe()
    process = WORLD.Process(target=_serve, args=(theirs, job, given))
    with deaf():
        process.start()
    theirs.close()
    return Hand(process, mine, None)


def _serve(connection: Connection, job: Callable, given: Any) -> None:
    follow_parent()
    worker = job(given)
    while True:
        try:
            connection.send(worker(connection.recv()))
        except (EOFError, BrokenPipeError):
            return
