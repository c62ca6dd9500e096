"""The figures of a page, each made where the records hold what it shows."""

from collections.abc import Callable, Sequence

from reports.figure import Figure
from reports.metrics import Trial
from reports.record import Results

Maker = Callable[[Sequence[Trial], Sequence[Results]], Figure | None]
FIGURES: tuple[Maker, ...] = ()


def gallery(trials: Sequence[Trial], files: Sequence[Results]) -> list[Figure]:
    """All figures that these trials (each once, see reports.view.latest) and the files they are from have data for."""
    made = (maker(trials, files) for maker in FIGURES)
    return [figure for figure in made if figure]
