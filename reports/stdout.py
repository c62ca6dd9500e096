"""What a command says on stdout: when nobody can take it, one line and exit code 3, never a success."""

import os
import sys
from collections.abc import Callable
from functools import wraps

Main = Callable[[list[str] | None], int]


class Unsaid(Exception):
    """What became of stdout."""


def say(text: str) -> None:
    """Writes `text` as a line, all of it before this returns. Raises Unsaid for a full disk or a closed pipe."""
    try:
        print(text, end="" if text.endswith("\n") or not text else "\n", flush=True)
    except OSError as error:
        raise Unsaid(error.strerror or str(error)) from error


def guarded(name: str) -> Callable[[Main], Main]:
    """Makes `main` of a command end in 3, with one line on stderr, where it cannot say what it found."""
    def guard(main: Main) -> Main:
        @wraps(main)
        def run(arguments: list[str] | None = None) -> int:
            try:
                return main(arguments)
            except Unsaid as error:
                _silence()
                print(f"{name}: stdout cannot be written: {error}", file=sys.stderr)
                return 3
        return run
    return guard


def _silence() -> None:
    """Lets what is still buffered go nowhere, so that the interpreter ends in peace."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
