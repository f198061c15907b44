"""The documentation site in headless Chromium: built once, served from this machine."""

import functools
import subprocess
import sys
import threading
from collections.abc import Generator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from browser_driver import DESKTOP, OVERFLOWING, PHONE, playwright, start_browser

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
PAGES = ("", "fair-comparison/", "api/fit/", "api/settings/", "commands/train/")
SCROLLING = ".md-typeset__scrollwrap, pre, .highlight, p:has(> img), [data-md-component=sidebar], .md-search, .md-skip"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line per request."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    pytest.importorskip("mkdocstrings")
    site = tmp_path_factory.mktemp("built") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def page(address: str) -> "Generator[Page, None, None]":
    """A tab that must not request anything from another machine."""
    with start_browser() as browser:
        found, requests = browser.new_page(), list[str]()
        found.on("request", lambda request: requests.append(request.url))
        yield found
        assert requests
        assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone_and_a_desktop(page: "Page", address: str, name: str) -> None:
    for width, height in (PHONE, DESKTOP):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(address + name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOWING, SCROLLING) == []


def test_a_wide_table_scrolls_inside_itself_and_breaks_no_name(page: "Page", address: str) -> None:
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.goto(address + "fair-comparison/")
    sizes = "[...document.querySelectorAll('.md-typeset__scrollwrap')].map(e => [e.scrollWidth, e.clientWidth])"
    found: list[list[int]] = page.evaluate(sizes)
    assert any(whole > seen for whole, seen in found)
    page.goto(address + "api/settings/")
    script = "cells => cells.map(e => e.getClientRects().length)"
    lines: list[int] = page.locator("article table td:first-child code").evaluate_all(script)
    assert len(lines) > 20
    assert set(lines) == {1}


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_the_search_finds_a_page(page: "Page", address: str, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(address)
    if size == PHONE:
        page.locator(".md-header__button[for=__search]").click()
    box = page.get_by_role("textbox", name="Search")
    playwright.expect(box).to_be_visible()
    box.click()
    box.press_sequentially("glossary")
    found = page.locator(".md-search-result__link[href*='/glossary/']").first
    playwright.expect(found).to_be_visible(timeout=20_000)


def test_signs_in_tables_are_shown_without_a_backslash(page: "Page", address: str) -> None:
    page.goto(address + "reproduction/")
    text = page.locator("article").inner_text()
    assert "p <0.001" in text
    assert "\\<" not in text


def test_figures_are_dark_in_dark_colours(page: "Page", address: str) -> None:
    browser = page.context.browser
    assert browser is not None
    found: dict[Scheme, str] = {}
    for scheme in SCHEMES:
        # A new page, since the site remembers the colours of the first visit.
        fresh = browser.new_page(color_scheme=scheme)
        fresh.goto(address + "fair-comparison/")
        found[scheme] = fresh.locator("article img[src$='.svg']").first.evaluate("e => getComputedStyle(e).filter")
        fresh.close()
    assert found["light"] == "none"
    assert "invert" in found["dark"]
