"""A crew ends with a result for every item, whatever an item does to its process."""

import os
import signal

from harness import crew


def counting(given):
    """A worker that numbers its answers and dies over negative items."""
    done = []

    def worker(item):
        if item < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(item)
        return given + item

    return worker


def test_a_process_that_dies_is_replaced_and_its_item_told_of():
    results = list(crew.work([1, -1, 2, -2, 3, 4], 2, counting, 10, lambda item: ("lost", item)))
    assert sorted(map(str, results)) == sorted(map(str, [11, 12, 13, 14, ("lost", -1), ("lost", -2)]))


def test_a_crew_larger_than_its_work_ends():
    assert list(crew.work([5], 3, counting, 1, str)) == [6]
    assert list(crew.work([], 3, counting, 1, str)) == []


def test_items_that_follow_from_a_result_are_worked_off_too():
    def then(result):
        return [result - 8] if result < 14 else []

    assert list(crew.work([1], 2, counting, 10, str, then)) == [11, 13, 15]
    assert list(crew.work([-1], 2, counting, 10, lambda item: 12, then)) == [12, 14]
