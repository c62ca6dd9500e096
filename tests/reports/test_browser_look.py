"""The whole page in a real browser: silence, colours, paper, keyboard. Skipped where no browser is."""

import re
from pathlib import Path

import pytest

from reports import build
from tests.reports.browsing import shown

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


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
    said, page = [], browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"file://{tmp_path}/empty.html")
    assert said == [] and page.locator("#shown").text_content() == "0 of 0 trials shown"
    page.close()
