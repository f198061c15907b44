import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GENERATED = [ROOT / "docs/api/settings.md", ROOT / "docs/commands"]
"""Pages that docs/site_hooks.py writes when the site is built."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_numbers_in_the_docs_agree_with_the_records() -> None:
    command = [sys.executable, "-m", "docs.make", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_linked_files_exist(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        path = (page.parent / target).resolve()
        assert path.exists() or path in GENERATED or path.parent in GENERATED, target


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert f": {page.relative_to(ROOT / 'docs').as_posix()}\n" in navigation, page


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["", "[x](nowhere.md)", "[x](training.md#nowhere)", "::: diffclone.fit.nothing"])
def test_the_site_is_built_and_a_broken_link_fails(broken: str, tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    for name in ("docs", "src", "mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name) if name != "docs" else shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    with (tmp_path / "docs/faq.md").open("a", encoding="utf-8") as file:
        file.write(f"\n{broken}\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not broken), done.stdout + done.stderr
    if not broken:
        index = json.loads((tmp_path / "site/search/search_index.json").read_text(encoding="utf-8"))
        found = {entry["location"] for entry in index["docs"]}
        assert {"api/settings/", "commands/train/", "tutorials/first-policy/", "changelog/"} <= found
        assert not any(location.startswith("source/") for location in found)
        tutorial = (tmp_path / "site/tutorials/first-policy/index.html").read_text(encoding="utf-8")
        assert 'download="first-policy.ipynb" href="../../notebooks/first-policy.ipynb"' in tutorial
        assert (tmp_path / "site/notebooks/first-policy.ipynb").exists()
        api = {
            name: (tmp_path / f"site/api/{name}/index.html").read_text(encoding="utf-8") for name in ("fit", "policy")
        }
        assert 'id="diffclone.policy.Policy.__call__"' in api["policy"]
        assert "stackable</span>" not in api["fit"], "a default is shown as the function that marks its field"
        links = [re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)', page.read_text(encoding="utf-8"))
                 for page in (tmp_path / "site").rglob("*.html")]  # fmt: skip
        assert not any(links)  # nothing is loaded from the network


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_the_examples_run_and_are_short(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60
    done = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
