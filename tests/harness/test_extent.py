"""Where a failure begins and how far it reaches: first means the lowest token on the lowest rank."""

import pytest
import torch

from cases.rows import Rows
from harness import diagnose
from harness.adapters.dense import Dense
from harness.extent import Extent, earliest
from tests.harness.breakers import returning
from tests.harness.samples import causal, mixed
from tests.harness.test_trial import trial

OWNER = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0]])
DOCUMENTS = torch.tensor([[1, 1, 1, 2, 2, 3, 3, 3]])


def off(*rows, heads=2):
    found = torch.zeros(1, heads, 8, dtype=torch.bool)
    for head, token in rows:
        found[0, head, token] = True
    return found


@pytest.mark.parametrize(("rows", "place"), [
    ([(0, 3), (1, 2)], (0, 1, 2)), ([(0, 2), (1, 7)], (0, 1, 7)), ([(1, 0), (0, 0)], (0, 0, 0)),
])
def test_the_earliest_is_the_lowest_token_on_the_lowest_rank(rows, place):
    assert earliest(off(*rows), OWNER) == place


def test_numbers_are_told_apart():
    assert diagnose.apart(-0.5, 0.0) == ("-0.5", "0")
    assert diagnose.apart(1.0, 1.0 + 1e-8) == ("1", "1.00000001")
    assert diagnose.apart(float("inf"), float("nan")) == ("inf", "nan")


@pytest.mark.parametrize(("rows", "words"), [
    ([(0, 3), (1, 4)], "12 % of rows, tokens 3..4, rank 1, document 2"),
    ([(0, 0), (1, 7)], "12 % of rows, rank 0, documents 1, 3"),
    ([(h, t) for h in range(2) for t in range(8)], "100 % of rows"),
])
def test_the_extent_in_words(rows, words):
    assert Extent([off(*rows)], OWNER, Rows(1, 8, 1, documents=DOCUMENTS)).words() == words


def spoiled(token, *others):
    """out is off a little at a token and much more at others, on the rank that holds them."""

    def change(out, lse, *_):
        more = torch.zeros(out.shape[2], 1, dtype=out.dtype)
        more[token] = 2 ** -4
        more[list(others)] = 1.0
        return out + (out * more).detach(), lse

    return returning(change)


@pytest.mark.parametrize(("dtype", "others"), [("fp64", (20, 25)), ("bf16", (9, 25))])
def test_the_first_wrong_element_is_not_the_worst(dtype, others):
    found = trial(causal(2, dtype), spoiled(5, *others)())
    assert found["deviations"][0]["where"]["rank"] == 1 or found["deviations"][0]["where"]["token"] != 5
    assert found["diagnosis"]["place"].startswith("rank 0, token 5, head 0")
    assert found["diagnosis"]["expected"].startswith("out[0, 0, 5, ")
    assert found["diagnosis"]["expected"].split("= ")[1] != found["diagnosis"]["actual"]
    assert all("off" not in deviation for deviation in found["deviations"])


def test_a_large_case_is_told_of_without_guesses(monkeypatch):
    monkeypatch.setattr(diagnose, "LARGEST", 0)
    monkeypatch.setattr(diagnose.places, "narrowest", None)
    found = trial(mixed(2), OnOneRank())["diagnosis"]
    assert found["headline"].startswith("out off, up to ") and found["requirement"].startswith("B1")
    assert found["headline"].endswith(" times the budget: 2 % of rows, tokens 67..69, rank 1, document 2")


class OnOneRank(Dense):
    def load(self, case, group, batch):
        step = super().load(case, group, batch)

        def spoil(q, k, v):
            out, lse = step(q, k, v)
            more = torch.zeros(out.shape[2], 1, dtype=out.dtype)
            more[3:6] = 0.5 * group.rank
            return out + (out * more).detach(), lse

        return spoil
