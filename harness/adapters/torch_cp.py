"""torch-cp: torch's own context parallelism for scaled_dot_product_attention, torch 2.11 to 2.13.

`context_parallel` patches scaled_dot_product_attention and cuts the buffers that it is given, in place. Here it is held
around forward and backward and given nothing but positions: q, k and v come as shards already, in its own layout. The
call, the ring and its backward are the library's. It gives no lse. Flash and cuDNN take grouped heads as they are
(`enable_gqa`); the efficient kernel does not, so keys and values are repeated before it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from cases.case import Case
from cases.rows import Rows
from harness.implementation import Group, Implementation, Session, Setting, Step
from harness.inputs import DTYPES

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION}
GROUPED = ("flash", "cudnn")
LEAST = 128


class TorchCp(Implementation):
    """Causal in the layout of its head-tail load balancer, which is zigzag."""

    name = "torch-cp"
    kernel = "flash"
    kernels = tuple(BACKENDS)
    own_layout = "zigzag"
    device = "cuda"

    def refuses(self, case: Case, setting: Setting) -> str | None:
        if setting.device != self.device:
            return f"runs on {self.device} only"
        if [rule.name for rule in case.mask.rules] != ["causal"]:
            return f"takes causal alone, not {case.mask}"
        if case.shape.tokens % (2 * setting.world):
            return f"{case.shape.tokens} tokens are not a multiple of {2 * setting.world}"
        return lacking(case, setting.world, self.kernel)

    def layout(self, case: Case, world: int) -> list[Tensor]:
        parts = torch.arange(case.shape.tokens).chunk(2 * world)
        return [torch.cat([parts[rank], parts[-1 - rank]]) for rank in range(world)]

    def open(self, case: Case, group: Group) -> "TorchCpSession":
        return TorchCpSession(self, case, group)


class TorchCpSession(Session):
    def __init__(self, implementation: TorchCp, case: Case, group: Group):
        super().__init__(implementation, case, group)
        self.mesh = group.mesh(implementation.device)
        with self._parallel() as positions:
            if not torch.equal(positions.cpu(), implementation.layout(case, group.size)[group.rank]):
                raise RuntimeError("context_parallel does not shard in zigzag: was its load balancing turned off?")

    @contextmanager
    def scope(self) -> Iterator[None]:
        with self._parallel(), sdpa_kernel(BACKENDS[self.implementation.kernel]):
            yield

    def load(self, batch: Rows) -> Step:
        grouped, scale = self.implementation.kernel in GROUPED, self.case.scale

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, None]:
            if not grouped:
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale,
                                                           enable_gqa=q.shape[1] != k.shape[1]), None

        return step

    @contextmanager
    def _parallel(self) -> Iterator[Tensor]:
        """The context, with the positions that it leaves this rank."""
        positions = torch.arange(self.case.shape.tokens, device=self.mesh.device_type)
        with context_parallel(self.mesh, buffers=[positions], buffer_seq_dims=[0], no_restore_buffers={positions}):
            yield positions


def lacking(case: Case, world: int, kernel: str) -> str | None:
    """A reason when torch itself says that this kernel cannot run the case on this GPU."""
    able = {"flash": torch.backends.cuda.can_use_flash_attention, "cudnn": torch.backends.cuda.can_use_cudnn_attention,
            "efficient": torch.backends.cuda.can_use_efficient_attention}
    shape, length = case.shape, min(LEAST, case.shape.tokens // (2 * world))
    kv_heads = shape.kv_heads if kernel in GROUPED else shape.heads
    sizes = ((shape.heads, shape.head_dim), (kv_heads, shape.head_dim), (kv_heads, shape.v_dim))
    q, k, v = (torch.empty(shape.batch, heads, length, dim, dtype=DTYPES[case.dtype], device="cuda",
                           requires_grad=True) for heads, dim in sizes)
    asked = torch.backends.cuda.SDPAParams(q, k, v, None, 0.0, True, kv_heads != shape.heads)
    if able[kernel](asked):
        return None
    return (f"torch has no {kernel} kernel here for {case.dtype}, head_dim {shape.head_dim} and {shape.v_dim}, "
            f"{shape.heads} and {kv_heads} heads")
