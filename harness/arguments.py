"""The command line: flags -> Settings, or one clear line about what is wrong."""

import argparse
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch

from cases import catalogue
from cases.catalogue import RANDOM, TIERS
from harness.clock import Timing
from harness.trials import CHOICES

SIZE = re.compile(r"(\d+)([kKmM]?)$")
LONGEST, MOST_RANKS = 80, 64


@dataclass(frozen=True)
class Settings:
    """What a run was asked to do; None leaves a choice to the catalogue."""

    cases: tuple[str, ...]
    implementations: tuple[str, ...]
    worlds: tuple[int, ...]
    dtypes: tuple[str, ...] | None
    layouts: tuple[str, ...] | None
    device: str
    tokens: int | None
    timing: Timing
    seed: int
    timeout: float
    json: Path
    report: Path | None
    resume: bool
    fail_fast: bool
    in_process: bool
    listing: str | None
    truth: str = "auto"
    shrink: bool | None = None
    count: int = RANDOM


def size(text: str) -> int:
    """"8k" -> 8192."""
    found = SIZE.match(text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 512, 8k or 1m")
    return int(found[1]) << {"": 0, "k": 10, "m": 20}[found[2].lower()]


def names(text: str) -> tuple[str, ...]:
    """A comma list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def counts(text: str) -> tuple[int, ...]:
    """A comma list of positive numbers."""
    if not all(part.isdigit() and int(part) for part in names(text)) or not names(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of rank counts such as 2 or 1,2,3,4")
    found = tuple(map(int, names(text)))
    if max(found) > MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{max(found)} ranks are more than {MOST_RANKS}")
    return found


def seconds(text: str) -> float:
    """"90" or "1.5", above zero."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e7:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def natural(text: str) -> int:
    if not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to {10 ** 18 - 1}")
    return int(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parser() -> argparse.ArgumentParser:
    """All flags with their help."""
    made = _Parser(prog="ringcheck", allow_abbrev=False,
                   description="Conformance and performance of context-parallel attention.",
                   epilog="Also ringcheck build, summary, compare, bless, export, merge, watch, bundle and score, "
                          "each with --help.")
    add = made.add_argument
    add("--cases", nargs="+", action="extend", metavar="PATTERN",
        help="groups, cases, ids with wildcards, FILE.jsonl, random, 'replay:...'; commas separate (default: default)")
    add("--tier", choices=tuple(TIERS), help="smoke, default or deep: cases and numbers of ranks at once")
    add("--count", type=natural, metavar="N", help=f"how many cases `random` means (default {RANDOM})")
    add("--impl", type=names, default=("ring",), metavar="NAME", help="ring or package.module:name; commas separate")
    add("--ranks", type=counts, metavar="N", help="numbers of ranks, such as 2 or 1,2,3,4 (default 2)")
    add("--dtype", type=names, metavar="NAME", help="fp64, fp32, bf16, fp16; commas separate")
    add("--layout", type=names, metavar="NAME", help="contiguous, zigzag, striped, balanced; commas separate")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="a GPU a rank, or none (default cpu)")
    add("--tokens", type=size, metavar="SIZE", help="resizes every case, such as 8k")
    add("--iters", type=natural, default=3, metavar="N", help="timed iterations; 0 only verifies")
    add("--warmup", type=natural, default=1, metavar="N", help="untimed iterations before them (default 1)")
    add("--seed", type=natural, default=7, metavar="N", help="of all numbers and of random cases (default 7)")
    add("--truth", choices=CHOICES, default="auto", help="what answers are held to (default: dense where it is small)")
    add("--shrink", action=argparse.BooleanOptionalAction,
        help="looks for a smallest case that still fails (default: for random cases)")
    add("--timeout", type=seconds, default=120.0, metavar="S", help="seconds that one trial may take")
    add("--json", type=Path, metavar="FILE", help="results file, JSON lines (default results/CASES.jsonl)")
    add("--report", type=Path, metavar="FILE", help="writes a page from the results at the end")
    add("--resume", action="store_true", help="keeps the results file and leaves out what it already holds")
    add("--fail-fast", action="store_true", help="ends at the first failure or error")
    add("--in-process", action="store_true", help="ranks are threads of one process")
    add("--list", action="store_true", help="prints the chosen cases and runs nothing")
    add("--by-requirement", action="store_true", help="with --list: SPEC ids by world")
    add("--pairs", action="store_true", help="with --list: which pairs of values occur")
    return made


def parse(argv: list[str]) -> Settings:
    """Settings from arguments. Raises ValueError with one line."""
    given = parser().parse_args(argv)
    cases, worlds = tier(given.tier, given.cases, given.ranks or ())
    if (given.by_requirement or given.pairs) and not given.list:
        raise ValueError("--by-requirement and --pairs go with --list")
    if given.by_requirement and given.pairs:
        raise ValueError("--by-requirement and --pairs are two lists; ask for one")
    if given.count is not None and not any(part == "random" for part in catalogue.split(cases)):
        raise ValueError("--count goes with --cases random")
    if given.count == 0:
        raise ValueError("--count 0 asks for no case")
    if not given.impl:
        raise ValueError("--impl names no implementation")
    if given.in_process and given.device != "cpu":
        raise ValueError("--in-process runs on cpu only")
    if given.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch sees no CUDA device here")
    listing = "by-requirement" if given.by_requirement else "pairs" if given.pairs else "cases" if given.list else None
    results = given.json or _results(cases, given.impl)
    return Settings(cases, given.impl, worlds, given.dtype, given.layout, given.device, given.tokens,
                    Timing(given.warmup, given.iters), given.seed, given.timeout, results, given.report, given.resume,
                    given.fail_fast, given.in_process, listing, given.truth, given.shrink,
                    RANDOM if given.count is None else given.count)


def tier(name: str | None, cases: list[str] | None, worlds: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Cases and worlds of a tier, or those given without one. Raises ValueError when both choose cases."""
    if name is None:
        return tuple(cases or ("default",)), worlds
    if cases:
        raise ValueError("--tier and --cases both choose cases; give one")
    chosen, own = TIERS[name]
    return chosen, worlds or own


def _results(cases: tuple[str, ...], implementations: tuple[str, ...]) -> Path:
    """results/packed.jsonl, with the implementation's name unless it is the ring alone; long names end in a digest, so
    that no two runs share a file."""
    parts = [*cases, *(implementations if implementations != ("ring",) else ())]
    name = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") or "all" for part in parts)
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("results") / f"{name}.jsonl"
