"""Scenarios that the tests of the harness share."""

from cases.case import Case, Inputs, Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.window import Window

RULES = (Causal(), Window(20), Documents((((1, 60), (2, 37), (0, 7), (3, 24)),)), Padding((((40, 44),),)))
ALL = Scenario("mixed/all", "A1 A2 A3 A4 A9 B3 B7 B8", Mask(RULES), Shape(tokens=128), scale=0.3)


def causal(world: int = 2, dtype: str = "fp64", tokens: int = 64, requirements: str = "A1", **inputs) -> Case:
    """A plain causal case."""
    scenario = Scenario("causal/plain", requirements, Mask((Causal(),)), Shape(tokens=tokens), inputs=Inputs(**inputs))
    return scenario.at(world, "contiguous", dtype)


def mixed(world: int = 2, dtype: str = "fp64", layout: str = "contiguous") -> Case:
    """Causal, window, documents, padding and a given scale."""
    return ALL.at(world, layout, dtype)
