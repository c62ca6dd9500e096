"""Delays on a GPU's streams show what is only right because one stream happens to be ahead."""

import pytest
import torch

from cases import catalogue
from harness.pool import Pool
from harness.trial import UNTIMED

DEVICES = torch.cuda.device_count()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not DEVICES, reason="needs a GPU")]
TWO = pytest.param(2, marks=pytest.mark.skipif(DEVICES < 2, reason="needs two GPUs"))


def verdicts(world, spec):
    case = catalogue.select("schedule/delayed", (world,), dtypes=("bf16",))[0]
    with Pool(world, "cuda") as pool:
        return [pool.run(case, one, UNTIMED, 120) for one in ("ring", spec)]


@pytest.mark.parametrize(("world", "spec"), [
    pytest.param(1, "tests.harness.rings:SideStream"), pytest.param(*TWO.values, "tests.harness.rings:SentBeforePacked",
                                                                    marks=TWO.marks)])
def test_a_stream_that_is_not_waited_for_shows(world, spec):
    ring, wrong = verdicts(world, spec)
    assert ring["verdict"] == "PASS", ring["reason"]
    assert wrong["verdict"] == "FAIL" and wrong["reason"].startswith(("B", "D5")), wrong["reason"]
