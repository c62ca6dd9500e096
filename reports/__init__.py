"""How it is told: results files, the numbers read off them, and the page made of them. No torch, no other room."""

from collections.abc import Iterable
from os import PathLike
from typing import Any


def frame(paths: str | PathLike | Iterable[str | PathLike], samples: bool = False) -> Any:
    """The trials of results files as a pandas.DataFrame, one row a trial; see reports.flat.frame.

    `samples` adds the raw seconds of every lap as lists: `frame(path, samples=True).explode("samples_step_s")`.
    """
    from reports import flat

    return flat.frame(paths, samples)
