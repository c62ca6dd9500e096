"""What an implementation must leave as it found: torch's settings of the process and its random numbers, which the next
trial lives with."""

from typing import Any

import torch

from harness.contract import Breach
from harness.settings import SETTINGS
from harness.turns import Made, Turns

SEED = 0x72696E67
WHOSE = dict.fromkeys(("clock", "collection of garbage", "working directory"), "Python")


class Surroundings:
    """The settings of this process as one trial found them. `with` puts them back at its end, also after an exception.

    Random numbers on the CPU begin from SEED in every trial: whoever reseeds would not be seen where the state that it
    leaves is the one that was there. Threads share them, so that each of their ranks begins from the same.
    rank  who is told of in a breach
    """

    def __init__(self, rank: int):
        self.rank, self._found = rank, {}

    def __enter__(self) -> "Surroundings":
        torch.default_generator.manual_seed(SEED)
        self._before = {name: get() for name, (get, _) in SETTINGS.items()}
        return self

    def __exit__(self, *_: Any) -> None:
        self.restore()

    def restore(self) -> None:
        """Puts back what differs, and keeps it in mind."""
        for name in self._differing():
            SETTINGS[name][1](self._before[name])

    def _differing(self) -> list[str]:
        now = {name: get() for name, (get, _) in SETTINGS.items()}
        names = [name for name, before in self._before.items() if before is not None and now[name] != before]
        self._found = {name: now[name] for name in names} | self._found
        return names

    def changed(self) -> list[Breach]:
        """What was found changed so far; nothing is put back yet, so that ranks which are threads say the same."""
        self._differing()
        return [Breach("D3", f"{WHOSE.get(name, 'torch')}'s {name} is left changed on rank {self.rank}",
                       str(self._before[name]), str(now), self.rank) for name, now in self._found.items()]

    def between(self, turns: Turns[Made]) -> Turns[Made]:
        """The same turns, each of which ends with the settings put back: those of others see nothing of it."""
        while True:
            try:
                next(turns)
            except StopIteration as end:
                return end.value
            self.restore()
            yield
