"""Two sides of a comparison, made of small records in memory."""

import copy
import math

from reports.compare import comparison, states
from reports.compare.command import main
from reports.record import Results, Run
from tests.reports.trials import HEADER, make_trial

TEN = [0.010, 0.0101, 0.0099, 0.0102, 0.0098, 0.01, 0.0101, 0.0099, 0.01, 0.0103]
SLOW = [2 * x for x in TEN]


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


def ran(capsys, *words):
    """Exit code, stdout and stderr of a comparison."""
    code = main(list(map(str, words)))
    said = capsys.readouterr()
    return code, said.out, said.err


def one(**changes):
    """A trial of a case `packed/a`."""
    return timed("packed/a", TEN, **changes)


def compare(old, new, rule=None, **environment):
    """The comparison of these trials; `environment` is NEW's."""
    return comparison.compare(side(old), side(new, **environment), rule)


def states_of(old, new, *arguments, **environment):
    """State and metric of what changed in one trial."""
    return [(row.state, row.metric) for row in compare([old], [new], *arguments, **environment).rows
            if row.state not in states.QUIET]
