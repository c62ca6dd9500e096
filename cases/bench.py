"""Long problems as models train on them, for measuring speed: group `bench`.

They are held to exact probes at full size. Numbers stand in memory as a model's projections lay them out: tokens
before heads.
"""

from cases.case import Inputs, Scenario, Shape
from cases.mask import Mask
from cases.real import pack
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.rule import Rule
from cases.rules.vision import Vision
from cases.rules.window import Window

GROUP = "bench"
K = 1024
NARROW, WIDE, WIDEST = (32, 8, 128), (32, 16, 256), (16, 4, 512)
EITHER = ("zigzag", "contiguous")


def _scenario(name: str, tokens: int, heads: tuple[int, int, int], layouts: tuple[str, ...], *rules: Rule,
              **options) -> Scenario:
    mask = Mask((Causal(), *rules))
    requirements = " ".join(sorted({rule.requirement for rule in mask.rules}))
    shape = Shape(1, tokens, *heads)
    return Scenario(f"{GROUP}/{name}", requirements, mask, shape, inputs=Inputs(strides="transposed"), tier="apart",
                    layouts=layouts, dtypes=("bf16",), **options)


def _documents(count: int, length: int) -> Documents:
    return Documents.packed([length] * count)


def _real(kind: str, tokens: int) -> list[Rule]:
    lengths, types = pack(kind, tokens)
    images = [Vision(tuple(types), variant="overlay")] if kind == "image_text" else []
    return [Documents.packed(*lengths), *images]


CASES = (
    _scenario("causal-64k", 64 * K, NARROW, ("zigzag",)),
    _scenario("causal-128k", 128 * K, NARROW, ("zigzag",)),
    _scenario("documents-4k", 64 * K, NARROW, EITHER, _documents(16, 4 * K)),
    _scenario("real-code-64k", 64 * K, NARROW, EITHER, *_real("code", 64 * K), measured=True),
    _scenario("window-1k-d256", 64 * K, WIDE, ("contiguous",), Window(K)),
    _scenario("causal-d512", 32 * K, WIDEST, ("zigzag",)),
    _scenario("documents-2k-d512", 32 * K, WIDEST, EITHER, _documents(16, 2 * K)),
    _scenario("images-32k", 32 * K, WIDE, ("contiguous",), Window(K), *_real("image_text", 32 * K), measured=True),
)
