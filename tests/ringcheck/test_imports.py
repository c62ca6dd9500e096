"""The direction of imports of docs/design.md, read from the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"cases", "reference", "ringcp", "harness", "reports", "ringcheck"}
ALLOWED = {
    "cases": {"cases"},
    "reference": {"cases", "reference"},
    "ringcp": {"ringcp"},
    "reports": {"reports"},
    "harness": {"cases", "reference", "harness", "reports"},
}
THROUGH_THE_DOOR = ("harness/adapters/ring.py", "harness/sabotage/")


def imported(path):
    """Line and dotted name of every import, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_imports_only_what_the_design_allows(room):
    wrong = []
    for path in sorted((ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        extra = {"ringcp"} if name.startswith(THROUGH_THE_DOOR) else set()
        for line, module in imported(path):
            top = module.split(".")[0]
            if top in ROOMS and top not in ALLOWED[room] | extra:
                wrong.append(f"{name}:{line} imports {module}")
    assert wrong == []


def test_the_harness_takes_only_records_metrics_and_pages_from_reports():
    found = {module for path in (ROOT / "harness").rglob("*.py") for _, module in imported(path)}
    taken = {".".join(module.split(".")[:2]) for module in found if module.startswith("reports.")}
    assert taken == {"reports.record", "reports.metrics", "reports.build", "reports.keep"}
