"""The report's page in headless Chromium, driven by Playwright. Skipped where no browser is installed."""

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from diffclone.reports.report import draw_figures, report_page
from diffclone.reports.videos import Video
from example_results import all_tables

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BINARY = os.environ.get("DIFFCLONE_CHROMIUM") or next((found for n in BROWSERS if (found := shutil.which(n))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
SIZES = [(390, 844), (1280, 800)]
PIXEL = (
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63686868000003040181d4f7a4680000000049454e44ae426082"
)

OVERFLOWING = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = e => e.closest('.scroll, pre, .skip') && !e.matches('.scroll, pre');
  return [...document.body.querySelectorAll('*')]
    .filter(e => !scrolls(e) && !e.closest('svg') && e.getBoundingClientRect().right > width + 1)
    .map(e => e.tagName + '.' + e.className);
}"""
COLOURS = """() => {
  const style = getComputedStyle(document.body);
  return [style.backgroundColor, style.color, getComputedStyle(document.querySelector('svg text')).fill];
}"""
EXPECTED_COLOURS = {
    "light": ["rgb(255, 255, 255)", "rgb(17, 24, 39)", "rgb(17, 24, 39)"],
    "dark": ["rgb(17, 24, 39)", "rgb(229, 231, 235)", "rgb(229, 231, 235)"],
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "index.html"
    sheets = all_tables()
    figures = {sheet.name: draw_figures(sheet) for sheet in sheets}
    video = Video("maze", "a ball", "image/png", bytes.fromhex(PIXEL))
    path.write_text(report_page(sheets, figures, [video]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> "Generator[Browser, None, None]":
    if BINARY is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed, and $DIFFCLONE_CHROMIUM is not set")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BINARY, args=FLAGS)
        yield found
        found.close()


def open_page(
    browser: "Browser",
    address: str,
    width: int = 1280,
    height: int = 800,
    scheme: Literal["light", "dark"] = "light",
) -> "Page":
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(address)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES, ids=["phone", "desktop"])
def test_the_page_fits_follows_the_colour_scheme_and_requests_nothing(
    browser: "Browser", address: str, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(COLOURS) == EXPECTED_COLOURS[scheme]
    assert len(np.unique(np.frombuffer(page.screenshot(type="jpeg"), dtype=np.uint8))) > 20
    assert page.evaluate("document.querySelector('img').naturalWidth") == 1
    assert [url for url in requests if not url.startswith("data:") and url != address] == []
    assert problems == []


def test_a_wide_table_scrolls_in_its_own_region_and_keeps_its_row_headings(browser: "Browser", address: str) -> None:
    found = open_page(browser, address, *SIZES[0]).evaluate(
        "(() => { const r = document.querySelector('#main-table .scroll'); r.scrollLeft = 300;"
        "const th = r.querySelector('th[scope=row]').getBoundingClientRect();"
        "return [r.scrollWidth > r.clientWidth, r.scrollLeft, th.left >= 0, document.scrollingElement.scrollLeft]; })()"
    )
    assert found == [True, 300, True, 0]


def test_the_keyboard_skips_to_the_results_and_shows_the_focus(browser: "Browser", address: str) -> None:
    page = open_page(browser, address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_a_number_links_to_its_record(browser: "Browser", address: str) -> None:
    page = open_page(browser, address)
    page.locator("#main-table td a").first.click()
    target = page.locator("li:target")
    assert target.get_attribute("id") == "record-1"
    playwright.expect(target).to_be_in_viewport()


def test_everything_a_screen_reader_stops_at_has_a_name(browser: "Browser", address: str) -> None:
    page = open_page(browser, address)
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    stops = {"link", "region", "image", "table", "navigation", "img"}
    assert {"link", "region", "table", "navigation"} <= {role for role, _ in seen}
    assert [role for role, name in seen if role in stops and not name] == []
    assert any(role in ("image", "img") and "highest BC, 90.0" in name for role, name in seen)
