"""Two sides of a comparison, made of small records in memory."""

import copy
import math

from reports.record import Results, Run
from tests.reports.trials import HEADER, make_trial


def noisy(generator, centre=0.01, n=20, noise=0.04, along=0.0):
    """Seconds of n iterations: lognormal, neighbours correlated by `along`, one in twenty held up by something."""
    found, last = [], generator.gauss(0, 1)
    for _ in range(n):
        last = along * last + math.sqrt(1 - along**2) * generator.gauss(0, 1)
        found.append(centre * math.exp(noise * last) * (1.5 if generator.random() < 0.05 else 1))
    return tuple(found)


def side(trials, path="side.jsonl", time=HEADER["time"], **environment):
    """Results of one run that was not cut."""
    header = {**HEADER, "time": time, "environment": {**HEADER["environment"], **environment}}
    return [Results(path, [Run(header, list(trials), {"kind": "end"})])]


def timed(name, step, forward=None, **changes):
    """A trial with these seconds."""
    one = copy.deepcopy(make_trial(name, **changes))
    one["measurement"] |= {"step_s": list(step), "forward_s": list(forward or step)}
    return one


def changed(trial, path, value):
    """The trial with one field, named with dots, replaced."""
    one = copy.deepcopy(trial)
    *above, last = path.split(".")
    part = one
    for name in above:
        part = part[name]
    part[last] = value
    return one
