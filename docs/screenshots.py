"""Write every kind of page with small runs, and take pictures of them in headless Chromium.

python -m docs.screenshots [NAME…]      into build/screenshots: each page at 1400 and 390 pixels, light and dark
python -m docs.screenshots --keep       also renew the pictures in docs/images that the documentation shows

The pages of demo, train, compare and calibrate come from shortened runs: their numbers say nothing about the methods.
"""

import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from diffclone.cli.main import main as run_command

DOCS = Path(__file__).parent
BUILD = DOCS.parent / "build" / "screenshots"
RECORDS = ("reproduction", "paper_recipe", "settings", "study")
SIZES = {"wide": (1400, 900), "narrow": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LONGEST = 12_000
"""Pixels of a picture from top to bottom; Chromium cannot take much longer ones."""
KEPT = {"report": 900, "inspect": 1500}
"""Pages whose top is shown in the documentation, and how many pixels of it."""
KEPT_WIDTH, KEPT_QUALITY = 900, 55
TINY = ["--training.updates", "200", "--network.width", "32", "--device", "cpu", "--seeds", "3", "--held-out", "0.5"]


def make_report(folder: Path) -> Path:
    """Write the report of the Records in docs/records."""
    records = [str(path) for name in RECORDS for path in sorted((DOCS / "records").glob(f"{name}*.jsonl*"))]
    run_command(["report", "--out", str(folder / "report"), "--records", *records])
    return folder / "report" / "index.html"


def make_inspection(folder: Path) -> Path:
    """Inspect the demonstrations of a task."""
    run_command(["inspect", "fetch-pick", "--page", str(folder / "inspect.html")])
    return folder / "inspect.html"


def make_demo(folder: Path) -> Path:
    """Run the demo for some seconds."""
    if not (folder / "demo").exists():
        run_command(["demo", "--quick", "--out", str(folder / "demo")])
    return folder / "demo" / "index.html"


def make_search(folder: Path) -> Path:
    """Return the page of the demo's search."""
    make_demo(folder)
    return folder / "demo" / "search.html"


def make_runs(folder: Path) -> tuple[str, str]:
    """Train two small policies, unless they are there."""
    for method in ("bc", "dbc"):
        if not (folder / method).exists():
            guide = ["--guide.training.updates", "200", "--guide.width", "32"] if method == "dbc" else []
            run_command(["train", "spiral", "--method", method, *TINY, *guide, "--out", str(folder / method)])
    return str(folder / "bc"), str(folder / "dbc")


def make_comparison(folder: Path) -> Path:
    """Compare the two small policies."""
    run_command(["compare", *make_runs(folder), "--episodes", "20", "--out", str(folder / "compare.html")])
    return folder / "compare.html"


def make_monitor(folder: Path) -> Path:
    """Calibrate the monitor of one of them."""
    flags = ["--alpha", "0.2", "--again", "--page", str(folder / "calibrate.html")]
    run_command(["calibrate", make_runs(folder)[1], *flags])
    return folder / "calibrate.html"


PAGES: dict[str, Callable[[Path], Path]] = {
    "report": make_report,
    "inspect": make_inspection,
    "demo": make_demo,
    "train": make_search,
    "compare": make_comparison,
    "calibrate": make_monitor,
}


def take_pictures(browser: Browser, name: str, page: Path) -> None:
    """Write the four pictures of a page."""
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(page.as_uri())
            length = int(tab.evaluate("document.documentElement.scrollHeight"))
            tab.set_viewport_size({"width": width, "height": min(length, LONGEST)})
            tab.screenshot(path=BUILD / f"{name}-{size}-{scheme}.png")
            tab.close()


def keep_picture(name: str, height: int) -> None:
    """Write the top of a page, small, into docs/images."""
    with Image.open(io.BytesIO((BUILD / f"{name}-wide-light.png").read_bytes())) as picture:
        top = picture.convert("RGB").crop((0, 0, picture.width, min(height, picture.height)))
    small = top.resize((KEPT_WIDTH, round(top.height * KEPT_WIDTH / top.width)), Image.Resampling.LANCZOS)
    small.save(DOCS / "images" / f"page-{name}.webp", quality=KEPT_QUALITY, method=6)


def main() -> None:
    """Write pages and pictures."""
    names = [name for name in sys.argv[1:] if name != "--keep"] or list(PAGES)
    BUILD.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(BUILD / "report", ignore_errors=True)
    for old in BUILD.glob("*.html"):
        old.unlink()
    pages = {name: PAGES[name](BUILD) for name in names}
    binary = os.environ.get("DIFFCLONE_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        for name, page in pages.items():
            take_pictures(browser, name, page)
        browser.close()
    if "--keep" in sys.argv:
        for name, height in KEPT.items():
            keep_picture(name, height)


if __name__ == "__main__":
    main()
