"""Every page in headless Chromium, driven by Playwright. Skipped where no browser is installed."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from browser_driver import DESKTOP, OVERFLOWING, PHONE, playwright, start_browser
from diffclone.reports.theme import DARK, LIGHT
from example_pages import PAGES

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MOST_BYTES = 6_000_000
LEAST_CONTRAST = 4.5
Scheme = Literal["light", "dark"]

CONTRASTS = """least => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = numbers(colour).map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (numbers(colour)[3] !== 0) return colour;
    }
  };
  const seen = e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length;
  document.querySelectorAll('details').forEach(details => { details.open = true; });
  const elements = [...document.body.querySelectorAll('*')].filter(e => seen(e) && !e.closest('script, option'));
  const found = elements.map(e => {
    const style = getComputedStyle(e), back = ground(e);
    const [dark, bright] = [light(e.closest('svg') ? style.fill : style.color), light(back)].sort((a, b) => a - b);
    return [(bright + .05) / (dark + .05), e.tagName + '.' + (e.className.baseVal ?? e.className)];
  });
  return [found.length, found.filter(([contrast]) => contrast < least)];
}"""
REACHABLE = """() => [...document.querySelectorAll(
  'a[href], button, select, input, summary, video[controls], [tabindex="0"]')]
  .filter(e => e.checkVisibility()).length"""


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("pages")
    found: dict[str, str] = {}
    for name, make in PAGES.items():
        path = folder / f"{name}.html"
        path.write_text(make(), encoding="utf-8")
        assert path.stat().st_size < MOST_BYTES
        found[name] = path.as_uri()
    return found


@pytest.fixture(scope="module")
def browser() -> "Generator[Browser, None, None]":
    with start_browser() as found:
        yield found


@pytest.fixture(scope="module")
def opened(browser: "Browser", addresses: dict[str, str]) -> "Generator[dict[str, Page], None, None]":
    """One tab per kind of page, for tests that do not change the page for good."""
    context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]}, reduced_motion="reduce")
    pages = {name: context.new_page() for name in addresses}
    requests: list[str] = []
    problems: list[str] = []
    for name, page in pages.items():
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(addresses[name])
    yield pages
    assert [url for url in requests if not url.startswith("data:") and url not in addresses.values()] == []
    assert problems == []
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone_and_a_desktop(opened: "dict[str, Page]", name: str) -> None:
    page = opened[name]
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOWING, ".scroll, pre, .skip, dialog") == []


@pytest.mark.parametrize("width", [DESKTOP[0], 900, PHONE[0]])
@pytest.mark.parametrize("name", ["report", "compare"])
def test_all_lines_of_a_plot_share_its_scale(opened: "dict[str, Page]", name: str, width: int) -> None:
    opened[name].set_viewport_size({"width": width, "height": 900})
    ends = opened[name].evaluate(
        "[...document.querySelectorAll('.plot')].filter(plot => plot.checkVisibility()).map(plot =>"
        "[...plot.querySelectorAll('.track, .scale')].map(e => e.getBoundingClientRect()).map(r => [r.left, r.right]))"
    )
    assert len(ends) >= 1
    for plot in ends:
        assert len(plot) > 1
        assert all(line == plot[-1] for line in plot)
        assert plot[0][1] - plot[0][0] >= 100


@pytest.mark.parametrize("name", PAGES)
def test_text_stands_out_in_both_schemes(opened: "dict[str, Page]", name: str) -> None:
    page, schemes = opened[name], list[Scheme](("light", "dark"))
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == rgb(scheme, "paper")
        count, low = page.evaluate(CONTRASTS, LEAST_CONTRAST)
        assert count > 30
        assert low == []
    if page.query_selector("svg text"):
        assert page.evaluate("getComputedStyle(document.querySelector('svg text')).fill") == rgb("dark", "ink")


def rgb(scheme: str, name: str) -> str:
    colour = {"light": LIGHT, "dark": DARK}[scheme][name]
    return f"rgb({', '.join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5))})"


@pytest.mark.parametrize("name", PAGES)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    browser: "Browser", addresses: dict[str, str], name: str
) -> None:
    page = open_page(browser, addresses[name])
    wanted = page.evaluate(REACHABLE)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.evaluate("window.reached = new Set(); window.unmarked = []")
    for _ in range(wanted + 5):
        page.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return; reached.add(e);"
            "if (getComputedStyle(e).outlineStyle === 'none') unmarked.push(e.outerHTML.slice(0, 80)); })()"
        )
        page.keyboard.press("Tab")
    assert page.evaluate("reached.size") >= wanted
    assert page.evaluate("unmarked") == []
    page.close()


def open_page(browser: "Browser", address: str, size: tuple[int, int] = DESKTOP, scheme: Scheme = "light") -> "Page":
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    page.goto(address)
    return page


def column(page: "Page", index: int) -> list[str]:
    rows = page.locator("table.numbers tbody tr:not([hidden])")
    return [text.strip().split("\n")[0] for text in rows.locator(f"> :nth-child({index})").all_inner_texts()]


def test_the_table_of_all_numbers_is_sorted_and_filtered(browser: "Browser", addresses: dict[str, str]) -> None:
    page = open_page(browser, addresses["report"])
    head = page.locator("table.numbers th", has_text="ours")
    rows = len(column(page, 1))
    for order, reverse in (("ascending", False), ("descending", True)):
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
        numbers = [float(re.sub(r"[^\d.]", "", text.split(" ")[0].split(",\xa0")[0])) for text in means(page)]
        assert numbers == sorted(numbers, reverse=reverse)
    page.get_by_label("task").select_option("maze")
    page.get_by_label("method").select_option("dbc")
    assert set(column(page, 2)) == {"maze"}
    assert set(column(page, 3)) == {"dbc"}
    assert "1 of" in page.locator(".filters output").inner_text()
    page.get_by_role("button", name="Show all").click()
    playwright.expect(page.locator(".filters output")).to_have_text(f"{rows} of {rows} rows")
    page.get_by_label("words").fill("walker diffusion")
    assert set(column(page, 2)) == {"walker"}
    page.locator("#coefficient a[data-show]").click()
    assert set(column(page, 1)) == {"About coefficient"}
    page.close()


def means(page: "Page") -> list[str]:
    script = "cells => cells.map(e => e.firstChild.firstChild.textContent)"
    return page.locator("table.numbers tbody tr:not([hidden]) td:nth-child(5)").evaluate_all(script)


def test_a_number_opens_its_record_and_the_focus_comes_back(browser: "Browser", addresses: dict[str, str]) -> None:
    page = open_page(browser, addresses["report"])
    link = page.locator("table.numbers a.record").first
    link.press("Enter")
    dialog = page.get_by_role("dialog")
    playwright.expect(dialog).to_be_visible()
    text = dialog.inner_text()
    for shown in ("Record ", "diffclone reproduce main-table --only Maze,dbc", "0, 1, 2, 3, 4", '"coefficient": 30'):
        assert shown in text
    page.keyboard.press("Escape")
    playwright.expect(dialog).to_be_hidden()
    assert page.evaluate("document.activeElement.className") == "record"
    page.goto(f"{addresses['report']}#record-2")
    playwright.expect(page.locator("#record-2 pre").first).to_be_visible()
    page.close()


def test_without_scripts_a_page_is_complete(browser: "Browser", addresses: dict[str, str]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(addresses["report"])
    page.locator("table.numbers a.record").first.click()
    assert page.url.endswith("#record-1") or "#record-" in page.url
    playwright.expect(page.locator("#claims")).to_contain_text("reproduced")
    playwright.expect(page.locator("#theme")).to_be_hidden()
    context.close()


def test_the_switch_changes_the_colours_and_the_contents_fold_on_a_phone(
    browser: "Browser", addresses: dict[str, str]
) -> None:
    page = open_page(browser, addresses["demo"], PHONE, "dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    playwright.expect(page.locator("nav a").first).to_be_hidden()
    assert page.evaluate(ground) == rgb("dark", "paper")
    page.get_by_role("button", name="Light colours").press("Enter")
    assert page.evaluate(ground) == rgb("light", "paper")
    page.reload()
    assert page.evaluate(ground) == rgb("light", "paper")
    page.locator("nav summary").press("Enter")
    page.locator("nav a", has_text="All numbers").press("Enter")
    playwright.expect(page.locator("#numbers")).to_be_in_viewport()
    playwright.expect(page.locator("nav a").first).to_be_hidden()
    page.set_viewport_size({"width": DESKTOP[0], "height": DESKTOP[1]})
    playwright.expect(page.locator("nav a").first).to_be_visible()
    page.close()


def test_a_film_is_still_until_the_pointer_or_the_focus_is_on_it(browser: "Browser", addresses: dict[str, str]) -> None:
    page = open_page(browser, addresses["report"])
    film, moving = page.locator(".film").first, page.locator(".film .moving").first
    playwright.expect(moving).to_be_hidden()
    film.hover()
    playwright.expect(moving).to_be_visible()
    page.mouse.move(0, 0)
    playwright.expect(moving).to_be_hidden()
    film.focus()
    playwright.expect(moving).to_be_visible()
    page.close()


def test_the_slider_steps_through_an_episode(browser: "Browser", addresses: dict[str, str]) -> None:
    page = open_page(browser, addresses["inspect"])
    slider, place = page.locator(".player input"), page.locator(".map circle")
    before: Any = place.get_attribute("cx")
    for _ in range(3):
        slider.press("ArrowRight")
    assert page.locator(".player output").inner_text() == "3 of 59"
    assert slider.get_attribute("aria-valuetext") == "step 3 of 59"
    assert place.get_attribute("cx") != before
    shown = page.locator(".legend b").first.inner_text()
    page.locator(".player select").select_option(index=2)
    assert page.locator(".player output").inner_text() == "0 of 59"
    assert page.locator(".legend b").first.inner_text() != shown
    page.locator("#ranking th button", has_text="unusualness").click()
    first = page.locator("#ranking tbody tr").first.inner_text()
    assert first.startswith("5")
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_everything_a_screen_reader_stops_at_has_a_name(opened: "dict[str, Page]", name: str) -> None:
    page = opened[name]
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    stops = {"link", "region", "image", "table", "navigation", "img", "button", "slider", "combobox", "form"}
    assert {"link", "region", "table", "navigation", "banner", "main", "contentinfo"} <= {role for role, _ in seen}
    assert [role for role, label in seen if role in stops and not label] == []
    assert page.evaluate("[...document.querySelectorAll('th')].every(th => th.scope)")
