"""Adapters of peers: what they refuse, what they leave alone, and that their rings run where the packages are here."""

import importlib
import sys
from importlib.metadata import PackageNotFoundError

import pytest
import torch

from cases.case import Scenario, Shape
from cases.course import Course
from cases.mask import Mask
from cases.rules.causal import Causal
from cases.rules.documents import Documents
from harness.adapters import flash_attn_stand_in as flash
from harness.adapters import ring_flash_attn as rings
from harness.implementation import Setting, load
from harness.pool import Pool
from harness.trial import UNTIMED
from tests.harness.samples import causal

FIVE = tuple(f"ring-flash-attn:{name}" for name in ("ring", "zigzag", "zigzag-varlen", "stripe", "llama3"))
TORCH = ("torch-cp:flash", "torch-cp:cudnn")
PACKED = Mask((Causal(), Documents.packed([16, 48])))
INSTEAD = rings.missing() or (flash.installed() and "flash_attn is installed, so nothing stands in for it on cpu")
needs_package = pytest.mark.skipif(bool(INSTEAD), reason=INSTEAD or "")
needs_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def packed(mask=PACKED, dtype="bf16", **more):
    return Scenario("packed/plain", "A1 A3", mask, Shape(tokens=64), **more).at(2, "contiguous", dtype)


@pytest.fixture
def here(monkeypatch):
    """As if the package were installed."""
    monkeypatch.setattr(rings, "missing", lambda: None)
    monkeypatch.setattr(flash, "installed", lambda: False)


@pytest.mark.parametrize("spec", ["torch-cp", *TORCH])
def test_torch_runs_on_cuda_only(spec):
    assert load(spec).refuses(causal(dtype="bf16"), Setting(2)) == "runs on cuda only"


@pytest.mark.parametrize(("case", "words"), [
    (packed(), "takes causal alone, not causal & documents"),
    (packed(Mask()), "takes causal alone, not full"),
    (causal(tokens=66), "66 tokens are not a multiple of 4"),
])
def test_torch_refuses_what_its_layout_cannot(case, words):
    assert load("torch-cp").refuses(case, Setting(2, "cuda")) == words


@pytest.mark.parametrize("spec", FIVE)
def test_a_missing_package_is_named_with_how_to_install_it(spec, monkeypatch):
    def nothing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(rings, "version", nothing)
    said = load(spec).refuses(causal(dtype="bf16"), Setting(2))
    assert said == ("needs the package ring-flash-attn, which is not installed: "
                    "pip install --no-deps ring-flash-attn==0.1.8")
    monkeypatch.setattr(rings, "version", lambda name: "0.2.0")
    assert "is written for ring-flash-attn 0.1.8, found 0.2.0" in load(spec).refuses(causal(), Setting(2))


@pytest.mark.parametrize(("ring", "case", "words"), [
    ("zigzag", packed(), "no mask rule documents"),
    ("zigzag", packed(Mask()), "causal masks only"),
    ("zigzag", causal(dtype="fp64"), "flash-attn takes bf16 and fp16, not fp64"),
    ("zigzag", causal(dtype="bf16", tokens=62), "62 tokens are not a multiple of 4"),
    ("stripe", causal(dtype="bf16", tokens=2), "needs two tokens a rank"),
    ("zigzag-varlen", packed(Mask((Causal(), Documents.packed([18, 46])))), "a document of 18 tokens is not"),
    ("zigzag-varlen", packed(course=Course("load A, load B, forward A, backward A")), "documents that change"),
])
def test_rings_refuse_in_one_line(here, ring, case, words):
    said = load(f"ring-flash-attn:{ring}").refuses(case, Setting(2))
    assert said.startswith(words) and "\n" not in said


@pytest.mark.parametrize("spec", FIVE)
def test_rings_name_the_kernel_of_the_device(here, spec):
    made = load(spec)
    assert made.refuses(packed(Mask((Causal(),))), Setting(2)) is None and made.kernel == "surrogate"
    assert made.refuses(packed(Mask((Causal(),))), Setting(2, "cuda")) is None and made.kernel == "fa2 of torch"


def test_an_unknown_ring_is_one_line_with_those_that_are():
    with pytest.raises(ValueError, match="ring-flash-attn has no 'zag': known are ring-flash-attn:ring, "):
        load("ring-flash-attn:zag")


def test_a_document_is_cut_in_zigzag():
    first, second = load("ring-flash-attn:zigzag-varlen").layout(packed(), 2)
    assert first[0].tolist() == [*range(4), *range(12, 16), *range(16, 28), *range(52, 64)]
    assert second[0].tolist() == [*range(4, 12), *range(28, 52)]


def test_the_stand_in_is_there_only_while_it_is_needed(monkeypatch, tmp_path):
    """flash-attn-4 brings a package of this name without the interface."""
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]:
        monkeypatch.delitem(sys.modules, name)
    assert not flash.installed()
    with flash.standing_in():
        assert importlib.import_module(flash.INTERFACE)._flash_attn_forward is flash._flash_attn_forward
    assert flash.INTERFACE not in sys.modules
    (tmp_path / "flash_attn" / "flash_attn_interface.py").write_text("REAL = True\n")
    assert flash.installed() and flash.kernel("cuda") == "fa2 of flash-attn"
    with flash.standing_in():
        assert importlib.import_module(flash.INTERFACE).REAL


@needs_package
@pytest.mark.parametrize("spec", FIVE)
def test_rings_are_right_around_the_surrogate(pool, spec):
    asked = packed() if "varlen" in spec or "llama3" in spec else causal(dtype="bf16")
    record = pool.run(asked, spec, UNTIMED, 60)
    assert (record["verdict"], record["reason"]) == ("PASS", None)
    assert record["implementation"]["kernel"] == "surrogate"


@pytest.fixture(scope="module")
def gpus():
    with Pool(2, "cuda") as made:
        yield made


@needs_gpus
@pytest.mark.gpu
@pytest.mark.parametrize("spec", [*TORCH, *(FIVE if rings.missing() is None else ())])
def test_peers_are_right_on_two_gpus(gpus, spec):
    asked = packed() if "varlen" in spec or "llama3" in spec else causal(dtype="bf16", tokens=512)
    record = gpus.run(asked, spec, UNTIMED, 120)
    assert (record["verdict"], record["reason"]) == ("PASS", None)
