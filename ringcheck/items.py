"""Cases of the catalogue as items of pytest, and what they say where they are wrong."""

import pytest

from ringcheck import junit
from ringcheck.client import ServerError
from ringcheck.options import implementation, server, timeout

WRONG = "ringcheck"


class Catalogue(pytest.Collector):
    """The parent of all case items."""

    def collect(self):
        return []


class CaseItem(pytest.Item):
    """One case. It runs in `setup`, so that a crash or a hang is an error and a wrong result a failure."""

    def __init__(self, *, case: dict, **keywords):
        super().__init__(**keywords)
        self.case = case
        names = ["ringcheck", f"world{case['world']}", case.get("layout"), case["dtype"], case.get("level", "required")]
        for name in [*names, *case["rules"], *case["requirements"]]:
            if name:
                self.config.addinivalue_line("markers", f"{name}: ringcheck")
                self.add_marker(name)

    def setup(self) -> None:
        record, wrong = None, None
        try:
            record = server(self.config).run(self.name, implementation(self.config), timeout(self.config))
        except ServerError as error:
            wrong = str(error)
        if wrong:
            pytest.fail(wrong, pytrace=False)
        self.user_properties += junit.properties(self.case, record, implementation(self.config))
        if record["verdict"] in ("FAIL", "ERROR"):
            self.user_properties.append((WRONG, headline(record)))
        if record["verdict"] == "SKIP":
            pytest.skip(record.get("reason") or "no reason given")
        if record["verdict"] == "ERROR":
            pytest.fail(text(record), pytrace=False)
        self.record = record

    def runtest(self) -> None:
        if self.record["verdict"] != "PASS":
            pytest.fail(text(self.record), pytrace=False)

    def reportinfo(self):
        return self.path, None, self.name


def text(record: dict) -> str:
    """Diagnosis of a trial as indented lines. What is wrong comes first: pytest's short summary shows the first line
    alone, behind the id and cut to the width of the terminal."""
    found = record.get("diagnosis") or {}
    reason, first = record.get("reason") or "", headline(record)
    lines = [first, f"  verdict      {record['verdict']} {record['case']['id']}"]
    lines += [
        f"  {name:<12} {found[name]}"
        for name in ("requirement", "expected", "actual", "place", "again")
        if found.get(name)
    ]
    return "\n".join(lines + ([reason] if reason not in ("", first) else []))


def headline(record: dict) -> str:
    """What is wrong, in one line."""
    told = (record.get("diagnosis") or {}).get("headline") or record.get("reason") or "no reason given"
    return told.split("\n")[0]
