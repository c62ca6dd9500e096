"""What tests of reports begin from: trials, results files, a browser and a page in it."""

import os
import shutil
from urllib.parse import quote

import pytest

from tests.reports.trials import HEADER, make_trial


@pytest.fixture
def trial():
    """The maker of trial records."""
    return make_trial


@pytest.fixture
def results_file(tmp_path):
    """Writes trials to a results file and returns its path."""
    from reports.record import Writer

    def write(trials, name="run.jsonl", end=True, time=HEADER["time"], **settings):
        with Writer(tmp_path / name) as writer:
            writer.run({**HEADER, "time": time, "settings": {**HEADER["settings"], **settings}})
            for trial in trials:
                writer.trial(trial)
            if end:
                writer.end({"counts": {}, "seconds": 1.5, "exit_code": 0})
        return tmp_path / name

    return write


@pytest.fixture(scope="module")
def browser():
    """A headless chromium of the system. Skips where it or playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ringcheck[browser]'")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("needs a chromium or google-chrome on the path")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=chromium, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def address(results_file, trial, tmp_path):
    """file:// address of a page of many kinds of trial."""
    from reports import build
    from tests.reports.browsing import made

    change = {"case": "packed/even-zigzag-w2-fp64", "implementation": "ring", "old": 1.0, "new": 2.0, "ratio": 2.0}
    changes = [{**change, "state": state} for state in ("slower", "broke", "faster", "new", "insignificant")]
    target = tmp_path / "page.html"
    build.write([results_file(made(trial))], target, changes)
    return f"file://{quote(str(target))}"


@pytest.fixture
def visit(browser, address):
    """Opens the page; whatever it says on the console fails the test at its end."""
    contexts, said = [], []

    def go(anchor="", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address + anchor)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def sides(results_file):
    """Paths of OLD and NEW: one trial broke, one is slower, one sends more, one is gone."""
    from tests.reports.compared import SLOW, TEN, changed, timed

    old = [timed(f"packed/{name}", TEN) for name in "abcd"]
    new = [timed("packed/a", TEN, verdict="FAIL", reason="B4: dk off\nmore"), timed("packed/b", SLOW, TEN),
           changed(timed("packed/c", TEN), "measurement.bytes_sent", [4096, 5000])]
    return str(results_file(old, "old.jsonl")), str(results_file(new, "new.jsonl"))
