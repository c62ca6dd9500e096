"""How large a page grows: many trials, many failures, many pictures."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

from reports import masks
from reports.gallery import FIGURES, gallery
from reports.record import Results, Run
from tests.reports.pages import build_page, page_of
from tests.reports.trials import complete

ROOT = Path(__file__).resolve().parents[2]
BUILD = """
import resource, sys, time
from reports import build
began = time.process_time()
build.write([sys.argv[1]], sys.argv[2])
print(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def many(trial, count, worlds=(1, 2, 3, 4), size=48):
    names = [f"group{n % 10}/case{n}" for n in range(count)]
    settings = itertools.product(names, ("contiguous", "zigzag", "striped"), worlds, ("fp64", "fp32", "bf16"))
    return [trial(name, world, layout, dtype, size=size)
            for name, layout, world, dtype in itertools.islice(settings, count)]


def failing(trial, number):
    diagnosis = {
        "headline": "the window holds one key too many", "requirement": "A2: a window of W keys", "place": "rank 0",
        "again": "ringcheck --cases x",
        "recovered": {"sentence": "query 1 sees key 0", "grid": ["#X.o" * 12] * 48, "legend": "# right"},
    }
    return trial(f"wrong/case{number}", 4, "zigzag", size=48, verdict="FAIL", ratio=9.0, reason="r" * 5000,
                 diagnosis=diagnosis)


def test_five_hundred_trials_take_less_than_two_megabytes(trial):
    for trials in (many(trial, 500), [failing(trial, number) for number in range(500)]):
        text = page_of(trials)
        assert len(text.encode()) < 2_000_000 and text.count("<tr id=") == 500


def whole(count):
    """Trials of two implementations with all that any figure draws, one in ten wrong."""
    makers = itertools.product(range(count), ("ring", "other"), (2, 4), ("zigzag", "contiguous"), ("bf16", "fp64"))
    return [complete(who, world, 256 << n % 2, 48, name=f"g{n // 2 % 7}/case{n // 2}", layout=layout, dtype=dtype,
                     verdict="FAIL" if (n + world) % 10 == 0 else "PASS", ratio=(n + world) % 10 / 9.5)
            for n, who, world, layout, dtype in itertools.islice(makers, count)]


def test_five_hundred_trials_with_all_figures_take_less_than_two_megabytes():
    trials = whole(500)
    files = [Results(name, [Run({"time": name}, trials)]) for name in ("1", "2")]
    assert len(gallery(trials, files)) == len(FIGURES)
    text = page_of(trials)
    assert len(text.encode()) < 2_000_000 and text.count("<tr id=") == 500


def test_five_thousand_trials_with_all_figures_take_twenty_seconds_of_one_core_and_a_gibibyte(results_file, tmp_path):
    path = results_file([])
    lines = [json.dumps(one) + "\n" for one in whole(500)]
    header, end = path.read_text().splitlines(keepends=True)
    path.write_text(header + "".join(line.replace("/case", f"/{n}-case") for n in range(10) for line in lines) + end)
    made = subprocess.run([sys.executable, "-c", BUILD, str(path), str(tmp_path / "page.html")], cwd=ROOT, text=True,
                          capture_output=True, check=True)
    seconds, gibibytes = map(float, made.stdout.split())
    assert seconds < 20 and gibibytes < 1, made.stdout
    assert (tmp_path / "page.html").read_text().count("<tr id=") == 5000


def test_five_thousand_trials_are_all_there_and_take_a_few_megabytes(trial):
    text = page_of(many(trial, 5000, size=4))
    assert text.count("<tr id=") == 5000 and len(text.encode()) < 10_000_000


def test_pictures_stop_where_the_page_would_grow_too_large_and_numbers_do_not(trial):
    trials = [trial(f"group{n % 3}/case{n}", 2, layout, size=24)
              for n in range(9) for layout in ("contiguous", "zigzag")]
    trials[-1]["verdict"] = "FAIL"
    whole = masks.masks(trials)
    assert whole["drawn"] == 18 and whole["left_out"] == 0
    part = masks.masks(trials, budget=14_000)
    drawn = [card["name"] for group in part["groups"].values() for card in group["cards"]]
    assert part["drawn"] == len(drawn) > 1 and part["left_out"] == 18 - len(drawn)
    assert "group2/case8" in drawn and len(set(drawn)) == len(drawn)
    assert sum(len(group["rows"]) for group in part["groups"].values()) == 18


def test_pictures_are_not_repeated_by_dtype_and_world(results_file, trial):
    trials = [trial(f"g/case{n}", world, "zigzag", dtype, size=8) for n in range(20) for world in (1, 2, 3)
              for dtype in ("fp64", "bf16")]
    assert build_page(results_file(trials)).count('<svg class="mask"') == 20
