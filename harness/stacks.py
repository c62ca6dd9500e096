"""Where a rank is right now: stacks of worker processes and of threads, and the call that names them."""

import faulthandler
import os
import re
import signal
import sys
import time
import traceback
from pathlib import Path

FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<call>.+)$')
LONGEST = 160
FOREIGN = ("/torch/", "/lib/python", "<frozen")


def offer(path: str) -> None:
    """In a worker: on SIGUSR1 writes the stack to `path`, even while the interpreter waits in C code."""
    faulthandler.register(signal.SIGUSR1, file=open(path, "a", buffering=1), all_threads=True)


def collect(processes: dict[int, tuple[int, str]], wait: float = 0.5) -> dict[int, str]:
    """Stacks of living workers, rank -> (pid, path): rank -> stack, innermost frame first; "" when none came.

    A stopped worker is continued for it, so call this only before a kill.
    """
    stopped = {rank for rank, (pid, _) in processes.items() if _state(pid) == "T"}
    for pid, _ in processes.values():
        _signal(pid, signal.SIGUSR1)
    for rank in stopped:
        _signal(processes[rank][0], signal.SIGCONT)
    end = time.monotonic() + wait
    while time.monotonic() < end and not all(Path(path).stat().st_size for _, path in processes.values()):
        time.sleep(0.01)
    time.sleep(0.02)
    found = {rank: _main_thread(Path(path).read_text()) for rank, (_, path) in processes.items()}
    return {rank: ("(the process was stopped)\n" if rank in stopped else "") + stack for rank, stack in found.items()}


def of_thread(ident: int) -> str:
    """The stack of a thread of this process in faulthandler's form."""
    frame = sys._current_frames().get(ident)
    frames = reversed(traceback.extract_stack(frame)) if frame else ()
    return "".join(f'  File "{item.filename}", line {item.lineno} in {item.name}\n' for item in frames)


def last_call(stack: str) -> str:
    """The innermost call that is neither torch's nor Python's own: "exchange (ring.py:31)"."""
    frames = [match for match in map(FRAME.match, stack.splitlines()) if match]
    own = [frame for frame in frames if not any(part in frame["file"] for part in FOREIGN)] or frames
    stopped = "stopped " if stack.startswith("(the process was stopped)") else ""
    if not own:
        return f"{stopped}without a stack"
    return f"{stopped}in {own[0]['call']} ({Path(own[0]['file']).name}:{own[0]['line']})"


def raised(error: BaseException) -> str:
    """One line about an exception: its type, its first line and the own call that it came from."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    stack = "".join(f'  File "{item.filename}", line {item.lineno} in {item.name}\n' for item in frames)
    text = " ".join(str(error).split())
    short = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return f"{type(error).__name__}{': ' if short else ''}{short} {last_call(stack)}"


def _main_thread(dump: str) -> str:
    """faulthandler writes the oldest thread last."""
    parts = re.split(r"^(?:Current thread|Thread) .*\n", dump, flags=re.MULTILINE)
    return parts[-1]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "?"


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
