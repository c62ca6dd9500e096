"""Online softmax: folds one hop's partial output into the running one."""

import torch
from torch import Tensor


def merge_(out: Tensor, lse: Tensor, hop_out: Tensor, hop_lse: Tensor) -> None:
    """Updates out `[..., L, Dv]` and lse `[..., L]` in place by a hop's own; minus infinity marks rows without keys."""
    total = torch.logaddexp(lse, hop_lse)
    anchor = torch.where(total.isneginf(), 0.0, total)
    out.mul_((lse - anchor).exp()[..., None]).add_(hop_out * (hop_lse - anchor).exp()[..., None])
    lse.copy_(total)
