"""Marks of SVG as text: cleaned and escaped words, boxes, paths, the frame of a drawing. No style, only classes."""

import re
import unicodedata
from html import escape

EM = 0.602
UNFIT = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
SHOWN = 4000


def clean(words: object) -> str:
    """`words` as one line that XML can hold: control characters, lone surrogates and marks that turn the direction of
    what follows become U+FFFD."""
    return " ".join(TURNS.sub("\ufffd", UNFIT.sub("\ufffd", str(words)[:SHOWN])).split())


def columns(words: str) -> int:
    """Width in columns of a monospaced font: wide characters take two, combining ones none."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in words
    )


def wide(words: object, size: float = 10) -> float:
    """Width in user units at a font `size`."""
    return columns(clean(words)) * size * EM


def cut(words: object, room: int) -> str:
    """`words` in at most `room` columns, an ellipsis for what is left out of the middle: names differ at both ends."""
    told = clean(words)
    if columns(told) <= room:
        return told
    head = _fitting(told, room // 2)
    tail = _fitting(told[::-1], max(room, 1) - 1 - columns(head))[::-1]
    return f"{head}…{tail}"


def number(value: float) -> str:
    """A coordinate with at most two decimals."""
    told = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if told in ("-0", "") else told


def text(x: float, y: float, words: object, name: str = "") -> str:
    """Words on a base line; `name` is its classes."""
    return f'<text{kind(name)} x="{number(x)}" y="{number(y)}">{escape(clean(words))}</text>'


def rect(name: str, x: float, y: float, width: float, height: float, inside: str = "") -> str:
    """A box; `inside` is markup, such as its title."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f"<rect{kind(name)} {place}>{inside}</rect>" if inside else f"<rect{kind(name)} {place}/>"


def path(name: str, data: str, dash: str = "") -> str:
    """A path, or nothing where there is no data."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path{kind(name)} d="{data}"{dashed}/>' if data else ""


def box(x: float, y: float, width: float, height: float) -> str:
    """A rectangle as path data, so that many of one class are one element."""
    across = number(width)
    return f"M{number(x)} {number(y)}h{across}v{number(height)}h-{across}z"


def polyline(points: list[tuple[float, float]]) -> str:
    """Points joined, as path data; nothing for fewer than two."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points) if len(points) > 1 else ""


def group(name: str, inside: str) -> str:
    """Markup that shares classes, or nothing where there is none."""
    return f"<g{kind(name)}>{inside}</g>" if inside else ""


def titled(words: object) -> str:
    return f"<title>{escape(clean(words))}</title>"


def link(anchor: str, inside: str, skipped: bool = False) -> str:
    """Markup that leads to an id of the page; `skipped` by the Tab key, where there are too many to walk through."""
    return f'<a href="#{escape(anchor)}"{" tabindex=" + chr(34) + "-1" + chr(34) if skipped else ""}>{inside}</a>'


def drawing(width: float, height: float, title: str, body: str, name: str = "fig", stretch: bool = False) -> str:
    """A whole drawing of this size in user units; `stretch` lets the page set its shape. What holds links is a group:
    of an image nothing inside can be reached."""
    w, h, role = number(width), number(height), "group" if "<a href=" in body else "img"
    aspect = ' preserveAspectRatio="none"' if stretch else f' width="{w}" height="{h}"'
    return f'<svg class="{name}" viewBox="0 0 {w} {h}" role="{role}"{aspect}>{titled(title)}{body}</svg>'


def kind(name: str) -> str:
    return f' class="{name}"' if name else ""


def _fitting(words: str, room: int) -> str:
    taken = 0
    for index, one in enumerate(words):
        taken += columns(one)
        if taken > room:
            return words[:index]
    return words
