"""Text of a record as one line that shows all of it: what would move, hide or end the line stands there by its code."""

import unicodedata

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
SHAPES = ((0xFF, "\\x{:02x}"), (0xFFFF, "\\u{:04x}"), (0x10FFFF, "\\U{:08x}"))


def line(value: object, limit: int = 400) -> str:
    """One line of at most `limit` characters. Line ends and tabs become blanks; other control characters, marks of
    direction and lone surrogates become their code, such as \\u202e."""
    text = str(value)
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    shown = "".join(map(_shown, " ".join(short.split())))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def first_line(value: object, limit: int = 400) -> str:
    """The first line that holds something."""
    return next((line(part, limit) for part in str(value or "").splitlines() if part.strip()), "")


def columns(text: str, limit: int = 2000) -> str:
    """A line of a table: as `line`, but the blanks that align it stay."""
    return page(" ".join(text[:limit].expandtabs(1).splitlines()))


def page(text: str) -> str:
    """Text of many lines with what would move, hide or end anything replaced by its code; line ends and tabs stay."""
    hidden = {ord(one): _shown(one) for one in set(text) if one not in "\n\t" and _shown(one) != one}
    return text.translate(hidden) if hidden else text


def _shown(character: str) -> str:
    if unicodedata.category(character) not in HIDDEN:
        return character
    code = ord(character)
    return next(shape for most, shape in SHAPES if code <= most).format(code)
