"""`python -m harness.run` and `torchrun -m harness.run`: starts a run; Ctrl-C ends it also while torch is imported."""

import os
import signal
import sys

INTERRUPTED = 3


def main(argv: list[str] | None = None) -> int:
    """Runs what the arguments ask for (harness/running.py). Returns the exit code: 0 all passed, 1 a failure, 2 bad
    usage or nothing ran, 3 an error or an interruption."""
    from harness import running

    return running.main(argv)


def run() -> None:
    """The same for a process of its own, which it ends."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ringcheck: interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)  # an import that was interrupted in C makes the interpreter's own end a SIGINT


if __name__ == "__main__":
    run()
