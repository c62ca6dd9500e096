"""The table of trials in a real browser, from file://: filters, order, links. Skipped where no browser is."""

import pytest

from tests.reports.browsing import column, shown


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
