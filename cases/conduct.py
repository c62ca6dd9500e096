"""Cases of how an implementation behaves (SPEC D) and of poisoned memory: groups state, poison, schedule, topology,
audit and refuse."""

from cases.case import Inputs, Place, Scenario, Shape
from cases.course import Course
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.foreign import Dropout, Softcap
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window
from cases.topology import Topology

CAUSAL = Causal()
SMALL, TWO_ROWS = Shape(tokens=96), Shape(batch=2, tokens=96)
IDS = Documents((((1, 31), (2, 40), (0, 5), (3, 20)),))
HOLES = Padding((((6, 11),),))
IMAGES = Vision((((0, 20), (1, 25), (0, 30), (2, 21)),))
PACKED = Mask((CAUSAL, IDS, HOLES))
TEXT = Mask((CAUSAL, Documents((((1, 96),),)), Padding(((),)), Vision((((0, 96),),))))
ROUTED = Mask((CAUSAL, Regions.even(96, 8, Router(21, top_k=3, share=4)), IDS))
RAGGED = Mask((CAUSAL, Regions(((8, 3, 13, 0, 24, 5, 16, 11, 16),), Router(21, top_k=3, share=4)), IDS))
EVERYTHING = Mask((CAUSAL, Window(30), IDS, HOLES, IMAGES))
TINY = Mask((CAUSAL, Documents((((1, 7), (2, 13), (0, 2), (3, 2)),))))
RUNS = Documents((((1, 31), (2, 40), (0, 5), (2, 20)),), variant="runs")
BOUNDED = Mask((CAUSAL, Window(6, variant="inclusive"), RUNS, HOLES, Vision(IMAGES.types, variant="bounded")))
INTERLEAVED = Documents((((1, 20), (2, 13), (0, 5), (1, 28), (2, 30)),))
COMPACTED = Mask((CAUSAL, Window(20, variant="compacted"), INTERLEAVED, HOLES, Vision(IMAGES.types, variant="none")))
SYMMETRIC = Mask((Window(8, variant="symmetric"), RUNS, HOLES, Vision(IMAGES.types, variant="overlay")))

TWO = "load A, forward A, load B, forward B, backward A, backward B"
THREE = f"{TWO}, load C, forward C, backward C"
AGAIN = "load A, forward A, backward A, load B, forward B, backward B, forward B, backward B"
LAYERS = f"load A{4 * ', forward A'}, backward A first, backward A, backward A first, backward A"
THERE_AND_BACK = "load A, forward A, backward A, load B, forward B, backward B, load A, forward A, backward A"
BACK_AND_THERE = "load B, forward B, backward B, load A, forward A, backward A, load B, forward B, backward B"
STACKED = "load A, load B, load C, forward A, forward B, forward C, backward C, backward B, backward A"
ONCE = {"layouts": ("zigzag",), "dtypes": ("fp64",)}
CAST = {"layouts": ("zigzag",), "dtypes": ("fp64", "bf16")}
DEEP = f"load A{40 * ', forward A'}, backward A first{39 * ', backward A'}"
AT_ONCE = "load A, forward A, forward A, load B, forward B, forward A, together A"
EVERY_WAY = ("load A, checkpoint A, backward A, load B, peek B, forward B, load C, forward C, backward C, backward B, "
             "load A, offload A, backward A")
INFERRED = "load A, infer A, forward A, backward A, load B, infer B, infer B, checkpoint B, backward B"
ONE_BY_ONE = "load A, forward A, backward A, load B, forward B, backward B, load C, forward C, backward C"


def _state(name: str, mask: Mask, steps: str, buffers: str = "fresh", *renewed: str, ids: str = "D3", changes: str = "",
           sessions: str = "one", **more) -> Scenario:
    shape = {ROWS: TWO_ROWS, TINY: Shape(tokens=24)}.get(mask, SMALL)
    course = Course(steps, buffers, renewed, changes, sessions)
    return Scenario(f"state/{name}", f"{OWN[mask]} {ids}", mask, shape, course=course, **more)


ROWS = Mask((CAUSAL, Documents((((1, 96),), ((1, 31), (2, 40), (0, 5), (3, 20)))), Padding(((), ((6, 11),)))))
WITH_WINDOW = "A1 A2 A3 A4 A5 A7 B3"
OWN = {ROWS: "A1 A3 A4 A7 B3", PACKED: "A1 A3 A4 A7 B3", ROUTED: "A1 A3 A6 A7 B3", RAGGED: "A1 A3 A6 A7 B3",
       EVERYTHING: WITH_WINDOW, BOUNDED: WITH_WINDOW, COMPACTED: WITH_WINDOW, SYMMETRIC: WITH_WINDOW.replace("A1 ", ""),
       TEXT: "A1", TINY: "A1 A3 A4 B3"}

STATE = (
    _state("later-batches", EVERYTHING, ONE_BY_ONE),
    _state("plain-first", TEXT, THERE_AND_BACK),
    _state("plain-again", TEXT, BACK_AND_THERE),
    _state("freed", PACKED, AGAIN, "freed"),
    _state("refilled", EVERYTHING, ONE_BY_ONE, "reused"),
    _state("refilled-in-flight", PACKED, TWO, "reused"),
    _state("only-documents", PACKED, THREE, "kept", "documents"),
    _state("only-padding", ROWS, THREE, "kept", "padding"),
    _state("only-images", EVERYTHING, ONE_BY_ONE, "kept", "vision"),
    _state("only-selection", RAGGED, TWO, "kept", "regions"),
    _state("two-in-flight", EVERYTHING, TWO),
    _state("layers", EVERYTHING, LAYERS),
    _state("many-layers", PACKED, f"load A{10 * ', forward A'}{10 * ', backward A'}", **ONCE),
    _state("one-changes", PACKED, f"load A{5 * ', forward A, backward A'}", changes="v k q dout", **ONCE),
    _state("own-sessions", PACKED, f"load A, load B{2 * ', forward A, backward A, forward B, backward B'}",
           sessions="each"),
    _state("inner", PACKED, "load A, inner A, backward A", ids=""),
    _state("backward-twice", PACKED, "load A, forward A, retain A", ids=""),
    _state("second-row", ROWS, TWO),
    _state("second-row-only-documents", ROWS, ONE_BY_ONE, "kept", "documents"),
    _state("stacked", PACKED, STACKED),
    _state("back-to-the-first", PACKED, "load A, load B, forward B, backward B, forward A, backward A"),
    _state("checkpoint", EVERYTHING, "load A, checkpoint A, load B, checkpoint B, backward A, backward B", ids="D3 D4"),
    _state("reentrant", PACKED, "load A, reentrant A, load B, reentrant B, backward A, backward B", ids="D3 D4"),
    _state("checkpoint-selection", ROUTED, "load A, checkpoint A, load B, backward A", ids="D3 D4"),
    _state("offload", PACKED, "load A, offload A, load B, forward B, backward A, backward B", ids="D3 D4"),
    _state("deep", TINY, DEEP, **ONCE),
    _state("one-backward", EVERYTHING, AT_ONCE),
    _state("inferred", EVERYTHING, INFERRED, ids="B8 D3 D4"),
    _state("peek-selection", ROUTED, "load A, load B, peek B, forward A, peek A, backward A", ids="B8 D3"),
    _state("autocast", EVERYTHING, "load A, autocast A, backward A, load B, autocast B, backward B", **CAST),
    _state("autocast-selection", ROUTED, "load A, autocast A, backward A", ids="", **CAST),
    _state("lowered", EVERYTHING, "load A, lowered A, backward A, load B, lowered B, backward B"),
    _state("lowered-selection", ROUTED, "load A, lowered A, backward A", ids=""),
    _state("inclusive-bounded", BOUNDED, EVERY_WAY, ids="B8 D3 D4"),
    _state("compacted", COMPACTED, EVERY_WAY, ids="B8 D3 D4"),
    _state("symmetric-overlay", SYMMETRIC, EVERY_WAY, ids="B8 D3 D4"),
    _state("peek-between", PACKED, "load A, load B, forward A, peek B, backward A", ids="B8 D3"),
)


def _poison(name: str, own: str, mask: Mask, shape: Shape = SMALL, steps: str = Course().steps, **inputs) -> Scenario:
    return Scenario(f"poison/{name}", f"{own} B5", mask, shape, inputs=Inputs(**inputs),
                    course=Course(steps, memory="nan"))


POISON = (
    _poison("fresh-packed", OWN[PACKED], PACKED),
    _poison("fresh-everything", OWN[EVERYTHING], EVERYTHING),
    _poison("fresh-selection", OWN[ROUTED], ROUTED),
    _poison("fresh-full", "", Mask(), Shape(tokens=95, heads=4, kv_heads=1, head_dim=64)),
    _poison("fresh-few", "A1 A3", Mask((CAUSAL, Documents.packed([2, 1]))), Shape(tokens=3)),
    _poison("fresh-recompute", f"{OWN[PACKED]} D4", PACKED, SMALL, "load A, checkpoint A, backward A"),
    _poison("tails", f"{OWN[PACKED]} B7", PACKED, strides="tail"),
    _poison("huge", OWN[EVERYTHING], EVERYTHING, poison="huge"),
    _poison("nan", OWN[EVERYTHING], EVERYTHING, poison="nan"),
    _poison("huge-in-second-row", OWN[ROWS], ROWS, TWO_ROWS, poison="huge"),
    _poison("nan-in-second-row", OWN[ROWS], ROWS, TWO_ROWS, poison="nan"),
    _poison("nan-inclusive-bounded", OWN[BOUNDED], BOUNDED, poison="nan"),
    _poison("nan-compacted", OWN[COMPACTED], COMPACTED, poison="nan"),
    _poison("nan-symmetric-overlay", OWN[SYMMETRIC], SYMMETRIC, poison="nan"),
    _poison("nan-selection", OWN[ROUTED], ROUTED, poison="nan"),
    _poison("nan-tails", f"{OWN[PACKED]} B7", PACKED, poison="nan", strides="tail"),
)

SCHEDULE = (
    Scenario("schedule/repeated", f"{OWN[EVERYTHING]} D5", EVERYTHING, SMALL, course=Course(repeats=34)),
    Scenario("schedule/repeated-selection", f"{OWN[RAGGED]} D5", RAGGED, SMALL, course=Course(repeats=3)),
    Scenario("schedule/delayed", f"{OWN[PACKED]} D5", PACKED, SMALL, course=Course(repeats=20, delay=0.001)),
    Scenario("schedule/delayed-in-flight", f"{OWN[PACKED]} D3 D5", PACKED, SMALL,
             course=Course(TWO, repeats=3, delay=0.002)),
    Scenario("schedule/late-rank", f"{OWN[PACKED]} D5 D8", PACKED, SMALL, course=Course(repeats=2, late=0.02),
             least_world=2),
    Scenario("schedule/every-bit", "A1 D5", Mask((CAUSAL,)), SMALL, course=Course(repeats=5, strict=True)),
)


def _groups(name: str, groups: str, beside: str = "", mask: Mask = PACKED) -> Scenario:
    return Scenario(f"topology/{name}", f"{OWN[mask]} D2", mask, SMALL, topology=Topology(groups, beside))


TOPOLOGY = (
    _groups("one-and-three", "0|1,2,3"),
    _groups("last-of-four", "3|0,1,2"),
    _groups("halves", "0,1|2,3"),
    _groups("strided", "0,2|1,3"),
    _groups("strided-everything", "0,2|1,3", mask=EVERYTHING),
    _groups("strided-inclusive-bounded", "1,3|0,2", mask=BOUNDED),
    _groups("upper-three-compacted", "1,2,3|0", mask=COMPACTED),
    _groups("strided-symmetric-overlay", "0,2|1,3", mask=SYMMETRIC),
    _groups("upper-three-selection", "1,2,3|0", mask=ROUTED),
    _groups("outer-and-inner", "0,3|1,2"),
    _groups("mesh", "0,2|1,3", beside="0,1|2,3"),
    _groups("mesh-rows", "2,3|0,1", beside="0,2|1,3"),
    _groups("three-and-one", "0,1,2|3"),
    _groups("upper-three", "1,2,3|0"),
    _groups("three-with-a-gap", "0,2,3|1"),
    Scenario("topology/rotated", f"{OWN[EVERYTHING]} D2", EVERYTHING, SMALL, least_world=2,
             topology=Topology(order="rotated")),
    Scenario("topology/reversed", f"{OWN[PACKED]} D2", PACKED, SMALL, least_world=2,
             topology=Topology(order="reversed")),
    Scenario("topology/descending", f"{OWN[EVERYTHING]} D2", EVERYTHING, SMALL,
             topology=Topology(order="descending")),
    Scenario("topology/descending-rows", f"{OWN[ROWS]} D2", ROWS, TWO_ROWS, topology=Topology(order="descending")),
    Scenario("topology/second-half-first", f"{OWN[EVERYTHING]} D2", EVERYTHING, SMALL,
             topology=Topology(order="halves")),
    Scenario("topology/filled-up", "A1 A2 D2", Mask((CAUSAL, Window(30))), Shape(tokens=97), least_world=2,
             topology=Topology(order="padded")),
    Scenario("topology/filled-up-with-poison", "A1 A2 A4 B3 B5 D2", Mask((CAUSAL, Window(30), HOLES)),
             Shape(tokens=97), least_world=2, inputs=Inputs(poison="nan"), topology=Topology(order="padded")),
)

LARGE = Shape(tokens=256, heads=4, kv_heads=4, head_dim=64)


def _own(place: Place) -> Mask:
    """A document a shard: in contiguous shards nobody needs a key of another rank."""
    full, rest = divmod(place.tokens, place.shard)
    return Mask((CAUSAL, Documents.packed([place.shard] * full + [rest] * (rest > 0))))


AUDIT = (
    Scenario("audit/causal", "A1 D9", Mask((CAUSAL,)), SMALL),
    Scenario("audit/own-documents", "A1 A3 D9", _own, SMALL, least_world=2),
    *(Scenario(f"audit/bytes-{name}", f"{own} D9", mask, LARGE, course=Course(strict=True))
      for name, own, mask in (("causal", "A1", Mask((CAUSAL,))), ("window", "A1 A2", Mask((CAUSAL, Window(70)))),
                              ("packed", "A1 A3", Mask((CAUSAL, Documents.packed([100, 90, 66])))))),
)

REFUSE = (
    Scenario("refuse/dropout", "A1 D7", Mask((CAUSAL, Dropout(0.1))), SMALL),
    Scenario("refuse/softcap", "A1 D7", Mask((CAUSAL, Softcap(30.0))), SMALL),
)

CASES = (*STATE, *POISON, *SCHEDULE, *TOPOLOGY, *AUDIT, *REFUSE)
