"""What methods must give back: anything else is a failure that says what was promised and what came, no error."""

import pytest
import torch

from cases import catalogue
from harness.adapters.dense import Dense
from harness.adapters.ring import Ring
from tests.harness import breakers
from tests.harness.breakers import backward, declaring, opening, returning
from tests.harness.samples import causal
from tests.harness.test_trial import trial


def told(made, case=None):
    record = trial(case or causal(), made)
    assert record["verdict"] == "FAIL", record["reason"]
    found = record["diagnosis"]
    return f"{record['reason']} | {found['expected']} | {found['actual']} | {found['place']}"


@pytest.mark.parametrize(("change", "words"), [
    (lambda *_: None, "B1: step returned None on rank 0 | (out, lse) or (out, None) | None | rank 0"),
    (lambda out, *_: out, "B1: step returned a Tensor [1, 4, 32, 32] of float64 on rank 0 | (out, lse)"),
    (lambda out, lse, *_: (out, lse, 0), "B1: step returned a tuple of 3 on rank 0"),
    (lambda out, lse, *_: (out,), "B1: step returned a tuple of 1 on rank 0"),
    (lambda out, lse, *_: [out, lse], "B1: step returned a list of 2 on rank 0"),
    (lambda out, lse, *_: breakers.Triple(out, lse, 0), "B1: step returned a Triple of 3 on rank 0"),
    (lambda out, lse, *_: {"out": out}, "B1: step returned a dict of 1 on rank 0"),
    (lambda out, lse, *_: (x for x in (out, lse)), "B1: step returned a generator on rank 0"),
    (lambda out, lse, *_: (None, lse), "B1: out of rank 0 is no tensor | a tensor [1, 4, 32, 32] | NoneType | rank 0"),
    (lambda out, lse, *_: (out.detach().numpy(), lse), "B1: out of rank 0 is no tensor"),
    (lambda out, lse, *_: (out.float(), lse), "B6: out of rank 0 has the wrong dtype"),
    (lambda out, lse, *_: (out[:, :1], lse), "B1: out of rank 0 has the wrong shape"),
    (lambda out, lse, *_: (out.to("meta"), lse), "B1: out of rank 0 is not a dense tensor on cpu"),
    (lambda out, lse, *_: (out.to_sparse(), lse), "B1: out of rank 0 is not a dense tensor on cpu"),
    (lambda out, lse, *_: (out, lse[..., None]), "B2: lse of rank 0 has the wrong shape"),
    (lambda out, lse, *_: (out, 0.0), "B2: lse of rank 0 is no tensor"),
    (lambda out, lse, q, *_: (q, lse), "B7: out shares memory with q on rank 0 | its own | that of q | rank 0"),
    (lambda out, lse, q, k, v: (out, lse + 0 * q.sum()), "B2: lse carries a gradient on rank 0 | lse.requires_grad"),
])
def test_a_step_that_returns_something_else(change, words):
    assert words in told(returning(change)())


def test_a_named_pair_is_a_pair():
    assert trial(causal(), returning(lambda out, lse, *_: breakers.Pair(out, lse))())["verdict"] == "PASS"


@pytest.mark.parametrize(("made", "words"), [
    (breakers.OnOneRank(), "B1: step returned None on rank 1 | (out, lse) or (out, None) | None | rank 1"),
    (breakers.TakesTwo(), "B1: step does not take what it is called with on rank 0 | step(Tensor, Tensor"),
    (breakers.LoadsNothing(), "contract: load does not take what it is called with on rank 0 | load(Rows)"),
    (declaring(load=None)(), "contract: load returned None on rank 0 | a step: callable with q, k and v | None"),
    (declaring(load=7)(), "contract: load returned 7 on rank 0"),
    (declaring(open=None)(), "contract: open returned None, which has no load, traffic, scope, close on rank 0"),
    (declaring(refuses=True)(), "D7: refuses returned True on rank 0 | a reason or None | True | rank 0"),
    (declaring(refuses=1)(), "D7: refuses returned 1 on rank 0"),
    (declaring(refuses="")(), "D7: refuses returned '' on rank 0"),
    (declaring(refuses=["no"])(), "D7: refuses returned a list of 1 on rank 0"),
    (opening(scope=None)(), "contract: scope returned None on rank 0 | a context manager | None | rank 0"),
    (opening(traffic=7)(), "D9: traffic returned 7 on rank 0 | (bytes, messages) or None | 7"),
    (opening(load=None)(), "contract: load returned None on rank 0"),
])
def test_a_method_that_gives_something_else(made, words):
    assert words in told(made)


@pytest.mark.parametrize(("lay", "words"), [
    (lambda parts: None, "D1: layout returned None on rank 0 | a list of 2 int64 tensors | None | rank 0"),
    (torch.stack, "D1: layout returned a Tensor [2, 32] of int64 on rank 0"),
    (iter, "D1: layout returned a list_iterator on rank 0"),
    (lambda parts: [part.tolist() for part in parts], "D1: layout returned a list of 2 that holds a list of 32 on"),
    (lambda parts: [None, parts[0]], "D1: layout returned a list of 2 that holds None on rank 0"),
    (lambda parts: [part.to("meta") for part in parts], "D1: layout returned a list of 2 that holds a Tensor [32]"),
    (lambda parts: [part.double().requires_grad_() for part in parts], "D1: the layout does not have the shape"),
    (lambda parts: [part[0] for part in parts], "D1: the layout does not have the shape"),
    (lambda parts: [], "D1: the layout does not have the shape"),
])
def test_a_layout_that_is_none(lay, words):
    assert words in told(breakers.LaysOut(lay))


def test_a_layout_may_be_a_tuple():
    assert trial(causal(), breakers.LaysOut(tuple))["verdict"] == "PASS"


@pytest.mark.parametrize(("grad", "words"), [
    (lambda g: g[:, :, :1], "returned an invalid gradient at index 0 - got [1, 4, 1, 32] but expected"),
    (lambda g: (g, g), "returned an incorrect number of gradients (expected 1, got 2)"),
    (lambda g: [g], "expected Variable or None (got list)"),
])
def test_gradients_that_autograd_does_not_take(grad, words):
    said = told(backward(grad)())
    assert said.startswith("B4: autograd cannot take what the backward gives on rank 0") and words in said


@pytest.mark.parametrize(("name", "words"), [
    ("state/checkpoint", "D4: the step does other things when it is run again for the backward on rank 0"),
    ("state/reentrant", "B1: step returned None on rank 0"),
])
def test_a_step_that_is_run_again_keeps_its_promises(name, words):
    assert words in told(breakers.Fades(), catalogue.select(name, (2,), dtypes=("fp64",))[0])


@pytest.mark.parametrize(("made", "asked", "words"), [
    (breakers.marking("k", True)(), "q", "B8: k.requires_grad was changed on rank 0 | False | True | rank 0"),
    (breakers.marking("q", False)(), "qkv", "B8: q.requires_grad was changed on rank 0 | True | False | rank 0"),
    (breakers.Differentiates(), "qkv", "B8: q.grad was filled on rank 0, which nobody asked for"),
])
def test_gradients_that_nobody_asked_for(made, asked, words):
    assert words in told(made, causal(2, grads=asked))


@pytest.mark.parametrize("name", ["state/back-to-the-first", "state/only-documents", "mixed/window-packed-padded"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_metadata_is_watched_while_a_step_runs(name, phase):
    made = breakers.Scribbles()
    made.phase = phase
    case = catalogue.select(name, (2,), dtypes=("fp64",))[0]
    assert f"B7: documents was modified on rank 0 in the {phase}" in told(made, case), case.course


@pytest.mark.parametrize("made", [Dense, Ring])
def test_lse_of_honest_rings_carries_no_gradient(made):
    assert trial(causal(2, "bf16"), made())["verdict"] == "PASS"


@pytest.mark.parametrize(("made", "words"), [(breakers.RaisesTypeError(), "object of type 'int' has no len()")])
def test_what_it_raises_itself_passes_through(made, words):
    with pytest.raises(AssertionError, match="TypeError") as raised:
        trial(causal(), made)
    assert words in str(raised.value)
