"""docs/metrics.md: every metric has its heading there, and each worked example follows from its records."""

import inspect
import json
import math
import re
from pathlib import Path
from statistics import median

import pytest

from reports import metrics, record
from reports.compare import counts, times

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^##? ).*\n?)*)", TEXT, re.M))
EXAMPLES = re.findall(r"^(\w[\w.]*)\((\w(?:\.\d)?(?:, \w)?)\) = (?:(.+) = )?(\S+)$", TEXT, re.M)
POINTS = ("Unit and direction", "Measured", "Does not say")
KNOWN = {"median": lambda *values: median(values), "max": max}
H200 = ROOT / "reports/baselines/cuda-2-x-nvidia-h200-nccl-torch-2.11.0-cu130-f1d9b23b/2xH200.jsonl"


def records():
    small = [one for run in record.read(Path(__file__).with_name("worked.jsonl")).runs for one in run.trials]
    base, two, short = small
    wanted = ("bench/real-code-64k-zigzag-w2-bf16", "ring")
    (large,) = (one for one in record.read(H200).trials
                if (one["case"]["id"], one["implementation"]["spec"]) == wanted)
    return {"A": two, "B": base, "C": short, "H": large}


RECORDS = records()


def numbers(value):
    """Every number of a record."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [found for inner in value for found in numbers(inner)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def half_a_digit(text):
    """What rounding to the digits of `text` may have taken away."""
    exponent = int(re.split("[eE]", text)[1]) if re.search("[eE]", text) else 0
    digits = len(text.split("e")[0].partition(".")[2])
    return 0.5 * 10.0 ** (exponent - digits)


def value_of(name, given):
    """What the record holds at a dotted name, or what the metric reads off it."""
    if "." in name:
        found = RECORDS[given[0]]
        for part in name.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found
    function = getattr(metrics, name)
    lanes = [RECORDS[one[0]]["timeline"]["ranks"][int(one[2:])] if "." in one else RECORDS[one] for one in given]
    return function(*lanes)


@pytest.mark.parametrize(("name", "given", "formula", "value"), EXAMPLES, ids=lambda part: str(part)[:20])
def test_a_worked_example_follows_from_its_records(name, given, formula, value):
    found = value_of(name, given.split(", "))
    if not formula:
        assert str(found) == value
        return
    worked = eval(formula, {"__builtins__": {}, **KNOWN})
    assert worked == pytest.approx(float(value), rel=2e-3, abs=half_a_digit(value))
    assert found == pytest.approx(float(value), rel=1e-4, abs=half_a_digit(value))


@pytest.mark.parametrize(("name", "given", "formula", "value"), EXAMPLES, ids=lambda part: str(part)[:20])
def test_the_numbers_of_a_formula_are_those_of_its_records(name, given, formula, value):
    known = numbers([RECORDS[one[0]] for one in given.split(", ")])
    known += [float(shown) for _, _, _, shown in EXAMPLES if re.fullmatch(r"[\d.e+-]+", shown)]
    known += [median(times) for one in RECORDS.values() for name, times in one["measurement"].items()
              if name.endswith("_s") and times]
    for literal in re.findall(r"(?<![\w.*])\d+\.\d+|\d{5,}", formula):
        assert any(abs(number - float(literal)) <= 1.001 * half_a_digit(literal) for number in known), literal


def made():
    """Names of all metrics."""
    return {name for name, value in vars(metrics).items() if inspect.isfunction(value) and not name.startswith("_")
            and value.__module__ == metrics.__name__}


def test_every_metric_has_a_heading_and_what_has_one_is_a_metric():
    told = {name for text in SECTIONS.values() for names in re.findall(r"^- Functions?: (.*)$", text, re.M)
            for name in re.findall(r"`(\w+)`", names.split("Record:")[0])}
    assert made() == told


def test_every_metric_that_is_a_number_has_an_example_and_every_line_of_one_is_read():
    lines = [line for block in re.findall(r"```\n(.*?)```", TEXT, re.S) for line in block.splitlines()]
    assert made() - {name for name, *_ in EXAMPLES} == {"worst"} and len(EXAMPLES) == len(lines)


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_says_formula_unit_direction_place_and_limits(heading):
    text = SECTIONS[heading]
    assert all(re.search(f"^- {point}: \\S", text, re.M) for point in ("Formula", *POINTS))
    assert re.search("higher|lower|none|more|above|verdict", re.search("^- Unit and direction: (.*)", text, re.M)[1])
    assert "```" in text or heading == "Coverage of rules"


def test_what_figures_point_at_is_there():
    assert {"Area", "FLOPs", "TFLOP/s per rank", "Kernel bound", "Share of bound", "Load imbalance", "Time imbalance",
            "Exposed communication", "Remote share", "Sent over need", "Bytes sent over least", "Peak memory",
            "Extra memory", "Error budget", "Error over budget", "Strict level", "Step time", "Coverage of rules",
            "Strong scaling", "Weak scaling", "Timeline"} <= set(SECTIONS)
    assert len(SECTIONS) == TEXT.count("\n## ")


def test_records_of_the_examples_are_as_the_document_describes_them():
    one, large = RECORDS["A"], RECORDS["H"]
    assert (one["case"]["tokens"], one["case"]["world"], RECORDS["B"]["case"]["world"]) == (256, 2, 1)
    assert RECORDS["C"]["case"]["tokens"] == 128 and large["case"]["tokens"] == 65536
    assert all(math.isfinite(number) for number in numbers(json.loads(json.dumps(one))))


def test_every_number_that_a_comparison_gates_has_its_row_and_its_heading():
    rows = dict(re.findall(r"^\| (`.+`) \| \[(.+?)\]", TEXT, re.M))
    told = {name: heading for names, heading in rows.items() for name in re.findall("`(.+?)`", names)}
    gated = {one.metric for one in counts.COUNTS} | {metric for metric, _ in times.METRICS}
    assert gated <= set(told) and set(told.values()) <= set(SECTIONS)
