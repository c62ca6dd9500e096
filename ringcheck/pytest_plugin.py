"""Collects the catalogue as pytest items. Imports nothing of the suite, talks to its server."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ringcheck import junit, timer
from ringcheck.client import Server, ServerError

INI = {
    "ringcheck": ("implementation under test, package.module:name; naming one collects the catalogue", ""),
    "ringcheck_cases": ("names or patterns of cases (default: the whole catalogue)", ""),
    "ringcheck_worlds": ("numbers of ranks, separated by commas or blanks", "1,2,3,4"),
    "ringcheck_timeout": ("seconds that one case may take", "60"),
    "ringcheck_expected_failures": ("file of expected failures: a case pattern and a reason a line", ""),
}
WORLDS = [1, 2, 3, 4, 8]
WRONG, FEW = "ringcheck", 3
SERVER = pytest.StashKey[Server]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ringcheck", "conformance of ring attention")
    group.addoption("--impl", metavar="SPEC", help=f"collect the catalogue against this {INI['ringcheck'][0]}")
    group.addoption(
        "--cases",
        action="append",
        metavar="NAME,NAME",
        help=f"collect these {INI['ringcheck_cases'][0]}; commas separate, or give it again: "
        "after a blank pytest expects a path of tests",
    )
    group.addoption("--worlds", metavar="N,N", help=INI["ringcheck_worlds"][0])
    group.addoption("--ringcheck-timeout", metavar="S", help=INI["ringcheck_timeout"][0])
    group.addoption("--expected-failures", metavar="FILE", help=INI["ringcheck_expected_failures"][0])
    for name, (text, default) in INI.items():
        parser.addini(name, text, default=default)


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
    if SERVER in config.stash:
        config.stash[SERVER].stop()


@pytest.fixture
def rank_benchmark(request: pytest.FixtureRequest) -> Callable[..., dict]:
    """Benchmarks one case with pytest-benchmark: `rank_benchmark("packed/even-zigzag-w2-bf16", iters=20)`.

    A round is a timed iteration, its time the longest that any rank measured (`what`: forward_s, backward_s or step_s).
    `impl` is the implementation of this session where it is not given. A wrong answer fails the test, a refusal skips
    it. Returns the record, whose measurement the benchmark carries as extra_info.
    """
    config, (benchmark, clock) = request.config, timer.lent(request)

    def measure(case: str, impl: str = "", iters: int = 10, warmup: int = 1, what: str = "step_s") -> dict:
        impl = impl or implementation(config)
        try:
            found = server(config).look(cases=[case], worlds=WORLDS, dtypes=[])
            if [one["id"] for one in found] != [case]:
                pytest.fail(f"rank_benchmark takes the id of one case, {case!r} means {len(found)}", pytrace=False)
            record = server(config).run(case, impl, timeout(config), iters=iters, warmup=warmup)
        except ServerError as error:
            pytest.fail(str(error), pytrace=False)
        if record["verdict"] == "SKIP":
            pytest.skip(record.get("reason") or "no reason given")
        if record["verdict"] != "PASS" or not record.get("measurement"):
            pytest.fail(text(record), pytrace=False)
        benchmark.extra_info.update(junit.properties(found[0], record, impl), clock=f"{what}, longest of all ranks",
                                    measurement=record["measurement"], work=record.get("work"))
        timer.rounds(benchmark, clock, record["measurement"][what])
        return record

    return measure


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


def wanted(config: pytest.Config) -> bool:
    """Whether the catalogue belongs to this session: asked for by option, or configured and no path was given."""
    if config.getoption("--impl") or config.getoption("--cases"):
        return True
    return bool(config.getini("ringcheck")) and config.args_source != pytest.Config.ArgsSource.ARGS


def server(config: pytest.Config) -> Server:
    if SERVER not in config.stash:
        config.stash[SERVER] = Server(config.rootpath)
    return config.stash[SERVER]


def setting(config: pytest.Config, ini: str) -> str:
    """An option of the command line, else its ini key."""
    option = {
        "ringcheck": "--impl",
        "ringcheck_cases": "--cases",
        "ringcheck_worlds": "--worlds",
        "ringcheck_timeout": "--ringcheck-timeout",
        "ringcheck_expected_failures": "--expected-failures",
    }[ini]
    given = config.getoption(option)
    return config.getini(ini) if given is None else " ".join(given) if isinstance(given, list) else given


def implementation(config: pytest.Config) -> str:
    return setting(config, "ringcheck") or "ring"


def cases(config: pytest.Config) -> list[str]:
    return setting(config, "ringcheck_cases").replace(",", " ").split()


def worlds(config: pytest.Config) -> list[int]:
    given = setting(config, "ringcheck_worlds")
    try:
        return [int(word) for word in given.replace(",", " ").split()]
    except ValueError:
        raise pytest.UsageError(f"--worlds takes numbers such as 1,2,3, got {given!r}") from None


def timeout(config: pytest.Config) -> float:
    given = setting(config, "ringcheck_timeout")
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise pytest.UsageError(f"--ringcheck-timeout takes seconds such as 60, got {given!r}")
    return value


def expect(config: pytest.Config, items: list[CaseItem]) -> None:
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
