"""Topology: which ranks of a world form the context-parallel groups, who holds which chunk, and how."""

from dataclasses import dataclass

ORDERS = ("ranked", "rotated", "reversed", "descending", "halves", "padded")


@dataclass(frozen=True)
class Topology:
    """Plain strings; the default is one group of all ranks, rank r holding chunk r of the layout.

    groups  "0,2|1,3": global ranks of each group; all groups run the case at once, each with numbers of its own
    beside  "0,1|2,3": groups of another mesh dimension, which are busy all the while
    order   which chunk group rank r holds: "ranked" r, "rotated" r + 1, "reversed" the r-th from the end; "descending"
            r from its last token to its first, "halves" r with its second half before its first, "padded" r filled up
            to the longest with slots that hold no token
    """

    groups: str = ""
    beside: str = ""
    order: str = "ranked"

    def __post_init__(self):
        if self.order not in ORDERS:
            raise ValueError(f"topology: unknown order {self.order!r}, known are {', '.join(ORDERS)}")
        for text in (self.groups, self.beside):
            ranks = sorted(rank for group in parsed(text) for rank in group)
            if ranks != list(range(len(ranks))):
                raise ValueError(f"topology: {text!r} does not name every rank from 0 on exactly once")
        if self.beside and len(parsed(self.beside)) and _count(self.beside) != _count(self.groups):
            raise ValueError(f"topology: {self.beside!r} and {self.groups!r} are not about the same ranks")

    @property
    def ranks(self) -> int:
        """Ranks of the whole world, 0 where the groups are left open."""
        return _count(self.groups)

    def chunk(self, rank: int, world: int) -> int:
        """The chunk that group rank `rank` of `world` holds."""
        return {"rotated": (rank + 1) % world, "reversed": world - 1 - rank}.get(self.order, rank)


def parsed(groups: str) -> tuple[tuple[int, ...], ...]:
    """"0,2|1,3" -> ((0, 2), (1, 3)). Raises ValueError."""
    try:
        found = tuple(tuple(sorted(map(int, group.split(",")))) for group in groups.split("|")) if groups else ()
    except ValueError:
        raise ValueError(f"topology: {groups!r} is no list of groups such as '0,2|1,3'") from None
    return found


def _count(groups: str) -> int:
    return sum(map(len, parsed(groups)))
