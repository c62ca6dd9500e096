"""What the browser tests share: the trials of their page, and what is read off it."""

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnol " + "x" * 900


def made(trial):
    """Trials of two implementations with all verdicts, all kinds of number, and hostile text."""
    diagnosis = {"headline": "dk arrives at the wrong rank", "requirement": "B4: to the owner", "again": "ringcheck x",
                 "recovered": {"sentence": "1 sees 2", "grid": ["#X", "##"], "legend": "# right"}}
    trials = [trial(name, world, layout, dtype, ratio=(3 + 7 * world) % 11 / 20)
              for name in ("packed/even", "sliding/one") for world in (1, 2, 8) for layout in ("contiguous", "zigzag")
              for dtype in ("fp64", "bf16")]
    trials += [trial("packed/tiny", 10, ratio=3e-6), trial("packed/none", deviations=[]),
               trial("packed/nan", verdict="FAIL", ratio=float("nan"), diagnosis=diagnosis),
               trial("packed/inf", verdict="FAIL", ratio=float("inf"), diagnosis=diagnosis),
               trial("packed/error", verdict="ERROR", reason="rank 1 hangs\nstack", deviations=[], measurement=None),
               trial("packed/skip", verdict="SKIP", reason="no", deviations=[], measurement=None, picture=None)]
    odd = trial(EVIL, verdict="FAIL", reason=EVIL, diagnosis={"headline": EVIL, "again": EVIL})
    odd["case"]["mask"] = EVIL
    odd["implementation"].update(name="other", spec="other")
    strict = trial("packed/strict")
    strict["deviations"].append({"tensor": "dv", "ratio": 7.0, "level": "strict", "where": {"rank": 1}})
    return [*trials, strict, odd]


def shown(page):
    """Cases of the rows that are seen, in order."""
    return page.eval_on_selector_all(
        "#rows tbody tr", "all => all.filter((row) => row.checkVisibility()).map((row) => row.id)")


def column(page, key):
    """What the shown rows hold in a column."""
    return page.evaluate(
        """key => { const heads = [...document.querySelectorAll("#rows thead th")];
        const at = heads.findIndex((head) => head.dataset.key === key);
        return [...document.querySelectorAll("#rows tbody tr:not([hidden])")]
            .map((row) => row.cells[at].dataset.v ?? row.cells[at].textContent); }""", key)
