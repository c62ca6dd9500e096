"""The fixture `rank_benchmark`: pytest-benchmark with times that ranks measured."""

from collections.abc import Callable

import pytest

from ringcheck import junit, timer
from ringcheck.client import ServerError
from ringcheck.expected import WORLDS
from ringcheck.items import text
from ringcheck.options import implementation, server, timeout


@pytest.fixture
def rank_benchmark(request: pytest.FixtureRequest) -> Callable[..., dict]:
    """Benchmarks one case with pytest-benchmark: `rank_benchmark("packed/even-zigzag-w2-bf16", iters=20)`.

    A round is a timed iteration, its time the longest that any rank measured (`what`: forward_s, backward_s or step_s).
    `impl` is the implementation of this session where it is not given. A wrong answer fails the test, a refusal skips
    it. Returns the record, whose measurement the benchmark carries as extra_info.
    """
    config, (benchmark, clock) = request.config, timer.lent(request)

    def measure(case: str, impl: str = "", iters: int = 10, warmup: int = 1, what: str = "step_s") -> dict:
        impl = impl or implementation(config)
        try:
            found = server(config).look(cases=[case], worlds=WORLDS, dtypes=[])
            if [one["id"] for one in found] != [case]:
                pytest.fail(f"rank_benchmark takes the id of one case, {case!r} means {len(found)}", pytrace=False)
            record = server(config).run(case, impl, timeout(config), iters=iters, warmup=warmup)
        except ServerError as error:
            pytest.fail(str(error), pytrace=False)
        if record["verdict"] == "SKIP":
            pytest.skip(record.get("reason") or "no reason given")
        if record["verdict"] != "PASS" or not record.get("measurement"):
            pytest.fail(text(record), pytrace=False)
        benchmark.extra_info.update(junit.properties(found[0], record, impl), clock=f"{what}, longest of all ranks",
                                    measurement=record["measurement"], work=record.get("work"))
        timer.rounds(benchmark, clock, record["measurement"][what])
        return record

    return measure
