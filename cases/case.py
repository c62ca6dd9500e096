"""Shape, Inputs, Case and Scenario: one attention problem, and the line from which many cases are made."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from cases.course import Course
from cases.mask import Mask
from cases.rows import Rows
from cases.topology import Topology, parsed

WORLDS = (1, 2, 3, 4)
LAYOUTS = ("contiguous", "zigzag", "striped")
MORE_LAYOUTS = ("balanced",)
DTYPES = ("fp64", "fp32", "bf16")
MORE_DTYPES = ("fp16",)
BATCH_SEED, GROUP_SEED = 1_000_003, 10_007
LARGEST_ROWS, LARGEST_SCALE, LARGEST = 1 << 26, 1e30, 2**31 - 1
NAME, REQUIREMENT = re.compile(r"[\w.+:/ -]+"), re.compile(r"[A-Z]\d+")
KNOWN_INPUTS = {"strides": ("dense", "unbind", "transposed", "interleaved", "tail", "unlike",
                            "fused", "expanded-keys"),
                "dout": ("random", "expanded", "expanded-heads", "ones", "sum", "prompt"),
                "poison": (None, "huge", "nan", "inf")}


@dataclass(frozen=True)
class Shape:
    """Sizes of the whole problem, before it is sharded over ranks."""

    batch: int = 1
    tokens: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    value_dim: int | None = None

    def __post_init__(self):
        for name, value in vars(self).items():
            if name != "value_dim" or value is not None:
                check_whole(name, value, 1)
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.batch * self.tokens > LARGEST_ROWS:
            raise ValueError(f"batch {self.batch} x tokens {self.tokens} is more than {LARGEST_ROWS} tokens at once")

    @property
    def v_dim(self) -> int:
        return self.value_dim or self.head_dim


def check_whole(name: str, value: object, least: int) -> None:
    """Raises ValueError for what is no whole number, or too small or large a one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    if value > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST}, got {value}")


@dataclass(frozen=True)
class Inputs:
    """How the numbers are drawn and laid out in memory.

    strides   "dense", "unbind" (views of one fused tensor), "transposed" (tokens before heads in memory),
              "interleaved" (every second number of a wider tensor: no stride is 1), "tail" (the
              front of longer buffers), "unlike" (q, k, v and dout each of another kind), "fused" (q, k and v are the
              heads of one tensor, as one projection gives them, where their head_dims are equal), "expanded-keys" (k
              and v are one head's, with stride 0 over heads); what lies beside a view is NaN
    dout      "random" (signed normal), "expanded" (stride 0 over tokens), "expanded-heads" (over heads), "ones", "sum"
              (what out.sum() hands back: ones of one number, every stride 0), "prompt" (zeros in the first half of the
              row, as where a prompt has no loss)
    poison    None, "huge" (required level of B5), "nan" or "inf" (strict level): written to padded tokens and dead keys
    grads     which of q, k, v require gradients
    spread    standard deviation of q, which sets how sharp the softmax is
    outliers  factor on v and dout, and its root on k, of every seventh token; no more than the dtype holds
    """

    strides: str = "dense"
    dout: str = "random"
    poison: str | None = None
    grads: str = "qkv"
    spread: float = 1.0
    outliers: float = 1.0

    def __post_init__(self):
        for name, known in KNOWN_INPUTS.items():
            if getattr(self, name) not in known:
                raise ValueError(f"inputs.{name} {getattr(self, name)!r} is unknown: {', '.join(map(str, known))}")
        for name in ("spread", "outliers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ValueError(f"inputs.{name} is a number of at least 0, got {value!r}")
        if not isinstance(self.grads, str) or sorted(set(self.grads) & set("qkv")) != sorted(self.grads):
            raise ValueError(f"inputs.grads names some of q, k and v, got {self.grads!r}")

    @property
    def strict(self) -> bool:
        """Whether the poison is that of B5's strict level."""
        return self.poison in ("nan", "inf")


@dataclass(frozen=True)
class Case:
    """One problem at one world, layout and dtype. Frozen, hashable, rebuilt exactly from its fields."""

    name: str
    mask: Mask
    shape: Shape
    world: int
    layout: str
    dtype: str
    requirements: tuple[str, ...]
    scale: float | None = None
    inputs: Inputs = Inputs()
    seed: int = 7
    note: str = ""
    course: Course = Course()
    topology: Topology = Topology()

    def __post_init__(self):
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise ValueError(f"a case has a name of letters, digits and -_./, got {self.name!r}")
        check_whole(f"case {self.name}: world", self.world, 1)
        check_whole(f"case {self.name}: seed", self.seed, 0)
        wrong = [one for one in self.requirements if not isinstance(one, str) or not REQUIREMENT.fullmatch(one)]
        if wrong:
            raise ValueError(f"case {self.name}: requirements are ids such as A1, got {wrong[0]!r}")
        if self.topology.groups and self.world != len(parsed(self.topology.groups)[0]):
            raise ValueError(f"case {self.name}: world {self.world} is not the size of the first group of "
                             f"{self.topology.groups!r}")
        if self.scale is not None and not (isinstance(self.scale, int | float) and math.isfinite(self.scale)):
            raise ValueError(f"case {self.name}: scale is a finite number or None, got {self.scale!r}")
        if self.scale is not None and abs(self.scale) > LARGEST_SCALE:
            raise ValueError(f"case {self.name}: scale {self.scale:g} is beyond {LARGEST_SCALE:g}: scores overflow")
        for what, value, known in (("layout", self.layout, LAYOUTS + MORE_LAYOUTS),
                                   ("dtype", self.dtype, DTYPES + MORE_DTYPES)):
            if value not in known:
                raise ValueError(f"case {self.name}: unknown {what} {value!r}, known are {', '.join(known)}")

    @property
    def id(self) -> str:
        return f"{self.name}-{self.layout}-w{self.world}-{self.dtype}"

    @property
    def group(self) -> str:
        return self.name.split("/")[0]

    @property
    def ranks(self) -> int:
        """Processes that the case takes: more than its world where groups stand inside a larger one."""
        return self.topology.ranks or self.world

    @property
    def strict(self) -> bool:
        """Whether the case asks for the strict level of a requirement."""
        return self.course.strict or self.inputs.strict

    @property
    def timeable(self) -> bool:
        """Whether times say something: one load, forward and backward, in memory and at a pace of their own."""
        return replace(self.course, strict=False) == Course()

    @property
    def refused(self) -> bool:
        """Whether the only right answer is a refusal (SPEC D7)."""
        return any(rule.refused for rule in self.mask.rules)

    @cached_property
    def digest(self) -> str:
        """Changes when anything that the answer or the work depends on changes."""
        around = [asdict(part) for part in (self.course, self.topology) if part not in (Course(), Topology())]
        return _digest([self.truth_digest, self.world, self.layout, *around])

    @cached_property
    def truth_digest(self) -> str:
        """Equal for cases that have the same inputs and the same true answer, whatever their world or layout."""
        rules = [[rule.name, asdict(rule)] for rule in self.mask.rules]
        return _digest([self.name, rules, asdict(self.shape), self.dtype, self.scale, asdict(self.inputs), self.seed])

    def rows(self) -> Rows:
        """Fresh whole-row metadata."""
        return self.mask.rows(self.shape.batch, self.shape.tokens, self.shape.kv_heads)

    def batch(self, letter: str) -> "Case":
        """The problem of batch A (this one), B, C, ...: other numbers, other metadata in tensors of the same shapes."""
        number = ord(letter) - ord("A")
        if not number:
            return self
        renewed = self.course.renewed or tuple(rule.name for rule in self.mask.rules)
        rules = (rule.another(self.shape.tokens, number) if rule.name in renewed else rule for rule in self.mask.rules)
        return replace(self, mask=Mask(tuple(rules)), seed=self.seed + BATCH_SEED * number)

    def of_group(self, number: int) -> "Case":
        """What the number-th group of the topology is asked: the same at its own size, with numbers of its own."""
        world = len(parsed(self.topology.groups)[number])
        rest = replace(self.topology, groups="", beside="")
        return replace(self, world=world, seed=self.seed + GROUP_SEED * number, topology=rest)


@dataclass(frozen=True)
class Place:
    """Where a scenario is about to run, for masks that sit on shard edges."""

    world: int
    tokens: int

    @property
    def shard(self) -> int:
        """Tokens a rank holds when the row is split contiguously, rounded up."""
        return -(-self.tokens // self.world)


@dataclass(frozen=True)
class Scenario:
    """A line of a CASES tuple: a problem whose world, layout and dtype are still open.

    `requirements` are SPEC ids that this scenario is made for ("A2 B3"); B1, B2, B4 and D1 are every case's that has
    an answer, B6 every low-precision one's. `mask` is a Mask, or makes one for a Place (a window of one shard).

    course    what is done with it, beyond one load, one forward and one backward
    topology  groups inside a larger world, chunks in another order
    tier      "default", "asked" (only when a pattern names it or its group), "apart" (the same, and not with "all"),
              "named" (only by its own name)
    measured  its lengths come from the world outside: they may be cut to fewer tokens, never stretched
    least_world  fewer ranks than this have no shard edge for it to stand on
    layouts, dtypes  what it is asked in when nobody chooses; nothing leaves that to the catalogue
    """

    name: str
    requirements: str
    mask: Mask | Callable[[Place], Mask]
    shape: Shape = Shape()
    scale: float | None = None
    inputs: Inputs = Inputs()
    least_world: int = 1
    note: str = ""
    tier: str = "default"
    measured: bool = False
    course: Course = Course()
    topology: Topology = Topology()
    layouts: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        return self.name.split("/")[0]

    @property
    def plain(self) -> bool:
        """One load, forward and backward on one group of all ranks, and a true answer."""
        refused = isinstance(self.mask, Mask) and any(rule.refused for rule in self.mask.rules)
        return (self.course, self.topology) == (Course(), Topology()) and not refused

    def fits(self, world: int) -> bool:
        """Whether it can be asked of this number of ranks."""
        groups = parsed(self.topology.groups)
        return world == len(groups[0]) if groups else world >= self.least_world

    def resized(self, tokens: int) -> "Scenario":
        """The same problem with other tokens: made-up lengths keep their proportions, measured ones are cut, or stay as
        they are when they have fewer tokens; the note says so."""
        own = self.shape.tokens
        if tokens == own:
            return self
        if self.measured and tokens > own:
            return replace(self, note=_joined(self.note, f"all of its {own} tokens, {tokens} were asked for"))
        mask = self.mask
        if isinstance(mask, Mask):
            mask = mask.sliced(tokens) if self.measured else mask.stretched(own, tokens)
        said = f"leading {tokens} of {own} tokens" if self.measured else f"resized from {own} to {tokens} tokens"
        return replace(self, mask=mask, shape=replace(self.shape, tokens=tokens), note=_joined(self.note, said))

    def at(self, world: int, layout: str, dtype: str, seed: int = 7) -> Case:
        mask = self.mask if isinstance(self.mask, Mask) else self.mask(Place(world, self.shape.tokens))
        always = ("B1", "B2", "D1") + (("B4",) if self.inputs.grads else ()) + (() if dtype == "fp64" else ("B6",))
        always = () if any(rule.refused for rule in mask.rules) else always
        requirements = tuple(sorted({*self.requirements.split(), *always}))
        return Case(self.name, mask, self.shape, world, layout, dtype, requirements,
                    self.scale, self.inputs, seed, self.note, self.course, self.topology)


def _joined(note: str, more: str) -> str:
    return f"{note}; {more}" if note else more


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
