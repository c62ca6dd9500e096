"""Known mistakes as testable guesses: each predicts what a wrong ring would have answered, from tensors alone."""

from harness.hypotheses import arrivals, bounds, gradients, hops, layouts, masks, results, sets, steps, strides, widths
from harness.hypotheses.evidence import Evidence, Guess

__all__ = ["HYPOTHESES", "Evidence", "Guess"]

HYPOTHESES = (*steps.HYPOTHESES, *strides.HYPOTHESES, *results.HYPOTHESES, *widths.HYPOTHESES, hops.local_only,
              *masks.HYPOTHESES, *hops.HYPOTHESES, *gradients.HYPOTHESES, *arrivals.HYPOTHESES, *bounds.HYPOTHESES,
              *layouts.HYPOTHESES, sets.recovered)
