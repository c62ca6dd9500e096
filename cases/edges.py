"""Cases by shape and circumstance rather than by rule: group `edges`; and rules together: group `mixed`."""

from cases.case import Inputs, Place, Scenario, Shape
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from cases.rules.padding import Padding
from cases.rules.regions import Regions, Router
from cases.rules.vision import Vision
from cases.rules.window import Window

CAUSAL = Causal()
PLAIN = Mask((CAUSAL,))
TAIL = Mask((CAUSAL, Padding((((100, 128),),))))
DEAD_KEYS = Mask((CAUSAL, Regions.even(128, 32, ((((128, (0, 2)),),),))))
POISONED = Mask((CAUSAL, Documents((((1, 50), (0, 21), (2, 49), (0, 8)),)), Padding((((90, 100),),))))


def _alone_but_one_a_rank(place: Place) -> Mask:
    """Queries see themselves; one of each rank, in every layout, sees all 256 keys: under scale 0 it adds half a unit
    in the last place (bf16) to what the key's own query makes of dV, which a sum in bf16 loses at every hop."""
    starts = range(0, place.tokens, place.shard)
    seers = {start + (rank - start) % place.world for rank, start in enumerate(starts)}
    every = tuple(range(place.tokens))
    picks = tuple((1, every if query in seers else (query,)) for query in every)
    return Mask((Regions.even(place.tokens, 1, ((picks,),)),))


def _heads(heads: int, kv_heads: int, head_dim: int, value_dim: int | None = None) -> Shape:
    return Shape(tokens=96, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_dim=value_dim)


def _small(**shape) -> Shape:
    return Shape(**{"tokens": 128, **shape})


SIZES = (
    Scenario("edges/one-token", "D6 D8", PLAIN, Shape(tokens=1)),
    Scenario("edges/one-token-each", "A1", PLAIN, Shape(tokens=4, heads=4, kv_heads=1)),
    Scenario("edges/prime", "A1", PLAIN, Shape(tokens=251)),
    Scenario("edges/one-more", "", Mask(), Shape(tokens=193, heads=8, kv_heads=2, head_dim=128)),
    Scenario("edges/short-packed", "A1 A3", Mask((CAUSAL, Documents.packed([1, 2, 1, 1, 3]))), Shape(tokens=8)),
    Scenario("edges/fewer-than-world", "A1 A3 D6 D8", Mask((CAUSAL, Documents.packed([2, 1]))), Shape(tokens=3)),
    Scenario("edges/empty-documents", "A1 A3", Mask((CAUSAL, Documents.packed([0, 50, 0, 0, 47, 0, 31, 0]))), _small()),
    Scenario("edges/interleaved", "A1 A3", Mask((CAUSAL, Documents((((1, 1), (2, 1)) * 40 + ((1, 17), (2, 31)),)))),
             _small()),
    Scenario("edges/interleaved-three", "A3 A4 B3",
             Mask((Documents((((3, 20), (5, 11), (3, 9), (0, 7), (5, 30), (3, 50)),)),)),
             Shape(tokens=127, heads=4, kv_heads=4, head_dim=64)),
    Scenario("edges/interleaved-runs", "A1 A3",
             Mask((CAUSAL, Documents((((1, 1), (2, 3)) * 32, ((1, 40), (2, 20), (1, 68))), variant="runs"))),
             _small(batch=2)),
    Scenario("edges/rows-differ", "A1 A3 A4 B3",
             Mask((CAUSAL, Documents((((1, 128),), ((2, 7), (1, 60), (0, 40), (9, 21)))))), _small(batch=2)),
    Scenario("edges/row-of-padding", "A1 A3 A4 B3",
             Mask((CAUSAL, Documents((((0, 128),), ((1, 70), (2, 58)))))), _small(batch=2, heads=8, kv_heads=2)),
)

HEADS = (
    Scenario("edges/widest", "A1", PLAIN, _heads(4, 1, 512)),
    Scenario("edges/widest-packed", "A1 A3 A4 B3 B5", POISONED, _small(heads=4, head_dim=512),
             inputs=Inputs(poison="nan")),
    Scenario("edges/eight-kv-heads", "A1 A8", PLAIN, Shape(tokens=64, heads=16, kv_heads=8, head_dim=16)),
    Scenario("edges/half", "A1 A3 A4 B3", POISONED, _small(), dtypes=("fp16",)),
    Scenario("edges/one-head", "A1", PLAIN, _heads(1, 1, 32)),
    Scenario("edges/heads-1to1-d24", "A1 A9", PLAIN, _heads(3, 3, 24)),
    Scenario("edges/heads-1to1-d128", "A1", PLAIN, _heads(2, 2, 128)),
    Scenario("edges/heads-2to1-d64", "A1 A8", PLAIN, _heads(6, 3, 64)),
    Scenario("edges/heads-4to1-d80", "A1 A8 A9", PLAIN, _heads(8, 2, 80)),
    Scenario("edges/heads-4to1-d24", "A1 A8 A9", PLAIN, _heads(8, 2, 24)),
    Scenario("edges/mqa-d128", "A1 A8", PLAIN, _heads(8, 1, 128)),
    Scenario("edges/narrow-values", "A1 A8", PLAIN, _heads(4, 2, 64, value_dim=32)),
    Scenario("edges/wide-values", "A1 A8", PLAIN, _heads(4, 4, 32, value_dim=80)),
    Scenario("edges/as-many-tokens-as-dims", "A1 A8", PLAIN, _small(value_dim=64),
             note="axes that are confused have equal lengths"),
    Scenario("edges/latent-values", "A1 A3 A8", Mask((CAUSAL, Documents.packed([40, 56]))),
             _heads(4, 1, 80, value_dim=64)),
)

NUMBERS = (
    Scenario("edges/scale", "A1 A9", PLAIN, _small(), scale=1.7),
    Scenario("edges/scale-zero", "A1 A9", PLAIN, _small(), scale=0.0),
    Scenario("edges/scale-zero-alike", "A9", Mask(), Shape(tokens=289, kv_heads=1, head_dim=24), scale=0.0,
             inputs=Inputs(dout="ones")),
    Scenario("edges/scale-negative", "A1 A9", PLAIN, _small(head_dim=64), scale=-1.3),
    Scenario("edges/many-hops", "A6 A8 A9", _alone_but_one_a_rank, Shape(heads=8, kv_heads=1), scale=0.0, least_world=4,
             inputs=Inputs(dout="ones")),
    Scenario("edges/sharp", "A1", PLAIN, _small(), inputs=Inputs(spread=30.0)),
    Scenario("edges/fused", "A1 B7", PLAIN, _small(), inputs=Inputs(strides="fused")),
    Scenario("edges/fused-packed", "A1 A2 A3 A4 A5 A7 B3 B7",
             Mask((*POISONED.rules, Window(30), Vision((((0, 20), (1, 25), (0, 83)),)))), _small(),
             inputs=Inputs(strides="fused")),
    Scenario("edges/fused-selection", "A6 B7", Mask((Regions.even(128, 8, Router(21, top_k=3, share=4)),)), _small(),
             inputs=Inputs(strides="fused")),
    Scenario("edges/unbind", "A1 B7", PLAIN, _small(), inputs=Inputs(strides="unbind")),
    Scenario("edges/every-second", "A1 A2 A3 A4 A5 A7 B3 B7",
             Mask((Causal(), Window(30), Documents.packed([37, 59]), Padding((((6, 11),),)),
                   Vision((((0, 20), (1, 25), (0, 51)),)))), _small(tokens=96), inputs=Inputs(strides="interleaved")),
    Scenario("edges/every-second-full", "A3 A6 B7",
             Mask((Regions.even(96, 8, Router(21, top_k=3, share=4)), Documents.packed([37, 59]))), _small(tokens=96),
             inputs=Inputs(strides="interleaved")),
    Scenario("edges/transposed", "A1 A8 B7", PLAIN, _small(heads=8, kv_heads=2), inputs=Inputs(strides="transposed")),
    Scenario("edges/expanded-dout", "A1 B7", PLAIN, _small(), inputs=Inputs(dout="expanded")),
    Scenario("edges/dout-of-a-sum", "A1 B7", PLAIN, _small(), inputs=Inputs(dout="sum")),
    Scenario("edges/outliers", "A1", PLAIN, _small(), inputs=Inputs(outliers=25.0)),
    Scenario("edges/dout-of-ones", "A1", PLAIN, _small(), inputs=Inputs(dout="ones")),
    Scenario("edges/packed-unlike", "A1 A3 A4 B3 B7", POISONED, _small(), inputs=Inputs("unlike", "expanded-heads")),
    *(Scenario(f"edges/grads-{grads}", "A1 B8", PLAIN, _small(tokens=96), inputs=Inputs(grads=grads))
      for grads in ("q", "k", "v", "kv", "qk")),
    Scenario("edges/grads-none", "A1 B8", PLAIN, _small(tokens=96), inputs=Inputs(grads="")),
    Scenario("edges/packed-grads-qv", "A1 A3 A4 A8 A9 B3 B8", POISONED, _small(heads=8, head_dim=160),
             inputs=Inputs(grads="qv")),
    Scenario("edges/huge-padding", "A1 A4 B3 B5", TAIL, _small(), inputs=Inputs(poison="huge")),
    Scenario("edges/huge-packed", "A1 A3 A4 B3 B5", POISONED, _small(), inputs=Inputs(poison="huge")),
    Scenario("edges/huge-dead-keys", "A1 A6 B5", DEAD_KEYS, _small(), inputs=Inputs(poison="huge")),
    Scenario("edges/huge-full", "A3 A4 B3 B5", Mask(POISONED.rules[1:]), _small(head_dim=8),
             inputs=Inputs(poison="huge")),
    Scenario("edges/huge-window", "A1 A2 A4 A9 B3 B5", Mask((*TAIL.rules, Window(30))), _small(heads=6, head_dim=24),
             scale=0.4, inputs=Inputs(poison="huge")),
    Scenario("edges/nan-padding", "A1 A4 B3 B5", TAIL, _small(), inputs=Inputs(poison="nan")),
    Scenario("edges/nan-packed", "A1 A3 A4 B3 B5", POISONED, _small(), inputs=Inputs(poison="nan")),
    Scenario("edges/nan-dead-keys", "A1 A6 B5", DEAD_KEYS, _small(), inputs=Inputs(poison="nan")),
)

IMAGES = ((0, 30), (1, 70), (0, 25), (2, 40), (1, 15), (0, 60))
PACKED = Documents((((1, 75), (2, 90), (0, 15), (1, 60)),))
HOLES = Padding((((0, 9), (95, 110)),))
ROUTED = Regions.even(240, 16, Router(11, top_k=4, share=8))
WIDELY = Regions.even(240, 16, Router(12, top_k=9, share=8))
AHEAD = Regions.even(240, 40, ((((120, (0, 1, 4)), (120, (0, 2, 3, 5))), ((240, (0, 1, 3, 5)),)),))
WINDOW, VISION = Window(48), Vision((IMAGES,))


def _mixed(*rules) -> Mask:
    return Mask((CAUSAL, *rules))


def _mixed_shape(heads: int = 4, kv_heads: int = 2, head_dim: int = 32, **more) -> Shape:
    return Shape(tokens=240, heads=heads, kv_heads=kv_heads, head_dim=head_dim, **more)


def _on_shards(place: Place) -> Mask:
    """A window of a shard and a half over documents of a shard and one, images across every edge."""
    shard = place.shard
    document = shard + 1
    lengths = [document] * (place.tokens // document)
    image = max(1, shard // 2)
    types = ((0, shard - image // 2), (1, image), (0, place.tokens - shard + image // 2 - image))
    rest = place.tokens - sum(lengths)
    if place.world == 1:
        types = ((0, image), (1, place.tokens - image))
    return _mixed(Documents.packed(lengths + [rest] * (rest > 0)), Vision((types,)), Window(max(1, shard // 2 + 1)))


MIXED = (
    Scenario("mixed/window-packed-padded", "A1 A2 A3 A4 A7 B3", _mixed(WINDOW, PACKED, HOLES), _mixed_shape()),
    Scenario("mixed/window-packed-images", "A1 A2 A3 A4 A5 A7 B3", _mixed(WINDOW, PACKED, VISION),
             _mixed_shape(8, 2, 64)),
    Scenario("mixed/images-padded", "A1 A3 A4 A5 A7 B3", _mixed(VISION, PACKED, HOLES), _mixed_shape(4, 1, 24)),
    Scenario("mixed/bounded", "A1 A2 A3 A4 A5 A7 B3",
             _mixed(Window(20), PACKED, HOLES, Vision((IMAGES,), variant="bounded")), _mixed_shape(4, 4, 80)),
    Scenario("mixed/csa-images", "A1 A3 A4 A5 A6 A7 B3", _mixed(ROUTED, VISION, PACKED), _mixed_shape(4, 4, 128)),
    Scenario("mixed/csa-window-padded", "A1 A2 A4 A6 A7 B3 B7", _mixed(ROUTED, Window(90), HOLES),
             _mixed_shape(8, 2, 128), inputs=Inputs("expanded-keys")),
    Scenario("mixed/everything", "A1 A2 A3 A4 A5 A6 A7 B3", _mixed(WINDOW, PACKED, HOLES, VISION, ROUTED),
             _mixed_shape()),
    Scenario("mixed/everything-full", "A2 A3 A4 A5 A6 A7 B3 B7", Mask((Window(20), PACKED, HOLES, VISION, WIDELY)),
             _mixed_shape(4, 1, 64), inputs=Inputs("unlike", "expanded-heads")),
    Scenario("mixed/on-shards", "A1 A2 A3 A5 A7", _on_shards, Shape(tokens=240)),
    Scenario("mixed/compacted-runs", "A1 A2 A3 A4 A7 B3",
             _mixed(Window(30, variant="compacted"), Documents(PACKED.ids, variant="runs"), HOLES),
             _mixed_shape(4, 1, 80)),
    Scenario("mixed/inclusive-runs", "A2 A3 A4 A6 A7 A8 B3 B7",
             Mask((Window(20, variant="inclusive"), Documents(PACKED.ids, variant="runs"), HOLES, AHEAD,
                   Vision((IMAGES,), variant="bounded"))),
             _mixed_shape(6, 2, 256), inputs=Inputs(strides="transposed")),
    Scenario("mixed/symmetric-scaled", "A2 A3 A4 A5 A6 A7 A9 B3 B7",
             Mask((Window(20, variant="symmetric"), PACKED, HOLES, AHEAD, Vision((IMAGES,), variant="overlay"))),
             _mixed_shape(), scale=-0.3, inputs=Inputs("unbind", "expanded")),
    Scenario("mixed/compacted-nan-tails", "A2 A3 A4 A5 A6 A7 B3 B5 B7 B8",
             Mask((Window(20, variant="compacted"), PACKED, HOLES, AHEAD, Vision((IMAGES,), variant="none"))),
             _mixed_shape(), inputs=Inputs("tail", poison="nan", grads="kv")),
    Scenario("mixed/two-rows", "A1 A2 A3 A4 A5 A7 B3",
             _mixed(WINDOW, Documents((PACKED.ids[0], ((4, 240),))), Padding((((200, 240),), ((0, 30),))),
                    Vision((IMAGES, ((0, 100), (1, 140))))), _mixed_shape(batch=2)),
)

CASES = (*SIZES, *HEADS, *NUMBERS, *MIXED)
