"""What a session of pytest was asked for: options of its command line, else keys of its ini file; and the server."""

import pytest

from ringcheck.client import Server

INI = {
    "ringcheck": ("implementation under test, package.module:name; naming one collects the catalogue", ""),
    "ringcheck_cases": ("names or patterns of cases (default: the whole catalogue)", ""),
    "ringcheck_worlds": ("numbers of ranks, separated by commas or blanks", "1,2,3,4"),
    "ringcheck_timeout": ("seconds that one case may take", "60"),
    "ringcheck_expected_failures": ("file of expected failures: a case pattern and a reason a line", ""),
}
SERVER = pytest.StashKey[Server]()


def add(parser: pytest.Parser) -> None:
    """Makes them known to pytest."""
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


def stop(config: pytest.Config) -> None:
    """Ends the server of a session that began one."""
    if SERVER in config.stash:
        config.stash[SERVER].stop()
