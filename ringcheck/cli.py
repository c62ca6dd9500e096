"""The console script: `ringcheck --cases packed` runs; `build`, `summary`, `compare`, `bless`, `export`, `merge` and
`watch` go on from results files, `bundle` packs a failure, `score` says what a set of cases catches."""

import os
import signal
import sys

from ringcheck import ROOT, __version__, own

COMMANDS = {"build": "reports.build", "summary": "reports.summary", "compare": "reports.compare.command",
            "bless": "reports.bless", "export": "reports.export", "merge": "reports.merge", "watch": "reports.serve",
            "serve": "harness.serve", "bundle": "harness.bundle", "score": "harness.score"}


class Unwritable(Exception):
    """What became of stdout."""


def main(arguments: list[str] | None = None) -> int:
    """Exit codes of harness.run: 0 passed, 1 a failure, 2 bad usage or nothing ran, 3 an error."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = answer(words)
        flush()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("ringcheck: interrupted", file=sys.stderr, flush=True)
        os._exit(3)  # an import that was interrupted in C makes the interpreter's own end a SIGINT, not a code
    except BrokenPipeError:
        silence()
        return 0
    except Unwritable as error:
        silence()
        print(f"ringcheck: stdout cannot be written: {error}", file=sys.stderr)
        return 3
    return code


def answer(words: list[str]) -> int:
    """Does what the words ask for."""
    if words == ["--version"]:
        flush(f"ringcheck {__version__}\n")
        return 0
    order_paths()
    command, rest = (words[0], words[1:]) if words and words[0] in COMMANDS else ("run", words)
    try:
        module = own(COMMANDS.get(command, "harness.run"))
    except ImportError as error:
        print(f"ringcheck: {error}", file=sys.stderr)
        return 2
    try:
        return module.main(rest)
    except SystemExit as end:
        flush()
        return end.code or 0
    except BrokenPipeError:
        raise
    except OSError:
        flush()  # raises where it was stdout that took no more
        raise


def flush(text: str = "") -> None:
    """Says `text` and all that is still to be said. Raises BrokenPipeError when whoever reads has left
    (`ringcheck --help | head -1`), Unwritable for anything else."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(error.strerror) from error


def silence() -> None:
    """Lets what is still buffered for stdout go nowhere, so that the interpreter ends in peace."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def order_paths() -> None:
    """Searches the working directory last: `--impl my_module:ring` is found, a user's `cases` hides none of ours.

    Interpreters started from here (the pool's ranks) are told the same through PYTHONPATH and PYTHONSAFEPATH.
    """
    here = os.path.realpath(os.getcwd())
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or here) != here]
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    if here != str(ROOT):
        sys.path.append(here)
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    kept = [path for path in given if os.path.realpath(path) not in (here, str(ROOT))]
    os.environ["PYTHONPATH"] = os.pathsep.join([*checkout(), *kept])
    os.environ["PYTHONSAFEPATH"] = "1"


def checkout() -> list[str]:
    """The root of this checkout, nothing when the distribution is installed."""
    return [str(ROOT)] if (ROOT / "pyproject.toml").exists() else []
