"""Groups inside a larger world: every group of a topology runs the case at once, rank 0 tells of the worst."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from cases.case import Case
from cases.topology import parsed
from harness.entries import again, described
from harness.ranks import Ranks

VERDICTS = ("PASS", "SKIP", "FAIL", "ERROR")
BUSY = 4096
Trial = Callable[[Case, Ranks], dict[str, Any] | None]


def run_placed(trial: Trial, case: Case, ranks: Ranks) -> dict[str, Any] | None:
    """`trial` of the case on its topology's groups; a record on rank 0 of all ranks, None elsewhere.

    The record is the first group's, with the verdict and the diagnosis of the first group that has the worst verdict.
    """
    if not case.topology.groups:
        return trial(case, ranks)
    number, own = ranks.part(case.topology.groups)
    _, beside = ranks.part(case.topology.beside or case.topology.groups)
    record = None
    if own is not None:
        with busy(beside if case.topology.beside else None):
            record = trial(case.of_group(number), own)
    found = {group: told for group, told in ranks.all_gather((number, record)) if told}
    return joined(found, case) if ranks.group.rank == 0 else None


def joined(records: dict[int, dict[str, Any]], case: Case) -> dict[str, Any]:
    """One record of all groups' records, by number of the group."""
    first = records[0]
    if first["verdict"] not in VERDICTS:
        return first
    worst = max(sorted(records), key=lambda number: VERDICTS.index(records[number]["verdict"]))
    whole, other, asked = first | {"case": described(case)}, records[worst], first["implementation"]
    if other["verdict"] == "PASS":
        return whole
    ranks = ",".join(map(str, parsed(case.topology.groups)[worst]))
    told = {"reason": f"ranks {ranks} of {case.ranks}: {other['reason']}", "diagnosis": other["diagnosis"]}
    if told["diagnosis"]:
        told["diagnosis"] |= {"again": again(case, asked["spec"], asked["device"])}
    return whole | {name: other.get(name) for name in ("verdict", "deviations", "error_maps")} | told


@contextmanager
def busy(ranks: Ranks | None) -> Iterator[None]:
    """While it is held, the ranks of another mesh dimension exchange tensors among themselves."""
    if ranks is None:
        yield
        return
    over, name = threading.Event(), ranks.group.process_group.group_name
    ranks.trace.apart.add(name)
    thread = threading.Thread(target=_exchange, args=(ranks, over), daemon=True, name="beside")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        ranks.trace.apart.discard(name)


def _exchange(ranks: Ranks, over: threading.Event) -> None:
    """All-reduces until every rank of the group is over."""
    load = torch.ones(BUSY, device=ranks.device)
    done = False
    while not done:
        load.fill_(1.0 if over.is_set() else 0.0)
        dist.all_reduce(load, group=ranks.group.process_group)
        done = bool(load[0] == ranks.group.size)
