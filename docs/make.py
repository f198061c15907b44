"""Fill the marked blocks of README.md and of the pages in docs/ from docs/records/, and make docs/notebooks/.

python -m docs.make            write the blocks and the notebooks
python -m docs.make --check    only check that they agree with the Records and the tutorials (a test does this)
python -m docs.make --time     first time the README's two commands (or the given ones) in a fresh clone
"""

import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from textwrap import wrap
from typing import Any

from diffclone.records import Record
from docs import (
    chunk_tables,
    default_tables,
    deploy_tables,
    external_tables,
    job_tables,
    lerobot_tables,
    method_tables,
    monitor_tables,
    performance_tables,
    pixel_tables,
    recipe_tables,
    reliability_tables,
    reproduction_tables,
    selection_tables,
    small_study_tables,
    streaming_tables,
    study_cost_tables,
    study_tables,
    task_tables,
    transfer_tables,
)
from docs.make_notebooks import update_notebooks

DOCS = Path(__file__).parent
ROOT = DOCS.parent
RECORDS = DOCS / "records"
PAPER = tomllib.loads((ROOT / "src/diffclone/experiments/paper.toml").read_text(encoding="utf-8"))
PAGES = (
    "index",
    "results",
    "tasks",
    "external",
    "monitor",
    "deploy",
    "lerobot",
    "performance",
    "training",
    "reliability",
    "scale",
    "reproduction",
    "paper-recipe",
    "all-methods",
    "fair-comparison",
    "what-dbc-does",
    "design",
    "chunks",
    "methods/bc",
    "methods/dbc",
    "methods/ibc",
    "methods/diffusion-policy",
    "methods/guides",
    "methods/pixels",
    "scale",
)
"""Pages with blocks."""
BUNDLED = "b591c848e3e57aea"
PAPER_UPDATES = 288_000
"""Updates of a Maze policy in the paper; a row names its updates only if they differ."""


def label(record: Record) -> str:
    """Return the name of a method with the settings in which rows differ."""
    settings = record.settings
    default = settings.get("coefficient", 0.0)
    coefficients = sorted({member.get("coefficient", default) for member in record.members})
    training = settings["training"]
    brief = (
        "" if training["updates"] == PAPER_UPDATES else f", {training['updates']:,} updates at lr {training['lr']:g}"
    )
    if settings["type"] == "bc" or coefficients == [0]:
        return f"BC{brief}"
    shown = ", ".join(f"{c:g}" for c in coefficients)
    guide = settings["guide"]
    draws = "1 draw" if guide["draws"] == 1 else f"{guide['draws']} draws"
    span = "" if guide["t_high"] is None else f", t < {guide['t_high']}"
    return f"DBC λ = {shown}, gate {settings['gate']}, {draws}, t {guide['t_sampling']}{span}{brief}"


def rate(results: dict[str, Any]) -> str:
    low, high = results["success_interval"]
    return f"{100 * results['success_rate']:.1f} ({100 * low:.1f} … {100 * high:.1f})"


def find(records: list[Record], like: Record, **wanted: str) -> Record | None:
    """Return the evaluation of the same policy with another protocol or other starts."""
    for record in records:
        same = label(record) == label(like) and record.data["fingerprint"] == like.data["fingerprint"]
        if same and all(record.results[key] == value for key, value in wanted.items()):
            return record
    return None


def evaluations() -> list[Record]:
    return [r for r in Record.read_all(RECORDS / "maze.jsonl.gz") if r.kind == "evaluation" and not r.quick]


def maze_table(*, bundled: bool) -> str:
    records = evaluations()
    lines = [
        "| method | success, % (95 %) | sd over seeds | seeds × episodes | counted as the paper | the paper |",
        "|---|---|---|---|---|---|",
    ]
    for record in records:
        results = record.results
        if (record.data["fingerprint"] == BUNDLED) != bundled:
            continue
        if (results["protocol"], results["starts"]) != ("fixed", "evaluation"):
            continue
        counted = find(records, record, protocol="paper", starts="evaluation")
        shown = "–" if counted is None else f"{100 * counted.results['success_rate']:.1f}"
        printed = PAPER["main-table"]["maze"]["bc" if label(record).startswith("BC") else "dbc"]
        lines.append(
            f"| {label(record)} | {rate(dict(results))} | {100 * results['success_sd_over_members']:.1f} "
            f"| {results['members']} × {results['episodes']} "
            f"| {shown} | {printed['mean']} ± {printed['sd']} |"
        )
    return "\n".join(lines)


def validation_table() -> str:
    lines = ["| method | demonstrations | success, % (95 %) | sd over seeds |", "|---|---|---|---|"]
    for record in evaluations():
        results = record.results
        if (results["protocol"], results["starts"]) == ("fixed", "validation"):
            whose = "bundled" if record.data["fingerprint"] == BUNDLED else "the authors'"
            spread = 100 * results["success_sd_over_members"]
            lines.append(f"| {label(record)} | {whose} | {rate(dict(results))} | {spread:.1f} |")
    return "\n".join(lines)


def training_table() -> str:
    lines = ["| what | members | device | seconds | torch |", "|---|---|---|---|---|"]
    for record in Record.read_all(RECORDS / "maze.jsonl.gz"):
        if record.kind == "training":
            torch = record.versions["torch"]
            lines.append(
                f"| {label(record)} | {len(record.members)} | {record.device} | {record.seconds:.0f} | {torch} |"
            )
    return "\n".join(lines)


def timing_table() -> str:
    lines = ["| command, in a fresh clone with no environment | minutes | machine |", "|---|---|---|"]
    latest = {r.results["command"]: r for r in Record.read_all(RECORDS / "timing.jsonl")}
    for command, record in latest.items():
        lines.append(f"| `{command}` | {record.seconds / 60:.1f} | {record.device} |")
    return "\n".join(lines)


def tree() -> str:
    """Return the layout of the package: its modules, then one line per folder with the modules in it."""
    package = ROOT / "src/diffclone"

    def modules(folder: Path) -> str:
        files = (path.stem for path in sorted(folder.glob("*.py")) if path.stem != "__init__")
        inner = (f"{path.name}/ ({modules(path)})" for path in folder.iterdir() if (path / "__init__.py").exists())
        return " ".join([*files, *sorted(inner)])

    lines = ["src/diffclone/", *wrap(modules_at_top(package), 118, initial_indent="  ", subsequent_indent="  ")]
    for folder in sorted(path for path in package.iterdir() if (path / "__init__.py").exists()):
        start = f"  {folder.name}/".ljust(16)
        lines += wrap(
            modules(folder) or "demonstrations, experts and policies",
            118,
            initial_indent=start,
            subsequent_indent=" " * 16,
        )
    return "\n".join(["```", *lines, "```"])


def modules_at_top(package: Path) -> str:
    return " ".join(path.name for path in sorted(package.glob("*.py")))


BLOCKS: dict[str, Callable[[], str]] = {
    "tree": tree,
    "maze-authors": lambda: maze_table(bundled=False),
    "maze-bundled": lambda: maze_table(bundled=True),
    "maze-validation": validation_table,
    "maze-training": training_table,
    "timing": timing_table,
    "experts": task_tables.experts_table,
    "tasks": lambda: task_tables.policies_table(starts="evaluation"),
    "fetch-pick-validation": lambda: task_tables.policies_table(starts="validation", task="fetch-pick"),
    "fetch-pick": lambda: task_tables.policies_table(starts="evaluation", task="fetch-pick", plain=True),
    "settings": task_tables.settings_table,
    "settings-list": task_tables.settings_list,
    "multimodality": task_tables.multimodality_table,
    "stepping": task_tables.stepping_table,
    "methods": method_tables.methods_table,
    "ablation-maze": lambda: method_tables.ablation_table("maze"),
    "ablation-fetch-pick": lambda: method_tables.ablation_table("fetch-pick"),
    "best": method_tables.best_table,
    "pendulum": method_tables.pendulum_table,
    **monitor_tables.BLOCKS,
    "serving": deploy_tables.serving_table,
    "soak": deploy_tables.soak_table,
    "latency": task_tables.latency_table,
    **chunk_tables.BLOCKS,
    **default_tables.BLOCKS,
    **pixel_tables.BLOCKS,
    **external_tables.BLOCKS,
    **performance_tables.BLOCKS,
    **reproduction_tables.BLOCKS,
    **recipe_tables.BLOCKS,
    **lerobot_tables.BLOCKS,
    **job_tables.BLOCKS,
    **reliability_tables.BLOCKS,
    **selection_tables.BLOCKS,
    **small_study_tables.BLOCKS,
    **streaming_tables.BLOCKS,
    **study_cost_tables.BLOCKS,
    **study_tables.BLOCKS,
    **transfer_tables.BLOCKS,
}


def filled(text: str) -> str:
    """Return the text with every marked block filled."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- records: {match[1]} -->\n{BLOCKS[match[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- records: ([\w-]+) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def time_commands(commands: list[str]) -> None:
    """Run commands in a fresh clone, as a new user would, and record their time."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "diffclone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for command in commands:
            start = time.monotonic()
            done = subprocess.run(command.split(), cwd=clone, check=False)
            seconds = time.monotonic() - start
            if done.returncode:
                sys.exit(f"{command} failed with exit code {done.returncode}; nothing was recorded.")
            Record(
                kind="timing",
                settings={},
                members=[],
                data={},
                results={"command": command},
                device=f"{platform.machine()}, {os.cpu_count()} cores",
                seconds=seconds,
            ).append_to(RECORDS / "timing.jsonl")


def main() -> int:
    if "--time" in sys.argv:
        time_commands(sys.argv[sys.argv.index("--time") + 1 :] or ["make demo", "make test"])
    stale = 0
    for path in (ROOT / "README.md", *(DOCS / f"{name}.md" for name in PAGES)):
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            stale += 1
            if "--check" in sys.argv:
                print(f"{path.relative_to(ROOT)} does not agree with docs/records; run: python -m docs.make")
            else:
                path.write_text(filled(text), encoding="utf-8")
    for path in update_notebooks(check="--check" in sys.argv):
        stale += 1
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} does not agree with its tutorial; run: python -m docs.make")
    return stale if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
