"""Group `crossed`: what has a kernel or a path of its own (widths, dtypes, frozen inputs, no_grad, recompute, one key
head, several rows) under several rules at once, and variants without the rules that they usually stand beside."""

from cases.case import Inputs, Scenario, Shape
from cases.course import Course
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.rule import Rule
from cases.rules.vision import Vision
from cases.rules.window import Window

CAUSAL, WINDOW, HOLES = Causal(), Window(26), Padding((((5, 10),),))
IDS = Documents((((1, 33), (2, 36), (0, 4), (3, 15)),))
TYPES = ((0, 20), (1, 22), (0, 26), (2, 12), (0, 8))
IMAGES = Vision((TYPES,))
IDS_OF_ROWS = Documents((((1, 88),), ((1, 33), (2, 36), (0, 4), (3, 15)), ((4, 50), (2, 38))))
INTERLEAVED = Documents((((1, 20), (2, 13), (0, 5), (1, 22), (2, 28)),))
HOLES_OF_ROWS = Padding((((80, 88),), (), ((0, 9), (60, 63))))
TYPES_OF_ROWS = (((0, 88),), TYPES, ((1, 30), (0, 40), (1, 18)))
PLAIN, ONCE = Inputs(), {"layouts": ("zigzag",), "dtypes": ("fp64", "bf16")}
EVERYTHING = Mask((CAUSAL, WINDOW, IDS, HOLES, IMAGES))
ROUTED = Regions.even(88, 8, Router(33, top_k=4, share=4))
SELECTION = Mask((CAUSAL, Window(20), IDS, HOLES, ROUTED))
ALL = "A1 A2 A3 A4 A5 A7 B3"


def _masked(*rules: Rule) -> Mask:
    return Mask((CAUSAL, *rules))


def _shape(**more) -> Shape:
    return Shape(**{"tokens": 88, "heads": 4, "kv_heads": 2, "head_dim": 16} | more)


def _wholly(name: str, ids: str, inputs: Inputs = PLAIN, scale: float | None = None, steps: str = Course().steps,
            **shape) -> Scenario:
    """Every rule but regions at once."""
    return Scenario(f"crossed/{name}", f"{ALL} {ids}".strip(), EVERYTHING, _shape(**shape), scale, inputs,
                    course=Course(steps), **ONCE)


def _selected(name: str, ids: str, inputs: Inputs = PLAIN, scale: float | None = None, steps: str = Course().steps,
              dtypes: tuple[str, ...] = ONCE["dtypes"], **shape) -> Scenario:
    """Regions under every rule but vision."""
    return Scenario(f"crossed/selection-{name}", f"A1 A2 A3 A4 A6 A7 B3 {ids}".strip(), SELECTION, _shape(**shape),
                    scale, inputs, course=Course(steps), layouts=("zigzag",), dtypes=dtypes)


WIDTHS = (
    _wholly("head-dim-96", "A8 A9", head_dim=96),
    _wholly("latent-192", "A8 A9", head_dim=192, value_dim=128, kv_heads=4),
    _wholly("many-heads", "A8", heads=32, kv_heads=16),
    _wholly("widest", "A8", head_dim=264, kv_heads=1),
    _wholly("narrow-values", "A8", head_dim=32, value_dim=16),
    _wholly("wide-values", "A8", value_dim=40),
    _wholly("odd-widths", "A8 A9", head_dim=20, value_dim=28),
    Scenario("crossed/half", f"{ALL} A9", EVERYTHING, _shape(), 0.3, layouts=("zigzag",), dtypes=("fp16",)),
    Scenario("crossed/half-one-key-head", "A1 A3 A4 A5 A7 A8 B3", _masked(IDS, HOLES, IMAGES),
             _shape(kv_heads=1, head_dim=128), layouts=("zigzag",), dtypes=("fp16",)),
)

SELECTIONS = (
    _selected("half", "A8", dtypes=("fp16",), kv_heads=1, head_dim=128),
    _selected("recompute", "D4", steps="load A, checkpoint A, backward A"),
    _selected("keys-alone", "B8", Inputs(grads="k")),
    _selected("queries-alone", "B8", Inputs(grads="q")),
    _selected("widest", "A8", head_dim=264, kv_heads=1),
    _selected("odd-widths", "A8 A9", head_dim=20, value_dim=28),
    _selected("scaled", "A9", scale=0.5),
    _selected("peek", "B8 D3", steps="load A, peek A, forward A, backward A"),
)

INPUTS = (
    _wholly("frozen-queries", "B8", Inputs(grads="kv")),
    _wholly("keys-alone", "B8", Inputs(grads="k")),
    _wholly("infinite", "B5", Inputs(poison="inf")),
    Scenario("crossed/infinite-selection", "A3 A4 A6 A7 B3 B5",
             Mask((Regions.even(88, 8, Router(31, top_k=3, share=4)), IDS, HOLES)), _shape(),
             inputs=Inputs(poison="inf"), **ONCE),
    Scenario("crossed/prompt-without-loss", "A1 A3 A4 A7 B3 B4", _masked(IDS, HOLES), _shape(),
             inputs=Inputs(dout="prompt"), layouts=("contiguous",), dtypes=("fp64", "bf16")),
    Scenario("crossed/steep", "A3 B1 B2", Mask((Documents.packed([1, 2] * 29 + [1]),)), _shape(),
             inputs=Inputs(spread=1500.0), layouts=("zigzag",), dtypes=("fp64", "fp32")),
)

SCALES = (
    Scenario("crossed/packed-scaled", "A1 A3 A9", _masked(Documents.packed([40, 9, 39])), _shape(), 0.41, **ONCE),
    Scenario("crossed/runs-scaled", "A1 A3 A9", _masked(Documents((((1, 30), (2, 20), (1, 38)),), variant="runs")),
             _shape(), 0.41, **ONCE),
    _wholly("scale-five", "A9", scale=5.0),
    _wholly("scale-small", "A9", scale=0.01),
    Scenario("crossed/compacted-scaled", "A1 A2 A3 A4 A7 A9 B3",
             _masked(Window(20, variant="compacted"), INTERLEAVED, HOLES), _shape(), 0.45, **ONCE),
    Scenario("crossed/scale-one", "A1 A9", _masked(), _shape(), 1.0, **ONCE),
    Scenario("crossed/scale-minus-one", "A1 A2 A9", _masked(WINDOW), _shape(), -1.0, **ONCE),
    _wholly("checkpoint-scaled", "A9 D4", scale=0.6, steps="load A, checkpoint A, backward A"),
    _wholly("peek-scaled", "A9 B8 D3", scale=0.6, steps="load A, peek A, forward A, backward A"),
)

VARIANTS = (
    Scenario("crossed/compacted-padded", "A1 A2 A4 A7 B3", _masked(Window(20, variant="compacted"), HOLES),
             _shape(), **ONCE),
    Scenario("crossed/compacted-packed", "A1 A2 A3 A7",
             _masked(Window(20, variant="compacted"), Documents((((1, 20), (2, 13), (1, 25), (2, 30)),))),
             _shape(), **ONCE),
    Scenario("crossed/inclusive-images", "A1 A2 A5 A7", _masked(Window(20, variant="inclusive"), IMAGES),
             _shape(), **ONCE),
    Scenario("crossed/images-and-selection", "A1 A5 A6 A7",
             _masked(IMAGES, Regions.even(88, 8, Router(32, top_k=3, share=4))), _shape(), **ONCE),
)

IDS_OF_FOUR = Documents((*IDS_OF_ROWS.ids, ((2, 20), (0, 8), (1, 18), (2, 42))))
HOLES_OF_FOUR = Padding((*HOLES_OF_ROWS.spans, ((1, 4),)))
TYPES_OF_FOUR = (*TYPES_OF_ROWS, ((0, 10), (1, 8), (0, 40), (2, 30)))

ROWS = (
    Scenario("crossed/four-rows", f"{ALL}", _masked(WINDOW, IDS_OF_FOUR, HOLES_OF_FOUR, Vision(TYPES_OF_FOUR)),
             _shape(batch=4), **ONCE),
    Scenario("crossed/four-rows-runs", "A1 A2 A3 A4 A7 B3",
             _masked(Window(20, variant="compacted"), Documents(IDS_OF_FOUR.ids, variant="runs"), HOLES_OF_FOUR),
             _shape(batch=4), **ONCE),
    Scenario("crossed/rows-inclusive-bounded", f"{ALL} A8",
             _masked(Window(12, variant="inclusive"), IDS_OF_ROWS, HOLES_OF_ROWS,
                     Vision(TYPES_OF_ROWS, variant="bounded")),
             _shape(batch=3, kv_heads=1), **ONCE),
    Scenario("crossed/rows-overlay", "A1 A2 A4 A5 A7 B3",
             _masked(Window(12), HOLES_OF_ROWS, Vision(TYPES_OF_ROWS, variant="overlay")), _shape(batch=3), **ONCE),
    Scenario("crossed/rows-symmetric", "A2 A4 A5 A7 B3",
             Mask((Window(12, variant="symmetric"), HOLES_OF_ROWS, Vision(TYPES_OF_ROWS, variant="overlay"))),
             _shape(batch=3), **ONCE),
    Scenario("crossed/rows-without-images", "A1 A2 A4 A5 A7 B3",
             _masked(WINDOW, HOLES_OF_ROWS, Vision(TYPES_OF_ROWS, variant="none")), _shape(batch=3), **ONCE),
)

CASES = (*WIDTHS, *SELECTIONS, *INPUTS, *SCALES, *VARIANTS, *ROWS)
