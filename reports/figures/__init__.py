"""Figures as inline SVG text, a family a file: numbers in, markup out. Colours come from the style sheets by class."""

from reports.figures.masks import bars, hops, mask
from reports.figures.ratios import budgets, verdicts

__all__ = ["bars", "budgets", "hops", "mask", "verdicts"]
