"""After a failure: the smallest case that still fails, the attention matrix as it was read back from the ranks, and
whose keys the errors of out come from.

All are trials of their own on the same living ranks, so that whatever happens in them leaves the failure as it is.
"""

import re
from collections import Counter
from typing import Any

from cases import generate
from cases.case import Case
from harness.arguments import Settings
from harness.by_owner import attributable
from harness.clock import Timing
from harness.entries import again, described
from harness.recover import recoverable
from harness.runners import Runner
from harness.shrink import Budget, shrink

PATIENCE = 20.0
MOST = 5


NUMBERS = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
HOW_MUCH = re.compile(r" \(explains .*?\)|, one of \d+ such pairs|(?<= off)[,:].*|, only in .*")


def alike(found: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two failures have the same first line but for its numbers, and how much it explains."""
    lines = (one["diagnosis"]["headline"] for one in (found, other))
    return len({NUMBERS.sub("#", HOW_MUCH.sub("", line)) for line in lines}) == 1


def _off(found: dict[str, Any], tensor: str) -> bool:
    """Whether a tensor of a record is over its budget."""
    return any(one["tensor"] == tensor and not (one["ratio"] is None or one["ratio"] <= 1)
               for one in found["deviations"])


class Investigation:
    """Looks into the first MOST failures of each implementation; every rank of a run takes part."""

    def __init__(self, runner: Runner, settings: Settings):
        self.runner, self.settings = runner, settings
        self.limit = min(settings.timeout, PATIENCE)
        self.seen: Counter[str] = Counter()

    def look(self, found: dict[str, Any] | None, case: Case, spec: str) -> None:
        """Adds `shrunk` and `recovered` to the diagnosis of a failed record (rank 0's; None elsewhere)."""
        kind = self.runner.share(found and found["verdict"] == "FAIL" and found["truth"])
        if not kind or self.seen[spec] >= MOST:
            return
        self.seen[spec] += 1
        self.runner.hold(found)
        random = case.name.startswith("random/")
        smallest = case
        if random if self.settings.shrink is None else self.settings.shrink:
            smallest = self._shrink(found, case, spec, kind)
        recovered = self._run(smallest, spec, "recover") if kind == "dense" and recoverable(smallest) else None
        if found is not None:
            found["diagnosis"]["recovered"] = recovered and recovered.get("recovered")
        self._attribute(found, case, spec, kind)
        self.runner.hold(None)

    def _attribute(self, found: dict[str, Any] | None, case: Case, spec: str, kind: str) -> None:
        """Adds to `error_maps` whose keys the errors of out come from."""
        if not self.runner.share(kind == "dense" and attributable(case) and found and _off(found, "out")):
            return
        told = self._run(case, spec, "owners")
        if found is not None and told and told.get("ratios"):
            by_owner = {"tensor": "out", "by": ["ranks", "owners"], "ratios": told["ratios"]}
            found["error_maps"] = [*(found["error_maps"] or []), by_owner]

    def _shrink(self, found: dict[str, Any] | None, case: Case, spec: str, kind: str) -> Case:
        """`shrunk` of the diagnosis: the case, its command, how many were tried. A smaller case counts where it fails
        for the same reason, as far as the first line tells."""
        def fails(other: Case) -> bool:
            record = self._run(other, spec, kind)
            return self.runner.share(bool(record) and record["verdict"] == "FAIL" and alike(found, record))

        result = shrink(case, fails, Budget(), keep_world=self.runner.fixed)
        if found is not None:
            headline = None
            if result.case is not case:
                device = found["implementation"]["device"]
                headline = again(result.case, spec, device, self.settings.truth)
            found["diagnosis"]["shrunk"] = {
                "case": described(result.case), "replay": generate.replay(result.case), "again": headline,
                "trials": result.trials, "complete": result.complete}
        return result.case

    def _run(self, case: Case, spec: str, kind: str) -> dict[str, Any] | None:
        return self.runner.run(case, spec, Timing(iters=0), self.limit, kind)
