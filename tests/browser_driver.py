"""Headless Chromium for the tests of pages, driven by Playwright. Skipped where no browser is installed."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

playwright = pytest.importorskip("playwright.sync_api")

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BINARY = os.environ.get("DIFFCLONE_CHROMIUM") or next((found for n in BROWSERS if (found := shutil.which(n))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PHONE, DESKTOP = (390, 844), (1400, 900)

OVERFLOWING = """inside => {
  const width = document.documentElement.clientWidth;
  const scrolls = e => e.closest(inside) && !e.matches('.scroll, pre');
  return [...document.body.querySelectorAll('*')]
    .filter(e => !scrolls(e) && !e.closest('svg') && e.getBoundingClientRect().right > width + 1)
    .map(e => e.tagName + '.' + e.className);
}"""
"""Returns the elements that are wider than the screen, apart from those in elements that scroll or are hidden."""


@contextmanager
def start_browser() -> "Generator[Browser, None, None]":
    """Start a browser."""
    if BINARY is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed, and $DIFFCLONE_CHROMIUM is not set")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BINARY, args=FLAGS)
        yield found
        found.close()
