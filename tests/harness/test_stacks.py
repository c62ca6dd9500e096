"""Whose code a line of a stack is, and what of an exception's text may reach a terminal."""

import pytest

from harness import stacks

SITE = "/home/me/torch/env/lib/python3.12/site-packages"


@pytest.mark.parametrize(("file", "outside"), [
    (f"{SITE}/torch/autograd/graph.py", True), (f"{SITE}/triton/runtime/jit.py", True), ("<string>", True),
    ("<frozen importlib._bootstrap>", True), ("/usr/lib/python3.12/multiprocessing/connection.py", True),
    (f"{SITE}/ringcp/exchange.py", False), (f"{SITE}/harness/control.py", False), ("/home/me/torch/my_ring.py", False)])
def test_what_is_installed_is_somebodys_own(file, outside):
    assert stacks.outside(file) == outside


def test_the_call_that_is_named_is_never_the_bootstrap():
    stack = (f'  File "{SITE}/harness/control.py", line 73 in _received\n'
             '  File "/usr/lib/python3.12/multiprocessing/spawn.py", line 1 in main\n'
             '  File "<string>", line 1 in <module>\n')
    assert stacks.last_call(stack) == "in _received (control.py:73)"


def test_messages_are_lines_that_a_terminal_can_show():
    said = stacks.said(ValueError("bad \udc80 \x1b[31m\x00 nul\nmore"))
    assert said == r"ValueError: bad \udc80 \x1b[31m\x00 nul more"


def test_a_stop_iteration_is_told_as_what_it_is():
    def stops():
        yield next(iter(()))

    with pytest.raises(RuntimeError) as caught:
        next(stops())
    assert stacks.raised(caught.value).startswith("StopIteration in stops (test_stacks.py:")
