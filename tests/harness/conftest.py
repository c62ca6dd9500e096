"""One living pool of two ranks for all tests of the harness."""

import pytest

from harness.pool import Pool


@pytest.fixture(scope="session")
def pool():
    with Pool(2) as made:
        yield made
