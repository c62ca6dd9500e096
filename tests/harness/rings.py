"""Rings with one habit each that a single forward and backward does not show."""

import torch
import torch.distributed as dist

from harness.adapters.dense import Dense, Gathered, attend
from harness.adapters.ring import Ring, RingSession
from ringcp.exchange import Distributed


class Cached(Dense):
    """Keeps the step of a batch under `key(batch)`, as if equal keys were equal metadata."""

    def load(self, case, group, batch):
        kept = group.shared.setdefault(("steps", group.rank), {})
        key = self.key(batch)
        if key not in kept:
            kept[key] = super().load(case, group, batch)
        return kept[key]


class CachedByShape(Cached):
    def key(self, batch):
        return batch.documents.shape


class CachedByAddress(Cached):
    def key(self, batch):
        return batch.documents.data_ptr(), batch.padding.data_ptr()


class CachedByPadding(Cached):
    """By the content of one of its tensors, and by nothing else."""

    def key(self, batch):
        return tuple(batch.padding.flatten().tolist())


class ReadsNewest(Dense):
    """Every step reads the metadata that was loaded last."""

    def load(self, case, group, batch):
        group.shared["newest", group.rank] = super().load(case, group, batch)
        return lambda q, k, v: group.shared["newest", group.rank](q, k, v)


class OneBuffer(Dense):
    """Returns its output in one buffer that every call overwrites."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def buffered(q, k, v):
            out, lse = step(q, k, v)
            kept = group.shared.setdefault(("lse", group.rank), torch.empty_like(lse))
            kept.copy_(lse)
            return out, kept

        return buffered


class Unsteady(Dense):
    """The last bits differ from call to call."""

    deterministic = True

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def unsteady(q, k, v):
            count = group.shared["calls", group.rank] = group.shared.get(("calls", group.rank), 0) + 1
            out, lse = step(q, k, v)
            return out * (1 + 1e-15 * count), lse

        return unsteady


class ReadsUnwritten(Dense):
    """Adds what it finds in memory that nobody wrote."""

    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def careless(q, k, v):
            out, lse = step(q, k, v)
            return out + 0 * out.new_empty(out.shape[-1]).clamp(-1, 1), lse

        return careless


class Obedient(Dense):
    """Runs what it cannot do."""

    def refuses(self, case, setting):
        return None


class OwnByGlobalRank(Dense):
    """Takes its place in the whole world for its place in the group."""

    def load(self, case, group, batch):
        wrong = dist.get_rank() % group.size
        own = self.layout(case, group.size)[wrong]
        allowed = case.mask.allowed(batch, own.clamp(min=0), torch.arange(batch.tokens)) & (own >= 0)[:, None]
        allowed = allowed.repeat_interleave(case.shape.heads // allowed.shape[1], 1)

        def step(q, k, v):
            k, v = (Gathered.apply(x, group)[:, :, :batch.tokens] for x in (k, v))
            return attend(q, k, v, allowed, case.scale)

        return step


class SideStream(Dense):
    """Attends on a stream of its own that waits for its inputs, and returns what nobody waits for."""

    def load(self, case, group, batch):
        step, beside = super().load(case, group, batch), torch.cuda.Stream()

        def hasty(q, k, v):
            out, lse = step(q, k, v)
            result = torch.zeros_like(out)
            beside.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(beside):
                result = result + out
            return result, lse

        return hasty


class SentBeforePacked(Ring):
    """Its transfers do not wait for the kernels that pack them."""

    def open(self, case, group):
        session = RingSession(self, case, group)
        session.exchange = _Hasty(group.process_group)
        return session


class _Hasty(Distributed):
    def prepare(self, sends, receives, channel=0):
        prepared = super().prepare(sends, receives, channel)
        prepared._ready = torch.cuda.Event()
        return prepared
