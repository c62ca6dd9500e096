"""Guesses about who attends whom: rules ignored, shifted, misread, or read from the wrong tokens."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from cases.mask import Mask
from cases.rows import Rows
from cases.rules.rule import Rule
from harness import contract
from harness.hypotheses.evidence import Evidence, Guess


def rule_ignored(evidence: Evidence) -> Iterator[Guess]:
    rules, rows = evidence.problem.mask.rules, evidence.problem.rows
    for rule in rules:
        rest = Mask(tuple(other for other in rules if other is not rule))
        bare = replace(rows, **{rule.name: None}) if rule.name in ("documents", "padding") else rows
        yield from evidence.over(f"the rule {rule.name} is ignored", rule.requirement, evidence.pairs(rest, bare))


def documents_without_padding(evidence: Evidence) -> Iterator[Guess]:
    """The documents go and what they call padding stays."""
    rows = evidence.problem.rows
    if rows.documents is not None:
        mask = _without(evidence, "documents")
        yield from evidence.over("documents are ignored, all but their padding", "A3", evidence.pairs(mask))


def window_shifted(evidence: Evidence) -> Iterator[Guess]:
    for rule in _named(evidence, "window"):
        for change, words in ((1, "one key too many"), (-1, "one key too few")):
            if rule.size + change >= 1:
                other = _instead(evidence, rule, replace(rule, size=rule.size + change))
                yield from evidence.over(f"the window holds {words}", "A2", evidence.pairs(other))


def window_misread(evidence: Evidence) -> Iterator[Guess]:
    for rule in _named(evidence, "window"):
        rest = evidence.pairs(_without(evidence, "window"))
        apart = _distance(evidence.local)
        yield from evidence.over("the window is measured inside each shard, not along the row", "A2",
                                 rest & (apart < rule.size))
        other = evidence.apart
        yield from evidence.over("the window holds only on the query's own rank", "A2",
                                 torch.where(other == 0, evidence.allowed, rest))
        own = torch.where(other == 0, rest, evidence.allowed)
        yield from evidence.over("the window is not applied on the query's own rank", "A2", own)
        if "causal" not in {other.name for other in evidence.problem.mask.rules}:
            narrow = evidence.allowed & (_distance(_positions(evidence)).abs() < rule.size)
            yield from evidence.over("the window bounds both sides", "A2", narrow)
        for factor, words in ((2, "twice"), (0.5, "half")):
            size = int(rule.size * factor)
            if size >= 1:
                other = _instead(evidence, rule, replace(rule, size=size))
                yield from evidence.over(f"the window is {words} as wide", "A2", evidence.pairs(other))


def pinned_variant(evidence: Evidence) -> Iterator[Guess]:
    """A variant that the case asks for by name and that is neither followed nor refused."""
    for rule in evidence.problem.mask.rules:
        if rule.variant is not None:
            mask = _instead(evidence, rule, replace(rule, variant=None))
            words = f"{rule.name}.{rule.variant} is asked, and answered is the plain {rule.name}"
            yield from evidence.over(words, "D7", evidence.pairs(mask))


def other_variant(evidence: Evidence) -> Iterator[Guess]:
    for rule in evidence.problem.mask.rules:
        for variant in rule.variants:
            if variant != rule.variant:
                words = f"{rule.name}.{variant} is answered, and asked is {_full(rule)}"
                mask = _instead(evidence, rule, replace(rule, variant=variant))
                yield from evidence.over(words, rule.requirement, evidence.pairs(mask))


def _full(rule: Rule) -> str:
    return f"{rule.name}.{rule.variant}" if rule.variant else f"the plain {rule.name}"


def causal_misread(evidence: Evidence) -> Iterator[Guess]:
    if not list(_named(evidence, "causal")):
        yield from evidence.over("a causal rule that nobody asked for", "A1",
                                 evidence.allowed & (_distance(_positions(evidence)) >= 0))
        return
    open_ended, here = evidence.pairs(_without(evidence, "causal")), _distance(evidence.local)
    order = _distance(evidence.owner)
    apart = _distance(_positions(evidence))
    yield from evidence.over("a query does not see itself", "A1", evidence.allowed & (apart != 0))
    yield from evidence.over("a query sees the token after it", "A1", evidence.allowed | open_ended & (apart == -1))
    if evidence.world > 1:
        yield from evidence.over("the causal rule is applied at every hop, as if each shard began the row", "A1",
                                 evidence.allowed & (here >= 0))
        yield from evidence.over("the causal rule compares places inside shards", "A1", open_ended & (here >= 0))
        yield from evidence.over("the causal order of hops is inverted", "A1",
                                 torch.where(order == 0, evidence.allowed, open_ended & (order < 0)))
        yield from evidence.over("the causal rule holds only on the query's own rank", "A1",
                                 torch.where(order == 0, evidence.allowed, open_ended))
        yield from evidence.over("the causal rule compares ranks, not positions", "A1", open_ended & (order >= 0))


def documents_misread(evidence: Evidence) -> Iterator[Guess]:
    rows = evidence.problem.rows
    if rows.documents is None:
        return
    ids, shard = rows.documents, -(-rows.tokens // evidence.world)
    changed = {
        "documents begin one token late": ids.roll(1, 1).where(torch.arange(rows.tokens) > 0, ids),
        "documents begin one token early": ids.roll(-1, 1).where(torch.arange(rows.tokens) < rows.tokens - 1, ids),
        "the first row's documents are used for every row": ids[:1].expand_as(ids),
        "documents are read from the next rank's shard": ids.roll(-shard, 1),
        "documents are read from the previous rank's shard": ids.roll(shard, 1),
        "document ids are read modulo 2^31": ids % (1 << 31),
        "interleaved documents are sorted": ids.sort(1).values,
        "ids of padding are documents like any other": ids - ids.min() + 1,
    }
    for words, other in changed.items():
        yield from evidence.over(words, "A3", evidence.pairs(evidence.problem.mask, replace(rows, documents=other)))
    yield from evidence.over("documents are cut at shard edges", "A3",
                             evidence.allowed & (evidence.owner[:, :, None] == evidence.owner[:, None])[:, None])
    rest = evidence.pairs(_without(evidence, "documents"))
    yield from evidence.over("documents are told apart only on the query's own rank", "A3",
                             torch.where(evidence.apart == 0, evidence.allowed, rest))
    yield from evidence.over("documents are told apart only between ranks", "A3",
                             torch.where(evidence.apart == 0, rest, evidence.allowed))
    last = torch.ones_like(ids, dtype=torch.bool)
    last[:, :-1] = ids[:, 1:] != ids[:, :-1]
    yield from evidence.over("the last token of each document is left out", "A3",
                             evidence.allowed & ~last[:, None, None])


def padding_misread(evidence: Evidence) -> Iterator[Guess]:
    """A pad that attends or is attended, and a mask that is shifted, inverted or not joined with ids of padding."""
    rows, mask = evidence.problem.rows, evidence.problem.mask
    padded = rows.padded[:, None]
    if not bool(padded.any()):
        return
    ids = None if rows.documents is None else rows.documents.clamp(min=0) - rows.documents.clamp(max=0)
    free = evidence.pairs(mask, replace(rows, padding=None, documents=ids))
    yield from evidence.over("padded keys leak", "A4", free & ~padded[..., None])
    yield from evidence.over("padded queries attend", "A4", free & ~padded[:, :, None])
    yield from evidence.over("padding is ignored", "A4", free)
    if rows.padding is not None:
        for by, words in ((1, "late"), (-1, "early")):
            other = replace(rows, padding=rows.padding.roll(by, 1))
            yield from evidence.over(f"padding begins one token {words}", "A4", evidence.pairs(mask, other))
        yield from evidence.over("the padding mask is inverted", "A4",
                                 evidence.pairs(mask, replace(rows, padding=~rows.padding)))
        yield from evidence.over("the first row's padding is used for every row", "A4",
                                 evidence.pairs(mask, replace(rows, padding=rows.padding[:1].expand_as(rows.padding))))
        if rows.documents is not None:
            other = evidence.pairs(_without(evidence, "documents"), replace(rows, documents=None))
            yield from evidence.over("documents are dropped when a padding mask is given", "A3", other)


def vision_misread(evidence: Evidence) -> Iterator[Guess]:
    rows = evidence.problem.rows
    for rule in _named(evidence, "vision"):
        rest = evidence.pairs(_without(evidence, "vision"))
        apart, edges = _distance(_positions(evidence)), evidence.apart == 0
        yield from evidence.over("vision groups are numbered per shard: none crosses a shard edge", "A5",
                                 rest | evidence.allowed & edges)
        single = _groups(rows.token_types)
        yield from evidence.over("images and videos side by side are groups of their own", "A5",
                                 rest | evidence.allowed & (single[:, :, None] == single[:, None])[:, None])
        broad = (rows.token_types > 0) & ~rows.padded
        every = (broad[:, :, None] & broad[:, None])[:, None]
        yield from evidence.over("all vision tokens are one group", "A5", rest | every)
        groups = rule.allowed(rows, *[torch.arange(rows.tokens)] * 2)
        yield from evidence.over("vision groups cross documents and padding", "A5", evidence.allowed | groups)
        inside = groups & ~rows.padded[:, None, None] & ~rows.padded[:, None, :, None]
        yield from evidence.over("vision groups cross documents", "A5", evidence.allowed | inside)
        yield from evidence.over("vision groups look back only", "A5", evidence.allowed & (rest | (apart >= 0)))
        yield from evidence.over("vision groups replace the other rules", "A5",
                                 torch.where((broad[:, :, None])[:, None], evidence.allowed & groups, evidence.allowed))


def regions_misread(evidence: Evidence) -> Iterator[Guess]:
    rows, mask = evidence.problem.rows, evidence.problem.mask
    if rows.selected is None:
        return
    rest, last = evidence.pairs(_without(evidence, "regions")), rows.regions - 1
    own = (rows.token_regions[:, :, None] == rows.token_regions[:, None])[:, None]
    yield from evidence.over("a query's own region is always attended", "A6", evidence.allowed | rest & own)
    yield from evidence.over("a query's own region is never attended", "A6", evidence.allowed & ~own)
    unused = rows.selected == rows.regions
    changed = {
        "group 0's regions are used for every group": rows.selected[:, :1].expand_as(rows.selected),
        "groups take each other's regions": rows.selected.flip(1),
        "regions are one too high": (rows.selected + 1).clamp(max=rows.regions),
        "regions are one too low": (rows.selected - 1).clamp(min=0).masked_fill(unused, rows.regions),
        "unused slots select the last region": rows.selected.clamp(max=last),
        "unused slots select region 0": rows.selected.masked_fill(unused, 0),
        "only the first selected region is attended": rows.selected.clone().index_fill_(
            -1, torch.arange(1, rows.selected.shape[-1]), rows.regions),
        "the last slot is left out": rows.selected.clone().index_fill_(-1, torch.tensor([-1]), rows.regions),
        "the first row's regions are used for every row": rows.selected[:1].expand_as(rows.selected),
        "queries take the selection of the query before": rows.selected.roll(1, 2),
    }
    for words, other in changed.items():
        yield from evidence.over(words, "A6", evidence.pairs(mask, replace(rows, selected=other)))
    for by, words in ((1, "late"), (-1, "early")):
        moved = rows.token_regions.roll(by, 1)
        moved[:, 0 if by > 0 else -1] = rows.token_regions[:, 0 if by > 0 else -1]
        yield from evidence.over(f"regions begin one token {words}", "A6",
                                 evidence.pairs(mask, replace(rows, token_regions=moved)))
    size = max(1, -(-rows.tokens // max(1, rows.regions)))
    even = (torch.arange(rows.tokens) // size).expand_as(rows.token_regions)
    yield from evidence.over("regions are taken to be of one size", "A6",
                             evidence.pairs(mask, replace(rows, token_regions=even)))


def refilled(evidence: Evidence) -> Iterator[Guess]:
    rows = contract.copied(evidence.problem.rows)
    if contract.metadata(rows):
        contract.refill(rows)
        yield from evidence.over("metadata is read after its buffers were refilled", "D3",
                                 evidence.pairs(evidence.problem.mask, rows))


def first_row(evidence: Evidence) -> Iterator[Guess]:
    """One tensor of metadata of which only the first row is read; the others have guesses of their own above."""
    rows = evidence.problem.rows
    for name, words in (("token_types", "token types"), ("token_regions", "regions of keys")):
        given = getattr(rows, name)
        if rows.batch > 1 and given is not None:
            other = replace(rows, **{name: given[:1].expand_as(given)})
            yield from evidence.over(f"the first row's {words} are used for every row", "A7",
                                     evidence.pairs(evidence.problem.mask, other))


def row_mixed(evidence: Evidence) -> Iterator[Guess]:
    if evidence.problem.rows.batch > 1:
        yield from evidence.over("batch rows take each other's mask", "A7", evidence.allowed.roll(1, 0))
        yield from evidence.over("the first row's mask is used for every row", "A7",
                                 evidence.allowed[:1].expand_as(evidence.allowed))


HYPOTHESES = (rule_ignored, pinned_variant, window_shifted, other_variant, documents_without_padding, padding_misread,
              documents_misread, causal_misread, window_misread, vision_misread, regions_misread, first_row,
              row_mixed, refilled)


def _named(evidence: Evidence, name: str) -> Iterator[Rule]:
    return (rule for rule in evidence.problem.mask.rules if rule.name == name)


def _without(evidence: Evidence, name: str) -> Mask:
    return Mask(tuple(rule for rule in evidence.problem.mask.rules if rule.name != name))


def _instead(evidence: Evidence, rule: Rule, other: Rule) -> Mask:
    return Mask(tuple(other if own is rule else own for own in evidence.problem.mask.rules))


def _positions(evidence: Evidence) -> Tensor:
    rows: Rows = evidence.problem.rows
    return torch.arange(rows.tokens).expand(rows.batch, -1)


def _distance(place: Tensor) -> Tensor:
    """`[B, S]` -> `[B, 1, S, S]`: place of the query minus place of the key."""
    return (place[:, :, None] - place[:, None])[:, None]


def _groups(types: Tensor) -> Tensor:
    """`[B, S]`: number of the run of one token type."""
    numbers = torch.zeros_like(types)
    numbers[:, 1:] = (types[:, 1:] != types[:, :-1]).cumsum(-1)
    return numbers
