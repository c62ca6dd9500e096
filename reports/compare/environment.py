"""The part of a header's environment that decides whether two times may be compared.

In the key: device, the accelerators by name and number, processor, cores, threads a rank, torch, backend, and the
variables that choose NCCL's or gloo's way. Each of them is known to change times with no change of the code.

Not in it: commit and ringcheck's version (they are what is compared), host (pools of equal machines), Python and
platform (patches arrive weekly), the day's `matmul_tflops` (a measurement), and the kernel: an implementation chooses
it, and one that falls back to a slow kernel is just what a comparison must tell. The number of ranks is in the case.
"""

import hashlib
import json
import re
from collections import Counter
from typing import Any

PARTS = ("device", "devices", "processor", "cores", "threads", "torch", "backend")
WAYS = ("NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "GLOO_SOCKET_IFNAME")
OF_COUNTS = ("device", "backend")
"""Parts of which bytes, messages and imbalance depend: another machine of the same kind sends the same."""
Key = tuple[tuple[str, str], ...]


def key(header: dict[str, Any]) -> Key | None:
    """Names and values as text, in a fixed order; None where the header does not tell the device."""
    environment = header.get("environment") or {}
    if not isinstance(environment.get("device"), str):
        return None
    variables = environment.get("variables")
    variables = variables if isinstance(variables, dict) else {}
    parts = {name: _text(environment.get(name)) for name in PARTS}
    return tuple((parts | {name: _text(variables[name]) for name in WAYS if name in variables}).items())


def changed(old: Key | None, new: Key | None) -> list[tuple[str, str, str]]:
    """Parts that differ: name, value of OLD, value of NEW."""
    if old is None or new is None:
        return [("environment", *("not recorded" if one is None else "recorded" for one in (old, new)))]
    before, after = dict(old), dict(new)
    names = [*before, *(name for name in after if name not in before)]
    return [(name, before.get(name, "-"), after.get(name, "-"))
            for name in names if before.get(name) != after.get(name)]


def words(key: Key) -> str:
    """The key in one line."""
    return ", ".join(f"{name} {value}" for name, value in key)


def folder(key: Key) -> str:
    """Name of the key's folder of baselines: what a person knows it by, and a digest of all of it."""
    parts = dict(key)
    told = f"{parts['device']}-{parts['devices']}-{parts['backend']}-torch-{parts['torch']}"
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^a-z0-9.]+', '-', told.lower()).strip('-.')[:80]}-{digest}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " + ".join(f"{n} x {one}" for one, n in Counter(map(str, value)).items())
    return "-" if value is None else str(value)
