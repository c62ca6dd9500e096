"""Reads the traces of all ranks side by side: who did what last, and where they first part."""

from collections.abc import Iterator

from harness.trace import Call

Calls = dict[int, list[Call]]
SIZED = ("all_reduce", "broadcast", "reduce")


def last_calls(calls: Calls) -> list[str]:
    """Each rank's last call in words, in order of rank."""
    return [f"rank {rank} last made {made[-1].words()} (call {len(made)}, {made[-1].phase})" if made
            else f"rank {rank} made no call" for rank, made in sorted(calls.items())]


def first(calls: Calls) -> str | None:
    """The earliest call at which ranks part, in words: collectives out of step, transfers without or unlike an end."""
    found = sorted((*_collectives(calls), *_transfers(calls)))
    return found[0][1] if found else None


def headline(calls: Calls) -> list[str]:
    """`first` for the first line of an error, where there is something to say."""
    found = first(calls)
    return [f"ranks part at {found}"] if found else []


def unlike(calls: Calls) -> list[str]:
    """All of them. After a trial that came to its end there should be none."""
    return [words for _, words in sorted((*_collectives(calls), *_transfers(calls)))]


def _collectives(calls: Calls) -> Iterator[tuple[int, str]]:
    """(position, words) for the first collective of each group that not all of its ranks make alike."""
    groups = {call.group: call.ranks for made in calls.values() for call in made if call.collective}
    for group, ranks in groups.items():
        of_rank = {rank: [(place, call) for place, call in enumerate(calls.get(rank, []))
                          if call.collective and call.group == group] for rank in ranks}
        for number in range(max(map(len, of_rank.values()))):
            now = {rank: made[number] for rank, made in of_rank.items() if number < len(made)}
            if len({_alike(call) for _, call in now.values()}) > 1 or len(now) < len(ranks):
                yield min(place for place, _ in now.values()), _parted(now, ranks)
                break


def _alike(call: Call) -> tuple:
    return call.kind, call.peer, call.bytes if call.kind in SIZED else 0


def _parted(now: dict[int, tuple[int, Call]], ranks: tuple[int, ...]) -> str:
    said: dict[str, list[int]] = {}
    for rank in ranks:
        said.setdefault(now[rank][1].words() if rank in now else "no such call", []).append(rank)
    told = (f"rank{'s' * (len(who) > 1)} {','.join(map(str, who))}: {words}" for words, who in said.items())
    return f"collective out of step: {'; '.join(told)}"


def _transfers(calls: Calls) -> Iterator[tuple[int, str]]:
    """(position, words) for the first transfer of each pair and tag whose ends do not fit."""
    ends: dict[tuple, dict[str, list[tuple[int, Call]]]] = {}
    for rank, made in calls.items():
        for place, call in enumerate(made):
            if call.kind in ("send", "recv") and call.peer >= 0:
                pair = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
                both = ends.setdefault((call.group, *pair, call.tag), {"send": [], "recv": []})
                both[call.kind].append((place, call))
    for (_, source, target, _), both in ends.items():
        for number in range(max(map(len, both.values()))):
            sent, awaited = (both[kind][number] if number < len(both[kind]) else None for kind in ("send", "recv"))
            if sent is None or awaited is None:
                place, call = sent or awaited
                yield place, f"rank {source if sent else target}: {call.words()}, which the other end never makes"
                break
            if sent[1].bytes != awaited[1].bytes:
                yield min(sent[0], awaited[0]), (f"rank {source}: {sent[1].words()}, but rank {target}: "
                                                 f"{awaited[1].words()}")
                break
