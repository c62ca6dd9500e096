"""Colours of figures against the paper they lie on, in both modes, read off the style sheets.

What a number is read from by its place or extent (a line, a marker, a bar, an edge) has 3:1, words have 4.5:1. Areas
that only repeat a printed number are tints: they need the words on them to be read.
"""

import itertools
import math
import re
from pathlib import Path

import pytest

import reports

ROOM = Path(reports.__file__).parent
SHEETS = [(ROOM / name).read_text(encoding="utf-8") for name in ("style.css", "figures/figures.css")]
MODES = ("light", "dark")
PAPERS = ("paper", "card")
STROKED = ["axis", "bound", "limit", "leader", "hatch", "wait", "middle", "heavy", "pale", "dots", "ring", "cross",
           "fwd", "bwd", "sent", "got", "all", "p4", "f0", "f1", "er", "en", *(f"s{hue}" for hue in range(8))]
FILLED = [*(f"o{hue}" for hue in range(8)), "v-PASS", "v-plain-fail", "v-plain-error", "bin"]
TINTS = [*(f"p{n}" for n in range(5)), "f0", "f1", "er", "sk", *(f"e{n}" for n in range(6)),
         *(f"h{n}" for n in range(5)), "fwd", "bwd", "sent", "got", "all"]
SEEN = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Linear RGB as eyes of each kind see it (Machado, Oliveira and Fernandes 2009, severity 1)."""


def variables(mode):
    """Custom properties of a mode as hexadecimal colours."""
    roots = re.findall(r":root\s*{([^}]*)}", SHEETS[0])
    found = {}
    for root in roots[:1] if mode == "light" else roots:
        found |= dict(re.findall(r"--([a-z0-9-]+):\s*(#[0-9a-f]{6})\b", root))
    return found


def rules():
    """Declarations by the last class of their selector; a later rule wins."""
    found = {}
    for sheet in SHEETS:
        for selectors, body in re.findall(r"([^{}@]+){([^{}]*)}", re.sub(r"/\*.*?\*/", "", sheet)):
            for selector in selectors.split(","):
                name = re.search(r"\.([A-Za-z0-9-]+)$", selector.strip())
                if name:
                    told = (part.split(":", 1) for part in body.split(";") if ":" in part)
                    found.setdefault(name[1], {}).update({key.strip(): value.strip() for key, value in told})
    return found


RULES = rules()


def rgb(colour):
    return [int(colour[at:at + 2], 16) for at in (1, 3, 5)]


def linear(colour):
    shares = [value / 255 for value in colour]
    return [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]


def contrast(one, other):
    low, high = sorted(sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour)))
                       for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def laid(name, part, colours, paper):
    """The colour of a class's `fill` or `stroke` as it is seen on paper."""
    [variable] = re.findall(r"var\(--([a-z0-9-]+)\)", RULES[name][part])
    opacity = float(RULES[name].get(f"{part}-opacity", 1))
    return [top * opacity + below * (1 - opacity) for top, below in zip(rgb(colours[variable]), rgb(colours[paper]))]


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("mode", MODES)
def test_what_numbers_are_read_from_stands_off_the_paper(mode, paper):
    colours = variables(mode)
    marks = [(name, "stroke") for name in STROKED] + [(name, "fill") for name in FILLED]
    told = {name: contrast(laid(name, part, colours, paper), rgb(colours[paper])) for name, part in marks}
    assert not {name: round(found, 2) for name, found in told.items() if found < 3}


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("mode", MODES)
def test_words_are_read_on_paper_and_on_every_tint(mode, paper):
    colours = variables(mode)
    words = {name: contrast(rgb(colours[name]), rgb(colours[paper]))
             for name in ("ink", "quiet", "accent", "pass", "fail", "error", "skip")}
    words |= {name: contrast(rgb(colours["ink"]), laid(name, "fill", colours, paper)) for name in TINTS}
    words |= {f"digit on o{hue}": contrast(rgb(colours["digit"]), rgb(colours[f"o{hue}"])) for hue in range(8)}
    assert not {name: round(found, 2) for name, found in words.items() if found < 4.5}


def lab(colour, kind):
    """OKLab of a colour as eyes of a kind see it."""
    r, g, b = (min(1, max(0, sum(a * c for a, c in zip(row, linear(colour))))) for row in SEEN[kind])
    cones = (0.4122 * r + 0.5363 * g + 0.0514 * b, 0.2119 * r + 0.6807 * g + 0.1074 * b,
             0.0883 * r + 0.2817 * g + 0.6300 * b)
    long, middle, short = map(math.cbrt, cones)
    return (0.2105 * long + 0.7936 * middle - 0.0041 * short, 1.9780 * long - 2.4286 * middle + 0.4506 * short,
            0.0259 * long + 0.7828 * middle - 0.8087 * short)


@pytest.mark.parametrize("kind", SEEN)
@pytest.mark.parametrize("mode", MODES)
def test_eight_colours_are_told_apart_by_all_eyes(mode, kind):
    colours = variables(mode)
    seen = {hue: lab(rgb(colours[f"o{hue}"]), kind) for hue in range(8)}
    near = {pair: math.dist(seen[pair[0]], seen[pair[1]]) for pair in itertools.combinations(range(8), 2)}
    assert not {pair: round(far, 3) for pair, far in near.items() if far < 0.06}


def test_every_class_that_draws_is_held_to_something():
    """A new class of the figures' sheet is a mark or a tint of this test, or words, or a plain grid."""
    words = {"head", "quiet", "tick", "mid", "small", "bad", "good", "hop", "on"}
    known = {*STROKED, *FILLED, *TINTS, *words, "grid", "fig"}
    drawn = {name for name in re.findall(r"\.([A-Za-z][A-Za-z0-9-]*)", re.sub(r"\d\.\d|\.\d+", "", SHEETS[1]))}
    assert drawn - known <= {"figure", "scroll", "budgets"}
