"""A temporary repository with folders named as ours, in which pytest runs as an adopter would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_server.py")


class Adopter:
    """A repository that has modules cases, harness and reports of its own."""

    def __init__(self, path: Path):
        self.path = path
        for name in ("cases", "harness", "reports"):
            (path / name).mkdir()
            (path / name / "__init__.py").write_text(f"OWNER = 'adopter {name}'\n")
        (path / "test_own.py").write_text(
            "import cases, harness, reports\n\n\ndef test_own():\n"
            "    owners = [module.OWNER for module in (cases, harness, reports)]\n"
            "    assert owners == ['adopter cases', 'adopter harness', 'adopter reports']\n"
        )
        self.write("pytest.ini", "[pytest]\nringcheck = my_module:ring\n")

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def fake(self) -> None:
        """Lets the plugin talk to the stand-in server."""
        self.write(
            "conftest.py",
            f"import sys\nimport ringcheck.client\n\nringcheck.client.COMMAND[:] = [sys.executable, {str(FAKE)!r}]\n",
        )

    def environment(self) -> dict[str, str]:
        """Variables that lend this repository the package `ringcheck` and nothing else of the checkout."""
        lent = self.path.parent / "lent"
        lent.mkdir(exist_ok=True)
        if not (lent / "ringcheck").exists():
            (lent / "ringcheck").symlink_to(ROOT / "ringcheck")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        return {**own, "PYTHONPATH": str(lent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "OMP_NUM_THREADS": "1"}

    def pytest(self, *arguments: str, timeout: float = 120, columns: int = 120) -> subprocess.CompletedProcess:
        """Runs pytest here with the plugin and no other."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "ringcheck.pytest_plugin",
            "-p",
            "no:cacheprovider",
            *arguments,
        ]
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment() | {"COLUMNS": str(columns), "CI": ""},
            text=True,
            capture_output=True,
            timeout=timeout,
        )


@pytest.fixture
def adopter(tmp_path):
    (tmp_path / "repository").mkdir()
    return Adopter(tmp_path / "repository")
