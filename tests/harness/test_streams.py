"""Delays on a GPU's streams show what is only right because one stream happens to be ahead."""

import pytest
import torch

from cases import catalogue
from harness.pool import Pool
from harness.trial import UNTIMED

DEVICES = torch.cuda.device_count()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not DEVICES, reason="needs a GPU")]


def records(world, name, spec):
    case = catalogue.select(f"schedule/{name}", (world,), dtypes=("bf16",))[0]
    with Pool(world, "cuda") as pool:
        return [pool.run(case, one, UNTIMED, 120) for one in ("ring", spec)]


@pytest.mark.parametrize(("world", "name", "spec"), [
    pytest.param(1, "delayed-in-flight", "tests.harness.rings:SideStream"),
    pytest.param(2, "delayed", "tests.harness.rings:SentBeforePacked",
                 marks=pytest.mark.skipif(DEVICES < 2, reason="needs two GPUs"))])
def test_a_stream_that_is_not_waited_for_shows(world, name, spec):
    ring, wrong = records(world, name, spec)
    assert ring["verdict"] == "PASS", ring["reason"]
    assert wrong["verdict"] == "FAIL" and wrong["reason"].startswith(("B", "D")), wrong["reason"]
