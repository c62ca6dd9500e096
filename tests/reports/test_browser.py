"""The page in a real browser, from file://. Skipped where playwright or a chromium is missing; no download is made."""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from reports import build, record

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'ringcheck[browser]'")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium or google-chrome on the path")
CONTRAST = Path(__file__).with_name("browsing.js").read_text()
EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202egnol " + "x" * 900


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


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


@pytest.fixture
def address(results_file, trial, tmp_path):
    """file:// address of a page of many kinds of trial."""
    change = {"case": "packed/even-zigzag-w2-fp64", "implementation": "ring", "old": 1.0, "new": 2.0, "ratio": 2.0}
    changes = [{**change, "state": state} for state in ("slower", "broke", "faster", "new", "insignificant")]
    target = tmp_path / "page.html"
    build.write([results_file(made(trial))], target, changes)
    return f"file://{quote(str(target))}"


@pytest.fixture
def visit(browser, address):
    """Opens the page; whatever it says on the console fails the test at its end."""
    contexts, said = [], []

    def go(anchor="", **options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address + anchor)
        return page

    yield go
    for context in contexts:
        context.close()
    assert said == []


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


def test_the_console_stays_silent_and_the_policy_blocks_what_is_not_ours(visit, browser, address, tmp_path):
    page = visit()
    assert page.title().startswith("ringcheck: ") and page.locator("#filters").is_visible()
    text = (tmp_path / "page.html").read_text()
    planted = '<b style="color:red">x</b><script>1</script></main>'
    (tmp_path / "page.html").write_text(text.replace("</main>", planted))
    said, other = [], browser.new_page()
    other.on("console", lambda message: said.append(message.text))
    other.goto(address)
    assert sum("Content Security Policy" in one for one in said) == 2
    other.close()


def test_filters_show_what_is_asked_count_it_and_stand_in_the_address(visit):
    page = visit()
    total = len(shown(page))
    page.select_option("[name=world]", "2")
    page.select_option("[name=dtype]", "bf16")
    page.select_option("[name=group]", "packed")
    assert set(column(page, "world")) == {"2"} and set(column(page, "dtype")) == {"bf16"}
    assert all(name.startswith("packed/") for name in shown(page))
    assert page.locator("#shown").text_content().startswith(f"{len(shown(page))} of {total} trials shown")
    page.fill("[name=text]", "EVEN zigzag")
    assert shown(page) == ["packed/even-zigzag-w2-bf16@ring"]
    assert page.url.endswith("#?group=packed&world=2&dtype=bf16&text=EVEN+zigzag")
    page.press("[name=text]", "Enter")
    page.click("#reset")
    assert len(shown(page)) == total and page.url.endswith("#?")


@pytest.mark.parametrize("name, value, key", [("implementation", "other", "implementation"), ("verdict", "FAIL", None)])
def test_a_filter_of_implementation_or_verdict(visit, name, value, key):
    page = visit()
    page.select_option(f"[name={name}]", value)
    assert 0 < len(shown(page)) < 10
    if key:
        assert set(column(page, key)) == {value}
    else:
        assert all("FAIL" in text for text in page.locator("#rows tbody tr:not([hidden]) .verdict").all_text_contents())


def test_a_mask_can_be_asked_for_whatever_it_is_called(visit):
    page = visit()
    page.select_option("[name=mask]", index=1)
    assert [name[:15] for name in shown(page)] == ["_script_alert_1"]


def test_numbers_sort_as_numbers_with_what_is_missing_last_and_by_keyboard(visit):
    page = visit()
    head = page.locator("th[data-key=error-budget]")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    values = column(page, "error-budget")
    known = [float(value) for value in values if value != "–"]
    assert known == sorted(known) and known[0] < 1e-5 and known[-1] == float("inf")
    assert head.get_attribute("aria-sort") == "ascending" and set(values[len(known):]) == {"–"}
    page.keyboard.press("Space")
    falling = column(page, "error-budget")
    assert [float(value) for value in falling if value != "–"] == known[::-1] and falling[-1] == "–"
    assert head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert page.locator("[aria-sort]").count() == 0
    page.click("th[data-key=world] button")
    assert [int(value) for value in column(page, "world")] == sorted(map(int, column(page, "world")))


def test_sorting_is_stable(visit):
    page = visit()
    before = {name: at for at, name in enumerate(shown(page))}
    page.click("th[data-key=dtype] button")
    for turn in ("ascending", "descending"):
        page.click("th[data-key=world] button")
        rows = list(zip(column(page, "world"), column(page, "dtype"), (before[name] for name in shown(page))))
        sign = 1 if turn == "ascending" else -1
        assert rows == sorted(rows, key=lambda row: (sign * int(row[0]), row[1:]))


def test_an_address_restores_filters_and_order(visit):
    first = visit()
    first.select_option("[name=world]", "8")
    first.click("th[data-key=error-budget] button")
    first.click("th[data-key=case] button")
    first.click("th[data-key=case] button")
    second = visit(first.url[first.url.index("#"):])
    assert shown(second) == shown(first) and len(shown(first)) == 8
    assert second.locator("[aria-sort]").get_attribute("data-key") == "case"
    second.evaluate("location.hash = '#?dtype=fp64&world=no&sort=nonsense'")
    second.wait_for_function("document.querySelector('[name=dtype]').value === 'fp64'")
    assert set(column(second, "world")) > {"8"} and second.locator("[aria-sort]").count() == 0


def test_a_link_to_a_trial_shows_it_even_where_a_filter_hid_it(visit):
    name = "sliding/one-zigzag-w8-bf16@ring"
    page = visit(f"#{name}")
    row = page.locator(f'[id="{name}"]')
    assert row.evaluate("row => row.matches(':target')")
    box, height = row.bounding_box(), page.viewport_size["height"]
    assert 0 <= box["y"] < height
    page.select_option("[name=world]", "1")
    assert row.is_hidden()
    page.evaluate("window.scrollTo(0, 0)")
    page.evaluate(f"location.hash = {'#' + name!r}")
    row.wait_for(state="visible")
    assert 0 <= row.bounding_box()["y"] < height


def test_a_link_of_a_failed_row_opens_what_went_wrong(visit):
    page = visit()
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false")
    page.click('[id="packed/nan-contiguous-w2-fp64@ring"] td a')
    page.locator(".failure[open] dl:target").wait_for(timeout=5000)
    page.click("dl:target a")
    assert page.locator("tr:target").get_attribute("id") == "packed/nan-contiguous-w2-fp64@ring"


def test_without_script_every_trial_is_there(visit):
    scripted, plain = visit(), visit(java_script_enabled=False)
    rows = plain.locator("#rows tbody tr").all()
    assert len(rows) == len(shown(scripted)) and all(row.is_visible() for row in rows)
    assert plain.locator("#filters").is_hidden() and plain.locator("#shown").is_hidden()


@pytest.mark.parametrize("media", ["screen", "print"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(visit, scheme, media):
    page = visit(color_scheme=scheme)
    page.emulate_media(media=media, color_scheme=scheme)
    found = page.evaluate(CONTRAST)
    assert len(found) > 300 and any(tag == "text" for _, _, tag, _ in found)
    poor = sorted(one for one in found if one[0] < 4.5)
    assert not poor, poor[:10]


@pytest.mark.parametrize("script", [True, False])
def test_print_has_all_tables_whole(visit, script):
    page = visit(java_script_enabled=script, viewport={"width": 1030, "height": 700})
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() > 3
    boxes = [table.bounding_box() for table in page.locator("table").all()]
    assert all(box["height"] > 20 for box in boxes)
    assert not [box for box in boxes if box["x"] + box["width"] > 1031]
    assert all(one.is_visible() for one in page.locator("details:not([open]) > :not(summary)").all())
    assert all(row.is_visible() for row in page.locator("#rows tbody tr").all())
    rows, outer = page.locator("#rows").bounding_box(), page.locator(".rows").bounding_box()
    assert rows["height"] <= outer["height"] + 1
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) > 2


def test_the_keyboard_goes_past_the_banner_and_past_the_table(visit):
    page = visit()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.locator("#reset").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip the table"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Table of trials"


def test_hostile_text_runs_nothing_and_reads_as_text(visit):
    page = visit()
    assert page.locator("img").count() == 0 and page.locator("script").count() == 1
    assert page.locator("#rows").get_by_text("<script>alert(1)</script>").count() >= 1


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_itself_never_scrolls_sideways(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_page_of_a_file_without_trials_is_silent_too(browser, tmp_path):
    (tmp_path / "empty.jsonl").write_text('{"kind":"run","schema":1}\n')
    build.write([tmp_path / "empty.jsonl"], tmp_path / "empty.html")
    assert record.read(tmp_path / "empty.jsonl").trials == []
    said, page = [], browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"file://{tmp_path}/empty.html")
    assert said == [] and page.locator("#shown").text_content() == "0 of 0 trials shown"
    page.close()
