"""Talks JSON lines with `ringcheck serve`, a process of its own: pytest never imports the suite. Stdlib only."""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-P", "-m", "ringcheck", "serve"]
START_S = 120.0
GRACE_S = 30.0


class ServerError(Exception):
    """The server refused a request, died or did not answer; the text says which."""


class Server:
    """The process that owns the ranks. Started at the first request and again after it died."""

    def __init__(self, directory: Path, command: list[str] | None = None):
        self.directory, self.command = directory, command or COMMAND
        self._process: subprocess.Popen | None = None
        self._selection: dict[str, Any] | None = None

    def hello(self, implementation: str) -> dict[str, Any]:
        """Versions of what runs the cases; refuses an implementation that cannot be loaded."""
        return self._ask({"op": "hello", "impl": implementation}, START_S)

    def look(self, **selection: Any) -> list[dict[str, Any]]:
        """The cases of a selection, for cases that are not going to run."""
        return self._ask({"op": "list", **selection}, START_S)["cases"]

    def list(self, **selection: Any) -> list[dict[str, Any]]:
        """The cases of a selection (cases, worlds, dtypes, seed)."""
        self._selection = {"op": "list", **selection}
        return self._ask(self._selection, START_S)["cases"]

    def run(self, case: str, implementation: str, timeout: float, **timing: int) -> dict[str, Any]:
        """The trial record of one case; `iters` and `warmup` where it is to be timed."""
        request = {"op": "run", "id": case, "impl": implementation, "timeout": timeout, **timing}
        return self._ask(request, timeout + GRACE_S)["record"]

    def stop(self) -> None:
        """Ends the server and its ranks, by force when it does not go by itself."""
        if self._process is None:
            return
        try:
            self._process.stdin.write('{"op": "stop"}\n')
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            pass
        self._kill()

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        if self._process is None:
            self._start()
            if self._selection and request["op"] == "run":
                self._ask(self._selection, START_S)
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            self._fail(f"no answer to {request['op']!r} within {seconds:.0f} s")
        except OSError:
            answer = None
        if answer is None:
            self._fail(f"the server ended during {request['op']!r}")
        if "error" in answer:
            raise ServerError(str(answer["error"]))
        return answer

    def _start(self) -> None:
        path = [str(ROOT)] if (ROOT / "pyproject.toml").exists() else []
        path += filter(None, [os.environ.get("PYTHONPATH")])
        environment = {**os.environ, **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            self.command,
            cwd=self.directory,
            env=environment,
            text=True,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True).start()

    def _fail(self, what: str) -> None:
        self._kill()
        self._stderr.seek(0)
        said = "".join(self._stderr.readlines()[-30:]).strip()
        raise ServerError(f"ringcheck server: {what}" + (f"; its last words:\n{said}" if said else ""))

    def _kill(self) -> None:
        process, self._process = self._process, None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def _read(stream, answers: queue.Queue) -> None:
    """Puts every JSON line of the server on the queue, None at its end; anything else is left out."""
    for line in stream:
        try:
            answer = json.loads(line)
        except ValueError:
            continue
        if isinstance(answer, dict):
            answers.put(answer)
    answers.put(None)
