"""Trial records as a run writes them, small and complete, part by part."""

HEADER = {
    "kind": "run",
    "schema": 1,
    "time": "2026-01-02T03:04:05+00:00",
    "argv": ["--ranks", "2", "--cases", "packed"],
    "settings": {"implementations": ["ring"], "ranks": 2, "seed": 7, "iters": 3, "warmup": 1},
    "environment": {
        "ringcheck": "0.1.0", "python": "3.11.7", "torch": "2.13.0", "platform": "Linux", "processor": "x86_64",
        "cores": 2, "threads": 1, "backend": "gloo", "device": "cpu", "devices": ["cpu", "cpu"],
        "variables": {"OMP_NUM_THREADS": "1"}, "commit": "0123456789ab",
    },
}


def make_trial(
    name="packed/even", world=2, layout="contiguous", dtype="fp64", verdict="PASS", ratio=0.25, size=32, **changes
):
    """One trial record; `changes` replace whole top-level fields."""
    trial = {
        "kind": "trial",
        "schema": 1,
        "case": case(name, world, layout, dtype),
        "implementation": {"name": "ring", "spec": "ring", "variants": [], "layout": layout, "kernel": "cpu",
                           "device": "cpu"},
        "verdict": verdict,
        "reason": None if verdict == "PASS" else "because",
        "deviations": deviations(ratio),
        "diagnosis": None,
        "measurement": measurement(world),
        "work": work(world),
        "picture": picture(size, world, layout, 12),
        "seconds": 0.05,
    }
    return {**trial, **changes}


def case(name, world, layout, dtype):
    """Where 256 tokens of two documents are asked."""
    return {
        "id": f"{name}-{layout}-w{world}-{dtype}", "name": name, "group": name.split("/")[0], "digest": "0" * 12,
        "requirements": ["A1", "A3", "B1"], "mask": "causal & documents", "rules": ["causal", "documents"],
        "world": world, "layout": layout, "dtype": dtype, "batch": 1, "tokens": 256, "heads": 4, "kv_heads": 2,
        "head_dim": 32, "value_dim": None, "scale": None, "seed": 7, "note": "",
    }


def deviations(ratio):
    """All five tensors, the first worst."""
    where = {"batch": 0, "head": 1, "token": 255, "dim": 3, "rank": 0, "document": 3}
    return [{"tensor": tensor, "ratio": ratio / (1 + index), "error": 1e-3, "allowance": 4e-3, "level": "required",
             "where": dict(where), "expected": 1.0, "actual": 1.001}
            for index, tensor in enumerate(("out", "lse", "dq", "dk", "dv"))]


def measurement(world):
    """Three timed iterations of a bench."""
    return {
        "load_s": [0.001] * world, "forward_s": [0.002, 0.004, 0.003], "backward_s": [0.004, 0.004, 0.005],
        "step_s": [0.006, 0.008, 0.007], "rank_step_s": [0.006] * (world - 1) + [0.007], "warmup": 1, "iters": 3,
        "bytes_sent": [4096] * world, "messages": [2] * world, "peak_bytes": None,
        "extra_bytes": [2**30] * (world - 1) + [3 * 2**30], "bound_kernel": "fa4",
        "bound_forward_s": [0.002, 0.003, 0.002], "bound_step_s": [0.006, 0.005, 0.0056],
        "silent_forward_s": [0.0025, 0.0025, 0.003], "silent_step_s": [0.0065, 0.006, 0.007],
    }


def work(world):
    """Nearly even work, spread over all owners alike."""
    area = [1000 + 10 * rank for rank in range(world)]
    return {
        "area": sum(area), "flops_forward": 2 * sum(area) * 64, "flops_backward": 2 * sum(area) * 160,
        "area_by_rank": area, "area_by_hop": [[load // world] * world for load in area], "need_bytes": [1024] * world,
    }


def picture(size, world, layout, reach):
    """A window of `reach` keys."""
    owner = [i * world // size if layout == "contiguous" else i % world for i in range(size)]
    allowed = [[1.0 if i - reach < j < i else 0.5 if j == i else 0.0 for j in range(size)] for i in range(size)]
    return {"size": size, "allowed": allowed, "owner": owner}


def complete(who, world, tokens, size=16, **changes):
    """A trial with all that any figure draws."""
    one = make_trial(world=world, size=size, **changes)
    one["case"].update(tokens=tokens, id=f"{one['case']['id']}-{tokens}")
    one["implementation"].update(name=who, spec=who)
    one["measurement"]["peak_bytes"] = [2**30 + tokens * 1000] * world
    one["measurement"]["step_s"] = [tokens * 1e-6 / world * (1 + index / 50) for index in range(5)]
    one["timeline"] = {"step_s": 0.01, "ranks": [lanes(world) for _ in range(world)]}
    one["error_maps"] = error_maps(world)
    even = {"area_by_rank": [100] * world, "area_by_hop": [[9] * world] * world, "need_bytes": [8] * world}
    one["work"]["layouts"] = {"contiguous": {**even, "area_by_rank": list(range(1, world + 1))}, "striped": even}
    return one


def lanes(world):
    """What one rank did in a step: transfers of every kind and hop, and two waits."""
    return {
        "phases": [["forward", 0, 0.003], ["backward", 0.003, 0.01]],
        "transfers": [{"start": hop * 0.001, "end": hop * 0.001 + 0.0015, "kind": kind, "peer": 0, "bytes": 10,
                       "hop": hop, "phase": "forward"}
                      for hop in range(1, world) for kind in ("send", "receive", "all_gather")],
        "waits": [[0.002, 0.0025, 1], [0.009, 0.0095, None]],
    }


def error_maps(world):
    """Two tensors by tokens and heads, one by ranks and owners."""
    ratios = [[0.1, 2.0 if bin == 7 else 0.3, "inf" if bin == 3 else 0.7] for bin in range(40)]
    found = [{"tensor": name, "by": ["tokens", "heads"], "edges": list(range(0, 16 * 40 + 1, 16)),
              "ratios": [list(row) for row in ratios]} for name in ("out", "dk")]
    return [*found, {"tensor": "out", "by": ["ranks", "owners"], "ratios": [[0.5] * world for _ in range(world)]}]
