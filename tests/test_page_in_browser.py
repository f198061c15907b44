"""The report's page in a headless Chromium. Nothing is installed here; without a browser these are skipped."""

import json
import struct
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from browser import NAMES, Browser, browsing, find_browser
from diffclone.reports.films import Film
from diffclone.reports.report import figures
from diffclone.reports.report import page as whole
from sheets_made_up import fourteen

SIZES = [(390, 844), (1280, 800)]
SCHEMES = ["light", "dark"]

WIDER = """(() => {
  const least = document.documentElement.clientWidth;
  const held = e => e.closest('.scroll, pre, .skip') && !e.matches('.scroll, pre');
  return [...document.body.querySelectorAll('*')]
    .filter(e => !held(e) && !e.closest('svg') && e.getBoundingClientRect().right > least + 1)
    .map(e => e.tagName + '.' + e.className);
})()"""
COLOURS = """(() => {
  const style = getComputedStyle(document.body);
  const line = document.querySelector('svg text');
  return [style.backgroundColor, style.color, getComputedStyle(line).fill];
})()"""
GREY = {"light": ("rgb(255, 255, 255)", "rgb(17, 24, 39)"), "dark": ("rgb(17, 24, 39)", "rgb(229, 231, 235)")}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    picture = png(4, 4)
    path = tmp_path_factory.mktemp("report") / "index.html"
    sheets = fourteen()
    drawings = {sheet.name: figures(sheet) for sheet in sheets}
    path.write_text(whole(sheets, drawings, [Film("maze", "a ball", "image/png", picture)]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Generator[Browser, None, None]:
    binary = find_browser()
    if binary is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is here, and $DIFFCLONE_CHROMIUM is not set")
    with browsing(binary) as found:
        yield found


def png(width: int, height: int) -> bytes:
    """A grey picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = (b"\0" + b"\x80" * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def kinds_of_bytes(picture: bytes) -> int:
    """How many different bytes a PNG holds once unpacked: a blank one has few."""
    at, packed = 8, b""
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        if picture[at + 4 : at + 8] == b"IDAT":
            packed += picture[at + 8 : at + 8 + length]
        at += 12 + length
    return len(set(zlib.decompress(packed)))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("width", "height"), SIZES, ids=["phone", "desk"])
def test_it_fits_follows_the_scheme_and_asks_for_nothing(
    browser: Browser, page: Path, width: int, height: int, scheme: str
) -> None:
    browser.open(page, width=width, height=height, scheme=scheme)
    across: Any = browser.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert across[0] <= across[1] == width
    assert browser.evaluate(WIDER) == []
    paper, ink = GREY[scheme]
    assert browser.evaluate(COLOURS) == [paper, ink, ink]
    assert kinds_of_bytes(browser.screenshot()) > 20
    assert browser.evaluate("document.querySelector('img').naturalWidth") == 4
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in asked if not url.startswith(("data:", page.resolve().as_uri()))] == []
    said = [event for event in browser.events if event["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")]
    thrown = [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
    assert said + thrown == [], json.dumps(said + thrown)


def test_a_wide_table_scrolls_in_its_own_region_and_keeps_its_row_headings(browser: Browser, page: Path) -> None:
    browser.open(page, width=390, height=844, scheme="light")
    found = browser.evaluate(
        "(() => { const r = document.querySelector('#main-table .scroll'); r.scrollLeft = 300;"
        "const th = r.querySelector('th[scope=row]').getBoundingClientRect();"
        "return [r.scrollWidth > r.clientWidth, r.scrollLeft, th.left >= 0, document.scrollingElement.scrollLeft]; })()"
    )
    assert found == [True, 300, True, 0]


def test_the_keyboard_skips_to_the_results_and_sees_where_it_is(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280, height=800, scheme="light")
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    assert browser.evaluate("document.activeElement.getBoundingClientRect().left >= 0")
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter")
    assert browser.evaluate("location.hash") == "#main"
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.closest('main') !== null")


def test_a_number_leads_to_its_record(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280, height=800, scheme="light")
    browser.evaluate("document.querySelector('#main-table td a').click()")
    found = browser.evaluate(
        "(() => { const li = document.querySelector(':target'); const box = li.getBoundingClientRect();"
        "return [li.id, box.top >= 0 && box.top < innerHeight]; })()"
    )
    assert found == ["record-1", True]


def test_a_screen_reader_finds_names_for_everything_it_stops_at(browser: Browser, page: Path) -> None:
    browser.open(page, width=1280, height=800, scheme="light")
    browser.ask("Accessibility.enable")
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    named = {"link", "region", "image", "table", "navigation", "img", "figure"}
    seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]]
    assert {"link", "region", "table", "navigation"} <= {role for role, _ in seen}
    assert [role for role, name in seen if role in named - {"figure"} and not name] == []
    assert any(role in ("image", "img") and "highest BC, 90.0" in name for role, name in seen)
