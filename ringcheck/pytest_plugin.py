"""Collects the catalogue as pytest items. Imports nothing of the suite, talks to its server."""

import pytest

from ringcheck import options
from ringcheck.benchmark import rank_benchmark
from ringcheck.client import ServerError
from ringcheck.expected import expect
from ringcheck.items import WRONG, CaseItem, Catalogue
from ringcheck.options import cases, implementation, server, timeout, wanted, worlds

__all__ = ["rank_benchmark"]
FEW = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ringcheck: a case of the catalogue; further markers: rule (documents), "
        "requirement (A3), world (world3), layout (zigzag), dtype (bf16), level (strict)",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    if not wanted(config):
        return None
    try:
        hello = server(config).hello(implementation(config))
    except ServerError as error:
        raise pytest.UsageError(str(error)) from error
    return (
        f"ringcheck: {implementation(config)} under test, worlds {' '.join(map(str, worlds(config)))}, "
        f"cases {' '.join(cases(config)) or 'all'}, torch {hello.get('torch', 'unknown')}"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    if not wanted(config):
        return
    try:
        server(config).hello(implementation(config))
        timeout(config)
        found = server(config).list(cases=cases(config), worlds=worlds(config), dtypes=[], impl=implementation(config))
    except ServerError as error:
        raise pytest.UsageError(str(error)) from error
    catalogue = Catalogue.from_parent(session, name="ringcheck", nodeid="ringcheck", path=config.rootpath / "ringcheck")
    own = [CaseItem.from_parent(catalogue, name=case["id"], case=case) for case in found]
    expect(config, own)
    items.extend(own)
    config.hook.pytest_collectreport(report=pytest.CollectReport(catalogue.nodeid, "passed", None, own))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """What JUnit and the short summary call the message of a case is its first line alone."""
    report = yield
    place = getattr(report.longrepr, "reprcrash", None)
    if isinstance(item, CaseItem) and place and call.excinfo.errisinstance(pytest.fail.Exception):
        place.message = (call.excinfo.value.msg or "").split("\n")[0]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What is wrong in full width, each once: the short summary cuts it behind the id."""
    found: dict[str, list[str]] = {}
    for report in [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]:
        for name, told in getattr(report, "user_properties", ()):  # a report of collection has none
            if name == WRONG:
                found.setdefault(told, []).append(report.nodeid.removeprefix("ringcheck::"))
    if found:
        terminalreporter.section("ringcheck: what went wrong")
    for told, ids in found.items():
        more = f" and {len(ids) - FEW} more" if len(ids) > FEW else ""
        terminalreporter.line(f"{told}\n  {', '.join(ids[:FEW])}{more}")


def pytest_unconfigure(config: pytest.Config) -> None:
    options.stop(config)
