"""The faults by name: `--impl sabotage:lse-in-base-two`, or on another host `sabotage:lse-in-base-two@ring`."""

from harness import implementation
from harness.sabotage import behaviour, masks, results
from harness.sabotage.fault import Fault, kebab

FAULTS = {kebab(kind): kind for kind in (*masks.FAULTS, *results.FAULTS, *behaviour.FAULTS)}
HOST = "dense"


def names() -> list[str]:
    """All faults."""
    return list(FAULTS)


def load(name: str) -> Fault:
    """The fault on its host. Raises ValueError for a name that is none."""
    fault, _, host = name.partition("@")
    if fault not in FAULTS:
        raise ValueError(f"unknown fault {fault!r}: known are {', '.join(FAULTS)}")
    return FAULTS[fault](implementation.load(host or HOST))
