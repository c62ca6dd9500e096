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
WIDEST, MOST = 400, 60
PLACE = "in the implementation's "
FOREIGN = ("packages/torch/", "pytorch/torch/", "packages/triton/", "packages/cutlass/", "packages/numpy/")
INSTALLED = ("site-packages", "dist-packages")
SUITE = str(Path(__file__).parent)
JUDGED = tuple(str(Path(SUITE, part)) for part in ("adapters", "sabotage"))


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
    return {rank: ("(the process was stopped)\n" if rank in stopped else "") + below(stack)
            for rank, stack in found.items()}


def of_thread(ident: int) -> str:
    """The stack of a thread of this process in faulthandler's form."""
    frame = sys._current_frames().get(ident)
    return _stack(traceback.extract_stack(frame)) if frame else ""


def last_call(stack: str) -> str:
    """The innermost call that is neither torch's nor Python's own: "exchange (ring.py:31)"."""
    own = _own(stack) or _frames(stack)
    stopped = "stopped " if stack.startswith("(the process was stopped)") else ""
    if not own:
        return f"{stopped}without a stack"
    return f"{stopped}in {own[0]['call']} ({Path(own[0]['file']).name}:{own[0]['line']})"


def raised(error: BaseException) -> str:
    """One line about an exception: its type, the beginning of its message and the own call that it came from."""
    if isinstance(error.__cause__, StopIteration):
        error = error.__cause__
    noted = [note for note in getattr(error, "__notes__", ()) if isinstance(note, str) and note.startswith(PLACE)]
    place = noted[0] if noted else last_call(_stack(traceback.extract_tb(error.__traceback__)))
    return f"{said(error)} {place}"


def raised_below(error: BaseException) -> str:
    """The same for who called what raised: its own frame is never the place."""
    stack = _stack(traceback.extract_tb(error.__traceback__)[1:])
    return f"{said(error)} {last_call(stack)}" if _own(stack) else said(error)


def foreign(error: BaseException, folder: Path) -> bool:
    """Whether an exception passed through other code than torch's, Python's and that of the files in `folder`."""
    stack = _stack(traceback.extract_tb(error.__traceback__))
    return any(Path(frame["file"]).parent != folder for frame in _own(stack))


def said(error: BaseException) -> str:
    """The type of an exception and the beginning of its message, as one line that a terminal can show."""
    if isinstance(error.__cause__, StopIteration | StopAsyncIteration):  # which a generator of ours made a RuntimeError
        error = error.__cause__
    text = printable(" ".join(_message(error).split()))
    short = text if len(text) <= LONGEST else text[:LONGEST] + "..."
    return f"{type(error).__name__}{': ' if short else ''}{short}"


def printable(text: str) -> str:
    """Characters that would act on a terminal, or that no file can hold, as escapes."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def told(error: BaseException) -> str:
    """The traceback from the first frame that is not the suite's own, cut to what can be read."""
    trace = error.__traceback__
    while trace and _suite(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = "".join(traceback.format_exception(type(error), error, trace or error.__traceback__)).splitlines()
    lines = [line if len(line) <= WIDEST else line[:WIDEST] + "..." for line in lines]
    if len(lines) <= MOST:
        return "\n".join(lines)
    return "\n".join([*lines[:MOST // 2], f"({len(lines) - MOST} lines left out)", *lines[-(MOST // 2):]])


def below(stack: str) -> str:
    """A stack, innermost frame first, up to the outermost frame that is not the suite's own; all of it without one."""
    lines = stack.splitlines(keepends=True)
    own = [number for number, line in enumerate(lines) if (frame := FRAME.match(line.rstrip("\n")))
           and not _suite(frame["file"]) and not outside(frame["file"])]
    return "".join(lines[:own[-1] + 1]) if own else stack


def outside(file: str) -> bool:
    """Whether code is torch's, Python's own or in no file. What is installed beside them is an implementation's."""
    if file.startswith("<") or any(part in file for part in FOREIGN):
        return True
    return "/lib/python" in file and not any(part in file for part in INSTALLED)


def _suite(file: str) -> bool:
    """Whether a file is the suite's own and no implementation."""
    return file.startswith(SUITE) and not file.startswith(JUDGED)


def _stack(frames: list[traceback.FrameSummary]) -> str:
    """Innermost frame first."""
    return "".join(f'  File "{item.filename}", line {item.lineno} in {item.name}\n' for item in frames[::-1])


def _frames(stack: str) -> list[re.Match]:
    return [match for match in map(FRAME.match, stack.splitlines()) if match]


def _own(stack: str) -> list[re.Match]:
    """Frames that are neither torch's nor Python's own."""
    return [frame for frame in _frames(stack) if not outside(frame["file"])]


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be made)"


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
