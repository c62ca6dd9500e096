"""What all tests of the suite share."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("ringcheck", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("ringcheck")


@pytest.fixture
def interruptible():
    """Children take Ctrl-C as they do in a terminal: tests that run in the background inherit that it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
