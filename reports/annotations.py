"""Failures as GitHub workflow commands, which a job's log turns into annotations of the run."""

from collections.abc import Callable

from reports import view
from reports.metrics import Trial
from reports.record import Results
from reports.visible import first_line, line

LIMIT = 10
TOLD = ("requirement", "expected", "actual", "place", "again")
DATA = {ord("%"): "%25", ord("\r"): "%0D", ord("\n"): "%0A"}
PROPERTY = {**DATA, ord(":"): "%3A", ord(","): "%2C"}


def annotations(files: list[Results], limit: int = LIMIT) -> list[str]:
    """One `::error` line for each of the first `limit` different failures, one `::warning` a cut run and one for all
    that could not be read, and a `::notice` that counts the failures behind the limit.

    Ten errors and ten notices a step are what GitHub shows, so that the count is no error itself. Failures of one
    implementation with the same first line are one line.
    """
    files = view.named(files)
    trials = view.latest(files)
    alike = grouped(trials, view.labels(trials))
    lines = [failure(label, found) for (label, _, _), found in list(alike.items())[:limit]]
    lines += [command("warning", "ringcheck: not a whole run", f"{line(one.path)}: {one}")
              for one in view.cuts(files)[:LIMIT]]
    if unread := view.unread(files):
        told = [line(words) for words in view.few_lines(view.left_out(files), LIMIT)]
        lines.append(command("warning", "ringcheck: damaged results", "\n".join([unread, *told])))
    rest = list(alike.values())[limit:]
    if rest:
        count = sum(map(len, rest))
        told = f"{view.some(count, 'more failure')} of {len(view.failures(trials))} in the summary of the job"
        lines.append(command("notice", "ringcheck", told))
    return lines


def command(kind: str, title: str, message: str) -> str:
    """A workflow command, with `%`, line ends and, in the title, `:` and `,` escaped as GitHub asks."""
    return f"::{kind} title={title.translate(PROPERTY)}::{message.translate(DATA)}"


def grouped(trials: list[Trial], label: Callable[[Trial], str]) -> dict[tuple[str, str, str], list[Trial]]:
    """Failures by implementation, verdict and first line, failures before errors."""
    found: dict[tuple[str, str, str], list[Trial]] = {}
    for trial in view.failures(trials):
        found.setdefault((label(trial), trial["verdict"], told(trial)), []).append(trial)
    return found


def told(trial: Trial) -> str:
    """What is wrong, in one line."""
    headline = (trial.get("diagnosis") or {}).get("headline")
    return first_line(headline or trial.get("reason")) or "no reason given"


def failure(label: str, alike: list[Trial]) -> str:
    """The command for failures that are told alike, with the details of the first."""
    first, ids = alike[0], [trial["case"]["id"] for trial in alike]
    details = first.get("diagnosis") or {}
    lines = [told(first), *(f"{name}: {line(details[name])}" for name in TOLD if details.get(name))]
    lines += [f"{len(ids)} cases: {line(view.few(ids))}"] if len(ids) > 1 else []
    return command("error", f"{first['verdict']} {line(ids[0], 120)} ({line(label, 80)})", "\n".join(lines))
