"""Trial records as a run writes them, small and complete, for the tests of the report."""

import os
import shutil
from urllib.parse import quote

import pytest


def _picture(size, world, layout, reach):
    owner = [i * world // size if layout == "contiguous" else i % world for i in range(size)]
    allowed = [[1.0 if i - reach < j < i else 0.5 if j == i else 0.0 for j in range(size)] for i in range(size)]
    return {"size": size, "allowed": allowed, "owner": owner}


def make_trial(
    name="packed/even", world=2, layout="contiguous", dtype="fp64", verdict="PASS", ratio=0.25, size=32, **changes
):
    """One trial record; `changes` replace whole top-level fields."""
    area = [1000 + 10 * rank for rank in range(world)]
    deviations = [
        {
            "tensor": tensor,
            "ratio": ratio / (1 + index),
            "error": 1e-3,
            "allowance": 4e-3,
            "level": "required",
            "where": {"batch": 0, "head": 1, "token": 255, "dim": 3, "rank": 0, "document": 3},
            "expected": 1.0,
            "actual": 1.001,
        }
        for index, tensor in enumerate(("out", "lse", "dq", "dk", "dv"))
    ]
    trial = {
        "kind": "trial",
        "schema": 1,
        "case": {
            "id": f"{name}-{layout}-w{world}-{dtype}",
            "name": name,
            "group": name.split("/")[0],
            "digest": "0" * 12,
            "requirements": ["A1", "A3", "B1"],
            "mask": "causal & documents",
            "rules": ["causal", "documents"],
            "world": world,
            "layout": layout,
            "dtype": dtype,
            "batch": 1,
            "tokens": 256,
            "heads": 4,
            "kv_heads": 2,
            "head_dim": 32,
            "value_dim": None,
            "scale": None,
            "seed": 7,
            "note": "",
        },
        "implementation": {
            "name": "ring",
            "spec": "ring",
            "variants": [],
            "layout": layout,
            "kernel": "cpu",
            "device": "cpu",
        },
        "verdict": verdict,
        "reason": None if verdict == "PASS" else "because",
        "deviations": deviations,
        "diagnosis": None,
        "measurement": {
            "load_s": [0.001] * world,
            "forward_s": [0.002, 0.004, 0.003],
            "backward_s": [0.004, 0.004, 0.005],
            "step_s": [0.006, 0.008, 0.007],
            "rank_step_s": [0.006] * (world - 1) + [0.007],
            "warmup": 1,
            "iters": 3,
            "bytes_sent": [4096] * world,
            "messages": [2] * world,
            "peak_bytes": None,
            "extra_bytes": [2**30] * (world - 1) + [3 * 2**30],
            "bound_kernel": "fa4",
            "bound_forward_s": [0.002, 0.003, 0.002],
            "bound_step_s": [0.006, 0.005, 0.0056],
            "silent_forward_s": [0.0025, 0.0025, 0.003],
            "silent_step_s": [0.0065, 0.006, 0.007],
        },
        "work": {
            "area": sum(area),
            "flops_forward": 2 * sum(area) * 64,
            "flops_backward": 2 * sum(area) * 160,
            "area_by_rank": area,
            "area_by_hop": [[load // world] * world for load in area],
            "need_bytes": [1024] * world,
        },
        "picture": _picture(size, world, layout, 12),
        "seconds": 0.05,
    }
    return {**trial, **changes}


@pytest.fixture
def trial():
    """The maker of trial records."""
    return make_trial


HEADER = {
    "kind": "run",
    "schema": 1,
    "time": "2026-01-02T03:04:05+00:00",
    "argv": ["--ranks", "2", "--cases", "packed"],
    "settings": {"implementations": ["ring"], "ranks": 2, "seed": 7, "iters": 3, "warmup": 1},
    "environment": {
        "ringcheck": "0.1.0",
        "python": "3.11.7",
        "torch": "2.13.0",
        "platform": "Linux",
        "processor": "x86_64",
        "cores": 2,
        "threads": 1,
        "backend": "gloo",
        "device": "cpu",
        "devices": ["cpu", "cpu"],
        "variables": {"OMP_NUM_THREADS": "1"},
        "commit": "0123456789ab",
    },
}


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
