"""Course: what a trial does with a case beyond one load, one forward and one backward."""

import re
from dataclasses import dataclass

WITHOUT_GRAD = ("peek", "infer")
FORWARDS = ("forward", "checkpoint", "reentrant", "offload", "inner", "autocast", "lowered", *WITHOUT_GRAD)
BACKWARDS = ("backward", "backward first", "retain", "together")
VERBS = ("load", *FORWARDS, "backward", "retain", "together")
RECOMPUTES = ("checkpoint", "reentrant", "offload")
BUFFERS = ("fresh", "reused", "kept", "freed")
ONCE = "load A, forward A, backward A"
ACTION = re.compile(r"([a-z]+) ([A-Z])( first)?")


@dataclass(frozen=True)
class Course:
    """Plain values; the default is one load, one forward and one backward.

    steps    actions in their order, "VERB BATCH". Batch A is the case itself, B, C, ... are later ones (Case.batch).
             load      hands over a batch's metadata and prepares its step
             forward   runs the step; `checkpoint` under torch.utils.checkpoint, `reentrant` under its reentrant form,
                       `offload` with saved-tensor hooks that keep copies elsewhere, `inner` with inputs that are no
                       leaves of the graph, as a model's never are, `autocast` to bf16, `lowered` with bf16 for torch's
                       default dtype until its backward is over, `peek` under no_grad, `infer` in inference mode
             backward  of the batch's newest forward that has none yet; `backward A first` of its oldest;
                       `retain` goes twice through the same graph, and the second answers; `together A` is one backward
                       of all that wait, A's and others', as of a sum of their losses
    buffers  where metadata lies: "fresh" (storage of its own, filled with something else after the load), "reused" (one
             set of tensors, refilled in place by every load), "kept" (new tensors only for what differs from the
             batch before), "freed" (storage of its own, gone after the load; inputs go with their step, and what
             comes later lies where they lay as soon as nobody holds them)
    changes  what is new in later forwards of a batch, one after the other ("v k": v alone in the second, k alone in the
             third); empty is everything
    sessions "one", or "each": every batch is loaded by a session of its own, all of them open at once
    renewed  rules whose metadata later batches renew; empty is all of them
    repeats  how often all of it happens; the bits must repeat where an implementation declares itself deterministic
    delay    up to so many seconds pass on each rank, at random, before every transfer
    late     seconds more on the last rank alone
    memory   "nan": memory that is allocated but not written holds NaN while the implementation runs
    strict   the strict level: same bits always (D5), bytes at most 1.1 times the need (D9)
    """

    steps: str = ONCE
    buffers: str = "fresh"
    renewed: tuple[str, ...] = ()
    changes: str = ""
    sessions: str = "one"
    repeats: int = 1
    delay: float = 0.0
    late: float = 0.0
    memory: str | None = None
    strict: bool = False

    def __post_init__(self):
        object.__setattr__(self, "renewed", tuple(self.renewed))
        if self.buffers not in BUFFERS:
            raise ValueError(f"course: unknown buffers {self.buffers!r}, known are {', '.join(BUFFERS)}")
        if not set(self.changes.split()) <= {"q", "k", "v", "dout"}:
            raise ValueError(f"course: changes name q, k, v and dout, not {self.changes!r}")
        if self.sessions not in ("one", "each"):
            raise ValueError(f"course: sessions are 'one' or 'each', not {self.sessions!r}")
        if self.memory not in (None, "nan"):
            raise ValueError(f"course: memory holds 'nan' or what it will, not {self.memory!r}")
        if self.repeats < 1 or self.delay < 0 or self.late < 0:
            raise ValueError("course: repeats count from 1, delay and late from 0 seconds")
        _check(self.actions)

    @property
    def actions(self) -> tuple[tuple[str, str], ...]:
        """(verb, batch) in order; `backward A first` has the verb "backward first". Raises ValueError for what is no
        action."""
        return tuple(_action(text.strip()) for text in self.steps.split(","))

    @property
    def batches(self) -> tuple[str, ...]:
        """Letters in the order in which they are loaded."""
        return tuple(dict.fromkeys(letter for verb, letter in self.actions if verb == "load"))

    @property
    def recomputes(self) -> tuple[str, ...]:
        """Ways in which the backward gets its tensors back, beside keeping them."""
        return tuple(verb for verb in RECOMPUTES if any(verb == own for own, _ in self.actions))


def _action(text: str) -> tuple[str, str]:
    found = ACTION.fullmatch(text)
    if not found or found[1] not in VERBS or found[3] and found[1] != "backward":
        raise ValueError(f"course: {text!r} is no action such as 'forward A': {', '.join(VERBS)}, backward A first")
    return found[1] + (found[3] or ""), found[2]


def _check(actions: tuple[tuple[str, str], ...]) -> None:
    """Every batch is loaded before it is used, every backward has a forward."""
    loaded, waiting = set(), []
    for verb, letter in actions:
        if verb == "load":
            loaded.add(letter)
        elif letter not in loaded:
            raise ValueError(f"course: '{verb} {letter}' comes before 'load {letter}'")
        elif verb in BACKWARDS and letter not in waiting:
            raise ValueError(f"course: '{verb.split()[0]} {letter}' has no forward")
        elif verb == "together":
            waiting.clear()
        elif verb in BACKWARDS:
            waiting.remove(letter)
        elif verb not in WITHOUT_GRAD:
            waiting.append(letter)
    if waiting:
        raise ValueError(f"course: the forward of {waiting[0]} has no backward")


PLAIN = Course()
