"""Crew: processes that work off a list one item at a time; one that dies over an item is replaced, and told of."""

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
         lost: Callable[[Any], Any]) -> Iterator[Any]:
    """Results as they come. Each process makes its worker once, as `job(given)`; `lost(item)` stands for the result of
    an item over which a process died."""
    left, hands = iter(items), []
    try:
        hands = [hand for hand in (_started(left, job, given) for _ in range(size)) if hand]
        while hands:
            ready = wait([hand.connection for hand in hands])
            for hand in [hand for hand in hands if hand.connection in ready]:
                hands.remove(hand)
                try:
                    result = hand.connection.recv()
                except EOFError:
                    result, following = lost(hand.item), _started(left, job, given)
                else:
                    following = _given_more(hand, left)
                hands += [following] if following else []
                yield result
    finally:
        for hand in hands:
            hand.process.terminate()


def _started(left: Iterator[Any], job: Callable, given: Any) -> Hand | None:
    item = next(left, None)
    if item is None:
        return None
    mine, theirs = WORLD.Pipe()
    process = WORLD.Process(target=_serve, args=(theirs, job, given))
    with deaf():
        process.start()
    theirs.close()
    mine.send(item)
    return Hand(process, mine, item)


def _given_more(hand: Hand, left: Iterator[Any]) -> Hand | None:
    item = next(left, None)
    if item is None:
        hand.connection.close()
        return None
    hand.connection.send(item)
    return hand._replace(item=item)


def _serve(connection: Connection, job: Callable, given: Any) -> None:
    follow_parent()
    worker = job(given)
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        connection.send(worker(item))
