"""The line that says how far a run is: its range holds what is left, also where cases are unequal."""

import io
import random

import pytest

from harness.progress import CLEAR, EVERY_S, Asked, Progress, fit, spoken
from harness.table import Table
from harness.worker import Prefixed


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def after(trials, seconds, done, stream=None):
    clock = Clock()
    progress = Progress(trials, stream or io.StringIO(), clock)
    for took in seconds[:done]:
        clock.now += took
        progress.done()
    return progress


def test_equal_trials_are_told_exactly():
    progress = after([Asked(2, 100.0)] * 100, [2.0] * 100, 40)
    assert progress.left() == (120.0, 120.0, 0) and progress.text() == "40 of 100 after 80 s, about 2 min left"


def test_nothing_is_guessed_from_few_trials():
    assert after([Asked(2, 1.0)] * 9, [1.0] * 9, 5).text() == "5 of 9 after 5 s"
    assert "left" in after([Asked(2, 1.0)] * 9, [1.0] * 9, 6).text()


def test_time_goes_with_pairs_and_larger_trials_ahead_are_told():
    trials = [*(Asked(2, 100.0 * (1 + n % 3)) for n in range(30)), Asked(2, 1e5), Asked(2, 1e5)]
    seconds = [0.5 + one.pairs / 100 for one in trials]
    progress = after(trials, seconds, 30)
    assert progress.left().least == pytest.approx(2001.0) and progress.left().beyond == 2
    assert progress.text().endswith("about 33 min left, more if 2 larger ones take longer")


def test_starting_processes_counts_once_a_number_of_ranks():
    trials = [Asked(ranks, 1.0) for ranks in (1, 2, 4) for _ in range(10)]
    seconds = [1.0 + 8.0 * (n % 10 == 0) for n in range(30)]
    assert after(trials, seconds, 15).left().most == pytest.approx(15 + 8)
    assert after(trials, seconds, 25).left().most == pytest.approx(5)


def test_the_range_holds_what_is_left_of_unequal_trials_most_times():
    drawn, held = random.Random(7), 0
    for _ in range(200):
        trials = [Asked(2, 100.0 * drawn.choice((1, 4, 16))) for _ in range(200)]
        seconds = [(0.3 + one.pairs / 500) * drawn.lognormvariate(0, 0.5) for one in trials]
        left = after(trials, seconds, 60).left()
        held += left.least <= sum(seconds[60:]) <= left.most
    assert held >= 180


def test_no_part_of_a_fit_is_below_zero():
    assert fit([1, 2, 3], [3, 2, 1]).slope == 0 and fit([1, 2, 3], [0, 5, 10]).base == 0
    assert fit([5, 5], [1, 3]) == (2, 0, pytest.approx(2 ** 0.5))


def test_a_log_has_a_line_a_minute_and_none_for_a_short_run():
    stream = io.StringIO()
    after([Asked(2, 1.0)] * 400, [1.0] * 400, 300, stream)
    assert len(stream.getvalue().splitlines()) == 300 // EVERY_S and CLEAR not in stream.getvalue()
    assert stream.getvalue().startswith("# 60 of 400 after 60 s, about 6 min left\n")
    short = io.StringIO()
    after([Asked(2, 1.0)] * 50, [1.0] * 50, 50, short)
    assert short.getvalue() == ""


def test_a_terminal_has_one_line_that_makes_way_for_rows():
    terminal = Terminal()
    progress = after([Asked(2, 1.0)] * 3, [1.0] * 3, 2, terminal)
    assert terminal.getvalue() == f"{CLEAR}# 1 of 3 after 1 s{CLEAR}# 2 of 3 after 2 s"
    Table(terminal, 3, progress=progress).note("a row")
    assert terminal.getvalue().endswith(f"2 of 3 after 2 s{CLEAR}# a row\n")
    progress.done()
    assert terminal.getvalue().endswith("# a row\n")


def test_a_line_is_no_wider_than_the_terminal():
    terminal = Terminal()
    after([Asked(2, 1.0), *[Asked(2, 1.0)] * 50, *[Asked(2, 9.0)] * 10**6], [1.0, 5.0] * 9, 18, terminal)
    assert max(map(len, terminal.getvalue().split(CLEAR))) == 79


def test_a_stream_that_adds_prefixes_is_no_terminal():
    terminal = Terminal()
    after([Asked(2, 1.0)] * 100, [10.0] * 9, 9, Prefixed(terminal, "[rank 0] "))
    assert terminal.getvalue() == "[rank 0] # 6 of 100 after 60 s, about 16 min left\n"


def test_a_stream_that_takes_no_more_ends_the_line_and_not_the_run():
    terminal = Terminal()
    progress = after([Asked(2, 1.0)] * 30, [1.0] * 9, 9, terminal)
    terminal.close()
    progress.hide()
    progress.done()
    assert not progress.live


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5000, "83 min"),
                                               (7800, "2 h 10 min")])
def test_times_are_said_as_people_do(seconds, text):
    assert spoken(seconds) == text
