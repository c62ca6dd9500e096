"""How the processes of a run end: Ctrl-C, which a terminal sends to all of them, is for the first alone to decide on,
and no other outlives it."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker


def prepare(preloaded: list[str]) -> None:
    """Starts the process that ranks are forked from, deaf to Ctrl-C from its first moment on, and waits for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preloaded)
    resource_tracker.ensure_running()  # forkserver starts it too, and it would let SIGINT through again
    with deaf():
        forkserver.ensure_running()
    first = context.Process(target=int, daemon=True)
    first.start()
    first.join()


@contextmanager
def deaf() -> Iterator[None]:
    """Ctrl-C waits; processes that are started meanwhile never hear it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """In a process that another one started: deaf to Ctrl-C, and gone with the other, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(multiprocessing.parent_process(),), daemon=True).start()


def _leave_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Lets what must not be left half done come to its end before Ctrl-C is raised."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if came:
        raise KeyboardInterrupt


@contextmanager
def ended_alike(torchrun: bool) -> Iterator[None]:
    """A request to end (SIGTERM) is taken as Ctrl-C, so that a run says how far it came. Not for torchrun, which has a
    way of its own to end ranks, nor outside of the main thread."""
    own = threading.current_thread() is threading.main_thread() and not torchrun
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if own else None
    try:
        yield
    finally:
        if own:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
