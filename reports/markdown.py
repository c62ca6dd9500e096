"""Results as Markdown for the summary of a CI job: failures first, cut by whole rows to the size that one may have."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from reports import metrics, view
from reports.annotations import grouped
from reports.metrics import Trial
from reports.record import Results
from reports.visible import line

LIMIT = 1 << 20
LEAST = 1 << 12
RESERVED = 600
WARNED = 20
MARKUP = {ord(one): f"&#{ord(one)};" for one in "&<>|`*_~[]!#@\\$"}


@dataclass(frozen=True)
class Section:
    """A table under a heading: `what` names its rows when some are left out; `folded` hides it behind its heading."""

    title: str
    what: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    folded: bool = False

    def opening(self) -> str:
        line = "|" + "|".join(f" {head} " for head in self.heads) + "|\n|" + "---|" * len(self.heads) + "\n"
        title = f"<details><summary>{self.title}</summary>" if self.folded else f"### {self.title}"
        return f"\n{title}\n\n{line}"

    def closing(self) -> str:
        return "\n</details>\n" if self.folded else ""


def markdown(files: list[Results], limit: int = LIMIT) -> str:
    """Markdown of at most `limit` bytes in UTF-8, one MiB as GitHub takes it. Sections are filled in their order; what
    does not fit is left out by whole rows, and the last line counts it. Raises ValueError below 4096 bytes."""
    if limit < LEAST:
        raise ValueError(f"a summary takes at least {LEAST} bytes, the limit is {limit}")
    files = view.named(files)
    trials = view.latest(files)
    text, left, lost = head(trials, files), limit, {}
    left -= len(text.encode()) + RESERVED
    for section in filter(lambda one: one.rows, sections(trials, files)):
        part, taken = fitted(section, left)
        text, left = text + part, left - len(part.encode())
        if taken < len(section.rows):
            lost[section.what] = len(section.rows) - taken, len(section.rows)
    if lost:
        told = ", ".join(f"{out} of {all} {what}" for what, (out, all) in lost.items())
        text += f"\n**Left out, so that this fits into {limit:,} bytes:** {told}.\n"
    return text


def fitted(section: Section, left: int) -> tuple[str, int]:
    """As many rows of a section as go into `left` bytes, and how many these are; nothing of it where none does."""
    lines = [row(cells) for cells in section.rows]
    frame = len((section.opening() + section.closing()).encode())
    taken = sum(size <= left for size in accumulate((len(one.encode()) for one in lines), initial=frame)) - 1
    return (section.opening() + "".join(lines[:taken]) + section.closing(), taken) if taken > 0 else ("", 0)


def row(cells: tuple[str, ...]) -> str:
    return "|" + "|".join(f" {cell} " for cell in cells) + "|\n"


def cell(value: object, limit: int = 300) -> str:
    """Text of a record that Markdown shows as it is: no markup, no link, no mention."""
    shown = line(value, limit).translate(MARKUP)
    return shown.replace("://", "&#58;//").replace("www.", "www&#46;")


def code(value: object) -> str:
    return f"<code>{cell(value)}</code>" if value else ""


def head(trials: list[Trial], files: list[Results]) -> str:
    """What stands there whatever the limit is: the run in one line, and counts."""
    counts, strict = view.counts(trials), view.strict_counts(trials)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    judged = strict["PASS"] + strict["FAIL"]
    apart = f"; strict level, reported apart: {strict['PASS']} of {judged} hold" if judged else ""
    return f"## ringcheck: {cell(view.summed(files))}\n\n{told}{apart}\n"


def sections(trials: list[Trial], files: list[Results]) -> Iterator[Section]:
    """All tables, what matters most first."""
    label = view.labels(trials)
    yield failures(trials, label)
    strict = [(cell(label(t)), code(t["case"]["id"]), cell(worst.get("tensor") or "?"), number(worst["ratio"]))
              for t, worst in view.strict_failures(trials)]
    yield Section("Strict rules not met", "strict rules not met",
                  ("implementation", "case", "tensor", "error/budget"), strict)
    cut = [(code(one.path), cell(one)) for one in view.cuts(files)]
    warned = [("", cell(words)) for words in view.few_lines(view.left_out(files), WARNED)]
    yield Section("Not whole", "warnings", ("file", "what"), cut + warned)
    yield by_implementation(trials, label)
    yield timed(trials, label)
    skipped = [(cell(name), str(len(ids)), cell(reason), cell(view.few(ids))) for name, reason, ids in
               view.skips(trials, label)]
    yield Section("Skipped", "reasons to skip", ("implementation", "trials", "reason", "cases"), skipped)
    yield every(trials, label)
    yield environments(files)


def failures(trials: list[Trial], label: Callable[[Trial], str]) -> Section:
    """Failures that are told alike as one row, with the details of the first; the table of all trials has each."""
    def cells(name: str, verdict: str, told: str, alike: list[Trial]) -> tuple[str, ...]:
        first, more = alike[0], len(alike) - 1
        found = first.get("diagnosis") or {}
        return (verdict, cell(name), code(first["case"]["id"]) + (f" and {more} more" if more else ""), cell(told),
                cell(found.get("requirement") or ""), code(found.get("again")))

    heads = ("verdict", "implementation", "case", "what is wrong", "requirement", "again")
    alike = grouped(trials, label)
    return Section("Failures", "kinds of failure", heads, [cells(*key, found) for key, found in alike.items()])


def by_implementation(trials: list[Trial], label: Callable[[Trial], str]) -> Section:
    names = sorted({label(trial) for trial in trials})
    counted = {name: view.counts(one for one in trials if label(one) == name) for name in names}
    rows = [(cell(name), *map(str, counts.values())) for name, counts in counted.items()]
    return Section("By implementation", "implementations", ("implementation", *view.VERDICTS), rows)


def timed(trials: list[Trial], label: Callable[[Trial], str]) -> Section:
    """Trials that passed beside another implementation or beside what bounds them."""
    asked = ("beside", "bound_step_s", "silent_step_s")
    chosen = [one for one in trials
              if one["verdict"] == "PASS" and any((one.get("measurement") or {}).get(name) for name in asked)]
    columns = [one for one in metrics.COLUMNS if any(view.value(one.of, trial) is not None for trial in chosen)]
    heads = ("implementation", "case", *(f"{cell(one.title)} ({cell(one.unit)})" for one in columns))
    rows = [(cell(label(one)), code(one["case"]["id"]), *(number(view.value(c.of, one), c.form) for c in columns))
            for one in chosen]
    return Section("Speed", "rows of speed", heads, rows)


def every(trials: list[Trial], label: Callable[[Trial], str]) -> Section:
    rows = [(one["verdict"], cell(label(one)), code(one["case"]["id"]), number(view.value(metrics.forward_ms, one)),
             number(view.value(metrics.step_ms, one)), number(view.value(metrics.worst_ratio, one))) for one in trials]
    heads = ("verdict", "implementation", "case", "forward (ms)", "fwd+bwd (ms)", "error/budget")
    return Section(f"All {len(trials)} trials", "trials", heads, rows, folded=True)


def environments(files: list[Results]) -> Section:
    """Where each run was made."""
    def cells(results: Results, header: dict) -> tuple[str, ...]:
        about = header.get("environment") if isinstance(header.get("environment"), dict) else {}
        return (code(results.path), cell(header.get("time") or ""),
                *(cell(about.get(name) or "") for name in ("ringcheck", "torch", "backend", "device", "processor")))

    rows = [cells(results, run.header) for results in files for run in results.runs]
    return Section("Environment", "environments",
                   ("file", "time", "ringcheck", "torch", "backend", "device", "processor"), rows, folded=True)


def number(value: float | None, form: str = ".3g") -> str:
    return "–" if value is None else format(value, form)
