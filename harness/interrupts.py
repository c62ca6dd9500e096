"""Ctrl-C, which a terminal sends to every process of a run: this one alone decides how the run ends."""

import multiprocessing
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
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    first = context.Process(target=int, daemon=True)
    first.start()
    first.join()


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
