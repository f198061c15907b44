"""Write every kind of page with small runs, build the site, and take pictures of them in headless Chromium.

python -m docs.screenshots [NAME…]      into build/screenshots: each page at 1400 and 390 pixels, light and dark
python -m docs.screenshots --keep       also renew the pictures in docs/images that the documentation shows

The pages of demo, train, compare and calibrate come from shortened runs: their numbers say nothing about the methods.
"""

import contextlib
import functools
import io
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from diffclone.cli.main import main as run_command

DOCS = Path(__file__).parent
BUILD = DOCS.parent / "build" / "screenshots"
FILMED = ("maze", "fetch-pick")
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
    """Write the report of the Records in docs/records, with rollouts of some experts."""
    records = [str(path) for name in RECORDS for path in sorted((DOCS / "records").glob(f"{name}*.jsonl*"))]
    films = folder / "films"
    films.mkdir(exist_ok=True)
    for task in FILMED:
        if not (films / f"{task}.webp").exists():
            run_command(["render", task, "--every", "2", "--width", "320", "--out", str(films / f"{task}.webp")])
    run_command(["report", "--out", str(folder / "report"), "--videos", str(films), "--records", *records])
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


def make_runs(folder: Path) -> None:
    """Train two small policies, unless they are there."""
    for method in ("bc", "dbc"):
        if not (folder / "runs" / method).exists():
            guide = ["--guide.training.updates", "200", "--guide.width", "32"] if method == "dbc" else []
            run_command(["train", "spiral", "--method", method, *TINY, *guide, "--out", str(folder / "runs" / method)])


def make_comparison(folder: Path) -> Path:
    """Compare the two small policies. Pages show the names of runs as they are given, so these are short."""
    make_runs(folder)
    with contextlib.chdir(folder):
        run_command(["compare", "runs/bc", "runs/dbc", "--episodes", "20", "--out", "compare.html"])
    return folder / "compare.html"


def make_monitor(folder: Path) -> Path:
    """Calibrate the monitor of one of them."""
    make_runs(folder)
    with contextlib.chdir(folder):
        run_command(["calibrate", "runs/dbc", "--alpha", "0.2", "--again", "--page", "calibrate.html"])
    return folder / "calibrate.html"


PAGES: dict[str, Callable[[Path], Path]] = {
    "report": make_report,
    "inspect": make_inspection,
    "demo": make_demo,
    "train": make_search,
    "compare": make_comparison,
    "calibrate": make_monitor,
}


SITE = {
    "site-home": "",
    "site-tutorial": "tutorials/first-policy/",
    "site-training": "training/",
    "site-fair-comparison": "fair-comparison/",
    "site-method": "methods/dbc/",
    "site-api": "api/fit/",
    "site-settings": "api/settings/",
    "site-command": "commands/train/",
    "site-faq": "faq/",
}
"""Pages of the documentation: one of each kind."""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a line per request."""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def serve_site(folder: Path) -> Generator[str, None, None]:
    """Build the documentation and yield its address; its search does not work in files."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder / "site")]
    subprocess.run(command, cwd=DOCS.parent, check=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder / "site")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def take_pictures(browser: Browser, name: str, address: str) -> None:
    """Write the four pictures of a page."""
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(address)
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
    names = [name for name in sys.argv[1:] if name != "--keep"] or [*PAGES, *SITE]
    BUILD.mkdir(parents=True, exist_ok=True)
    for old in ("report", "demo", "site"):
        shutil.rmtree(BUILD / old, ignore_errors=True)
    for old in BUILD.glob("*.html"):
        old.unlink()
    addresses = {name: PAGES[name](BUILD).as_uri() for name in names if name in PAGES}
    binary = os.environ.get("DIFFCLONE_CHROMIUM") or shutil.which("chromium")
    with contextlib.ExitStack() as stack:
        if any(name in SITE for name in names):
            root = stack.enter_context(serve_site(BUILD))
            addresses |= {name: root + SITE[name] for name in names if name in SITE}
        driver = stack.enter_context(sync_playwright())
        browser = driver.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        for name, address in addresses.items():
            take_pictures(browser, name, address)
        browser.close()
    if "--keep" in sys.argv:
        for name in set(names) & set(KEPT):
            keep_picture(name, KEPT[name])


if __name__ == "__main__":
    main()
