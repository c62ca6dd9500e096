"""What a page shows of a figure: the drawing, its words, and the numbers that stand behind it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    anchor   its id in the page, lower case with hyphens
    title    its heading
    svg      the drawing, markup from reports.figures with every text escaped
    caption  what is drawn, its unit and what is better, in plain text
    head     the column heads of the number table
    rows     its rows as text, the first cell names the row
    metric   the heading in docs/metrics.md that derives what is drawn
    """

    anchor: str
    title: str
    svg: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    metric: str | None = None
