"""Hooks of mkdocs: pages that are written when the site is built, and links to files that are not pages.

Added are the help of every command, the settings, the changelog and its neighbours, and each source file that a page
links to, so that every link works in the built site without a network.
"""

import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from diffclone.cli.main import COMMANDS  # noqa: E402
from docs.reference import command_page, commands_index, settings_page  # noqa: E402

LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?(?=\))")
DOWNLOAD = re.compile(r"(\]\((?:[^)\s]*/)?([^)\s/]+\.ipynb)\))")
"""Links to notebooks, which browsers would show as text."""
ESCAPED = re.compile(r"(?m)(?<=[^\\])\\([<>])(?=[^`\n]*\|$)")
"""A bracket that a table escapes with a backslash: GitHub knows it, Python-Markdown does not."""
PROJECT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
"""Pages that are files of the repository."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the commands in the navigation."""
    assert config.nav is not None
    pages: list[Any] = [{"All commands": "commands/index.md"}, *({name: f"commands/{name}.md"} for name in COMMANDS)]
    config.nav = [{"Commands": pages} if "Commands" in section else section for section in config.nav]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    made = {"api/settings.md": settings_page(), "commands/index.md": commands_index()}
    made |= {f"commands/{name}.md": command_page(name) for name in COMMANDS}
    made |= {page: (ROOT / name).read_text(encoding="utf-8") for page, name in PROJECT.items()}
    linked: set[Path] = set()
    for text in [made.get(file.src_uri) or file.content_string for file in files.documentation_pages()]:
        linked |= {
            ROOT / name for name in re.findall(r"\]\((?:\.\./)+((?:src|scripts|benchmarks|examples)/[^)#]+)", text)
        }
    for path in sorted(linked):
        for name in sorted(path.glob("*.py")) if path.is_dir() else [path]:
            made[source_page(name)] = show_source(name)
        if path.is_dir():
            made[source_page(path)] = show_folder(path)
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository at their pages."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(match: re.Match[str]) -> str:
        base = ROOT if page.file.src_uri in PROJECT.values() or page.file.src_uri in PROJECT else ROOT / "docs" / folder
        path = Path(posixpath.normpath(f"{base.as_posix()}/{match[1]}"))
        name = next((name for name, file in PROJECT.items() if path == ROOT / file), None)
        if name is None and path.is_relative_to(ROOT / "docs"):
            name = path.relative_to(ROOT / "docs").as_posix()
        elif name is None and path.exists() and path.is_relative_to(ROOT):
            name = source_page(path)
        return match[0] if name is None else posixpath.relpath(name, folder or ".") + (match[2] or "")

    linked = DOWNLOAD.sub(r'\1{ download="\2" }', LINK.sub(target, markdown))
    return ESCAPED.sub(lambda match: {"<": "&lt;", ">": "&gt;"}[match[1]], linked)


def source_page(path: Path) -> str:
    """Return the name of a source file's page."""
    return f"source/{path.relative_to(ROOT).as_posix().rstrip('/')}.md"


def show_source(path: Path) -> str:
    """Return the page of a source file. It is left out of the search."""
    name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n```python\n{text}```\n"


def show_folder(path: Path) -> str:
    """Return the page of a folder: its modules."""
    rows = [f"- [{file.name}]({path.name}/{file.name}.md)" for file in sorted(path.glob("*.py"))]
    return "\n".join(["---\nsearch:\n  exclude: true\n---\n", f"# {path.relative_to(ROOT).as_posix()}", "", *rows, ""])


logging.getLogger("mkdocs.plugins.search").setLevel(logging.WARNING)
