"""The figures of a page, each made where the records hold what it shows."""

from collections.abc import Callable, Sequence

from reports.figure import Figure
from reports.figures.conformance import conformance
from reports.figures.coverage import coverage
from reports.figures.errors import errors
from reports.figures.history import history
from reports.figures.load import load
from reports.figures.samples import samples
from reports.figures.scaling import strong, weak
from reports.figures.sizes import memory, throughput
from reports.figures.timeline import timeline
from reports.figures.traffic import traffic
from reports.metrics import Trial
from reports.record import Results

Maker = Callable[[Sequence[Trial], Sequence[Results]], Figure | None]
FIGURES: tuple[Maker, ...] = (
    conformance, errors, coverage, throughput, strong, weak, timeline, load, traffic, memory, samples, history,
)


def gallery(trials: Sequence[Trial], files: Sequence[Results]) -> list[Figure]:
    """All figures that these trials (each once, see reports.view.latest) and the files they are from have data for."""
    made = (maker(trials, files) for maker in FIGURES)
    return [figure for figure in made if figure]
