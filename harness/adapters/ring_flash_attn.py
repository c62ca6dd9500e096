"""ring-flash-attn 0.1.8: its five rings as implementations, one class a function of the package.

The package imports flash_attn, and for Hugging Face names of transformers that are gone. It is imported with a
stand-in for the first where that is missing, and always without the second.
"""

import importlib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

import torch
from torch import Tensor

from cases.case import Case
from cases.rows import Rows
from harness.adapters import flash_attn_stand_in as flash
from harness.implementation import Group, Implementation, Setting, Step

WRITTEN_FOR = "0.1.8"
INSTALL = f"pip install --no-deps ring-flash-attn=={WRITTEN_FOR}"
GONE = ("substitute_hf_flash_attn", "update_ring_flash_attn_params")


def missing() -> str | None:
    """A reason when the package is not here in the version that this file was written for. Imports nothing."""
    try:
        found = version("ring-flash-attn")
    except PackageNotFoundError:
        return f"needs the package ring-flash-attn, which is not installed: {INSTALL}"
    return None if found == WRITTEN_FOR else f"is written for ring-flash-attn {WRITTEN_FOR}, found {found}: {INSTALL}"


@cache
def package() -> ModuleType:
    adapters = ModuleType("ring_flash_attn.adapters")
    vars(adapters).update(dict.fromkeys(GONE))
    with flash.standing_in(), flash.instead({adapters.__name__: adapters}):
        return importlib.import_module("ring_flash_attn")


class RingFlashAttn(Implementation):
    """What the five have in common.

    function  its name in the package
    rules     what a mask may consist of
    full      masks without causal are taken
    chunks    tokens, or those of each document, are cut into so many equal chunks a rank
    to_itself gradients are sent around the ring even where it has one rank
    """

    function: str
    rules = frozenset({"causal"})
    full = False
    chunks = 1
    to_itself = True

    def refuses(self, case: Case, setting: Setting) -> str | None:
        """Also notes the kernel of this device for the record."""
        self.kernel = flash.kernel(setting.device)
        return (missing() or self._rule(case) or flash.refuses(case, setting.device) or
                self._alone(setting) or self._place(case, setting.world))

    def load(self, case: Case, group: Group, batch: Rows) -> Step:
        function, causal = getattr(package(), self.function), _causal(case)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            out, lse, _ = function(*(x.transpose(1, 2) for x in (q, k, v)), softmax_scale=case.scale, causal=causal,
                                   return_attn_probs=True, group=group.process_group)
            return out.transpose(1, 2), lse.detach()

        return step

    def _rule(self, case: Case) -> str | None:
        unknown = [rule.name for rule in case.mask.rules if rule.name not in self.rules]
        if unknown:
            return f"no mask rule {', '.join(unknown)}"
        return None if self.full or _causal(case) else "causal masks only"

    def _alone(self, setting: Setting) -> str | None:
        lonely = self.to_itself and (setting.world, setting.device) == (1, "cpu")
        return "a single rank sends gradients to itself, which gloo cannot" if lonely else None

    def _place(self, case: Case, world: int) -> str | None:
        if case.shape.tokens % (self.chunks * world):
            return f"{case.shape.tokens} tokens are not a multiple of {self.chunks * world}"
        return None


class Ring(RingFlashAttn):
    name = "ring-flash-attn:ring"
    function = "ring_flash_attn_func"
    own_layout = "contiguous"
    full = True

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return list(torch.arange(case.shape.tokens).chunk(world))


class Zigzag(RingFlashAttn):
    name = "ring-flash-attn:zigzag"
    function = "zigzag_ring_flash_attn_func"
    own_layout = "zigzag"
    chunks = 2

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return zigzag([case.shape.tokens], world)


class Stripe(RingFlashAttn):
    """Of a single token a rank it would call the kernel without queries."""

    name = "ring-flash-attn:stripe"
    function = "stripe_flash_attn_func"
    own_layout = "striped"

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return list(torch.arange(case.shape.tokens).view(-1, world).mT)

    def _place(self, case: Case, world: int) -> str | None:
        few = case.shape.tokens < 2 * world and "needs two tokens a rank"
        return super()._place(case, world) or few or None


class Packed(RingFlashAttn):
    """Documents are runs of equal ids, and so is padding: documents whose own results nobody reads."""

    rules = frozenset({"causal", "documents"})
    variants = frozenset({"documents.runs", "dead.undefined"})


class ZigzagVarlen(Packed):
    """Each document is cut in zigzag over the ranks, so that the layout follows the documents of all rows."""

    name = "ring-flash-attn:zigzag-varlen"
    function = "zigzag_ring_flash_attn_varlen_func"
    own_layout = "zigzag by document"
    chunks = 2

    def layout(self, case: Case, world: int) -> list[Tensor]:
        rows = [zigzag(lengths, world) for lengths in documents(case.rows())]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]

    def load(self, case: Case, group: Group, batch: Rows) -> Step:
        function = getattr(package(), self.function)
        lengths = [length // group.size for row in documents(batch) for length in row]
        starts = cache(torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32).to)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return packed(function, (q, k, v), starts(q.device), max(lengths), softmax_scale=case.scale, causal=True,
                          return_attn_probs=True, group=group.process_group)

        return step

    def _place(self, case: Case, world: int) -> str | None:
        first, *others = [documents(case.batch(letter).rows()) for letter in sorted(case.course.batches)]
        odd = [length for row in first for length in row if length % (2 * world)]
        if odd:
            return f"a document of {odd[0]} tokens is not a multiple of {2 * world}"
        return "documents that change, since its layout follows them" if any(o != first for o in others) else None


class Llama3(Packed):
    """Gathers the keys of one key/value head at a time (heads_k_stride 1, as its readme has it)."""

    name = "ring-flash-attn:llama3"
    function = "llama3_flash_attn_varlen_func"
    own_layout = "contiguous"
    full = True
    to_itself = False

    def layout(self, case: Case, world: int) -> list[Tensor]:
        return list(torch.arange(case.shape.tokens).chunk(world))

    def load(self, case: Case, group: Group, batch: Rows) -> Step:
        function, prepare = getattr(package(), self.function), package().llama3_flash_attn_prepare_cu_seqlens
        starts, causal = torch.tensor([0, *documents(batch)[0]]).cumsum(0, dtype=torch.int32), _causal(case)
        *starts, most_q, most_k, keys = prepare(starts, causal, group.rank, group.size)
        starts_q, starts_k = (cache(one.to) for one in starts)

        def step(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return packed(function, (q, k, v), starts_q(q.device), starts_k(q.device), most_q, most_k, 1, keys,
                          softmax_scale=case.scale, causal=causal, return_attn_probs=True, group=group.process_group)

        return step

    def _place(self, case: Case, world: int) -> str | None:
        return "one row at a time" if case.shape.batch > 1 else super()._place(case, world)


def zigzag(lengths: list[int], world: int) -> list[Tensor]:
    """Positions of every rank: of each document chunks r and 2 * world - 1 - r."""
    parts = [part.chunk(2 * world) for part in torch.arange(sum(lengths)).split(lengths)]
    return [torch.cat([chunks[i] for chunks in parts for i in (rank, -1 - rank)]) for rank in range(world)]


def documents(rows: Rows) -> list[list[int]]:
    """Lengths of the runs of equal ids, of every batch row."""
    if rows.documents is None:
        return [[rows.tokens]] * rows.batch
    return [torch.unique_consecutive(row, return_counts=True)[1].tolist() for row in rows.documents]


def packed(function, tensors: tuple[Tensor, ...], *args, **kwargs) -> tuple[Tensor, Tensor]:
    """A function of packed tokens `[T, H, D]`, which gives lse `[Hq, T]`, on rows `[B, H, L, D]`."""
    rows = tensors[0].shape[0], tensors[0].shape[2]
    out, lse, _ = function(*(x.transpose(1, 2).flatten(0, 1) for x in tensors), *args, **kwargs)
    return out.unflatten(0, rows).transpose(1, 2), lse.unflatten(1, rows).transpose(0, 1).detach()


def _causal(case: Case) -> bool:
    return any(rule.name == "causal" for rule in case.mask.rules)
