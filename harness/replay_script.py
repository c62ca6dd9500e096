"""The script of a bundle: judges the case again, or shows the bare call of an adapter, rank by rank."""

SCRIPT = '''"""@HEADLINE@

python replay.py                                         asks @SPEC@ again; needs ringcheck
python replay.py my_module:Mine                          asks another implementation
python replay.py [SPEC] --timeout 600                    further words are those of ringcheck
torchrun --nproc-per-node @RANKS@ replay.py [SPEC]               the bare call, without a judge
"""

import os
import sys
from pathlib import Path

from ringcheck.cli import main, order_paths

SPEC = @SPEC!r@
CASE = @CASE!r@
ARGUMENTS = @ARGUMENTS!r@


def call(spec):
    """What one rank loads, is given and returns; no part of ringcheck judges it."""
    import torch.distributed as dist

    from cases import generate
    from harness import contract, inputs
    from harness.implementation import Group, load
    from harness.problem import problem_of

    case, implementation = generate.from_replay(CASE), load(spec)
    dist.init_process_group("@BACKEND@")
    group = Group(dist.get_rank(), dist.get_world_size(), tuple(range(dist.get_world_size())), dist.group.WORLD)
    problem = problem_of(case, implementation.variants)
    positions = contract.positions_of(implementation.layout(case, group.size), case.shape.batch)
    local = inputs.shard(problem.given, positions[group.rank], case, "@DEVICE@")
    q, k, v = (x.requires_grad_() for x in (local.q, local.k, local.v))
    session = implementation.open(case, group)
    step = session.load(problem.rows)
    with session.scope():
        out, lse = step(q, k, v)
        out.backward(local.dout)
    lines, every = [], [None] * group.size
    for name, local_part in (("out", out), ("lse", lse), ("dq", q.grad), ("dk", k.grad), ("dv", v.grad)):
        if local_part is not None:
            true = inputs.take(getattr(problem.truth, name), positions[group.rank])
            apart = (local_part.detach().double().cpu() - true).nan_to_num(neginf=0.0).abs()
            most = float(apart.max()) if apart.numel() else 0.0
            shape = list(local_part.shape)
            lines.append(f"rank {group.rank}  {name:<3} {shape}  furthest from the truth by {most:.3g}")
    session.close()
    dist.all_gather_object(every, lines)
    if group.rank == 0:
        print("\\n".join(line for part in every for line in part))
    dist.destroy_process_group()


if __name__ == "__main__":
    order_paths()
    sys.path.append(str(Path(__file__).resolve().parent))
    named = sys.argv[1:2] if not sys.argv[1:2] or not sys.argv[1].startswith("-") else []
    asked, further = (named or [SPEC])[0], sys.argv[1 + len(named):]
    if "WORLD_SIZE" in os.environ:
        call(asked)
    else:
        sys.exit(main(["--impl", asked, "--cases", CASE, *ARGUMENTS, *further]))
'''


def script(spec: str, case: str, headline: str, ranks: int, device: str, backend: str, arguments: list[str]) -> str:
    """The text of replay.py; case: what `generate.replay` printed, arguments: further words of the command line."""
    words = {"@HEADLINE@": " ".join(headline.split()).replace("\\", "/").replace('"""', "'''"), "@SPEC@": spec,
             "@RANKS@": str(ranks), "@SPEC!r@": repr(spec), "@CASE!r@": repr(case), "@ARGUMENTS!r@": repr(arguments),
             "@BACKEND@": backend, "@DEVICE@": device}
    text = SCRIPT
    for mark, value in words.items():
        text = text.replace(mark, value)
    return text
