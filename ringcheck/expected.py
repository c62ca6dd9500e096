"""The file of expected failures: a case pattern and a reason a line, which a session holds its cases to."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ringcheck.client import ServerError
from ringcheck.options import server, setting

WORLDS = [1, 2, 3, 4, 8]


def expect(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Marks the cases of the expected-failures file; a listed case that passes is a failure (strict)."""
    name = setting(config, "ringcheck_expected_failures")
    if not name:
        return
    path = (config.invocation_params.dir if config.getoption("--expected-failures") else config.rootpath) / name
    for number, pattern, reason in expected_failures(path):
        hit = [item for item in items if fnmatchcase(item.name, pattern)]
        for item in hit:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
        if not hit and not known(config, pattern):
            raise pytest.UsageError(f"{path}:{number}: pattern {pattern!r} matches no case")


def known(config: pytest.Config, pattern: str) -> bool:
    """Whether some case has such an id, in the catalogue or among those that the configuration chooses, though this
    session does not collect it."""
    for chosen in ([pattern], config.getini("ringcheck_cases").replace(",", " ").split()):
        try:
            found = server(config).look(cases=chosen, worlds=WORLDS, dtypes=[])
        except ServerError:
            continue
        if any(fnmatchcase(case["id"], pattern) for case in found):
            return True
    return False


def expected_failures(path: Path) -> list[tuple[int, str, str]]:
    """Line number, pattern and reason of each line that is not blank or a comment."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise pytest.UsageError(f"expected failures {path} cannot be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        pattern, _, reason = line.strip().partition(" ")
        if pattern and not pattern.startswith("#"):
            if not reason.strip():
                raise pytest.UsageError(f"{path}:{number}: {pattern!r} has no reason behind it")
            found.append((number, pattern, reason.strip()))
    return found
