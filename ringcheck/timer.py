"""Seconds that ranks measured, for pytest-benchmark: its own clock would time the round trip to them as well."""

from collections.abc import Iterable
from typing import Any

import pytest

PLUGIN = ("benchmark", "pytest_benchmark.plugin")


class RankTimer:
    """A clock that stands still but for what it is told: `benchmark(timer=...)` of pytest-benchmark."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds so far."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass: the longest that any rank took."""
        self.now += seconds


def lent(request: pytest.FixtureRequest) -> tuple[Any, RankTimer]:
    """The fixture `benchmark` of this test with a RankTimer for a clock; group and the like stay as they are marked."""
    if not any(map(request.config.pluginmanager.hasplugin, PLUGIN)):
        pytest.fail("rank_benchmark needs pytest-benchmark: pip install pytest-benchmark", pytrace=False)
    if "benchmark" in request.fixturenames:
        pytest.fail("rank_benchmark takes the place of benchmark, name one of them: the other has a clock of its own",
                    pytrace=False)
    timer, marked = RankTimer(), request.node.get_closest_marker("benchmark")
    told = {**(marked.kwargs if marked else {}), "timer": timer}
    request.node.add_marker(pytest.mark.benchmark(**told), append=False)
    return request.getfixturevalue("benchmark"), timer


def rounds(benchmark: Any, timer: RankTimer, seconds: Iterable[float]) -> None:
    """One round of `benchmark` for each of `seconds`."""
    laps = list(seconds)
    left = iter(laps)
    benchmark.pedantic(lambda: timer.advance(next(left, 0.0)), rounds=len(laps))
