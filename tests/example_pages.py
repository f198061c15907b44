"""Every kind of page with made-up numbers, small enough to be built in a second or two."""

import dataclasses
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from diffclone.cli.inspect_page import make_inspection_page
from diffclone.data import Demonstrations
from diffclone.experiments.claims import ClaimRow, ClaimsTable
from diffclone.experiments.run_comparison import ComparedRun, compare_runs, differing_settings
from diffclone.reports.compare import comparison_page
from diffclone.reports.demo import DemoPage, demo_page
from diffclone.reports.monitor import MonitorPage, PartScores, monitor_page
from diffclone.reports.report import draw_figures, report_page
from diffclone.reports.search import search_page
from diffclone.reports.videos import Video
from example_results import all_tables, record

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63686868000003040181d4f7a4680000000049454e44ae426082"
)
SHOWN = ("main-table", "inference", "coefficient", "gradient-field")
"""Experiments of the example report: a table, logarithmic axes, a curve, and a figure of its own."""
CLAIM = ClaimRow(
    claim="DBC imitates better than BC in navigation and manipulation.",
    place="Section 5.4, Table 2",
    on="Maze, the paper's recipe",
    compared="DBC (paper) − BC (paper)",
    difference=3.14,
    interval=(-0.5, 6.8),
    parts=1,
    unit="success",
    margin=2.0,
    seeds=10,
    starts=100,
    headroom=8.0,
    verdict="unresolved",
    p=0.4,
    reason=None,
    quick=False,
    records=(record("evaluation", task="maze"),),
    name="above",
    note="A note.",
)


def make_claims() -> ClaimsTable:
    """Return claims with every verdict."""
    rows = [
        CLAIM,
        dataclasses.replace(CLAIM, on="FetchPick", difference=29.8, interval=(18.0, 40.1), verdict="reproduced"),
        dataclasses.replace(CLAIM, on="Cheetah", unit="return", difference=-90.0, interval=(-180.0, -20.0), margin=10.0,
                            verdict="contradicted", name="level", claim="DBC is level with BC in locomotion."),
        dataclasses.replace(CLAIM, on="Walker", unit="return", difference=2.0, interval=(-4.0, 8.0), margin=20.0,
                            verdict="equivalent", name="level", claim="DBC is level with BC in locomotion."),
        dataclasses.replace(CLAIM, unit="ratio", difference=34.9, interval=None, margin=None, verdict="reproduced",
                            reason="measured once", name="fast", claim="DBC acts faster than Implicit BC."),
        dataclasses.replace(CLAIM, difference=None, interval=None, verdict="not run", p=None, seeds=None,
                            reason="IBC, tuned", records=(), name="ibc", claim="Implicit BC is worse."),
    ]  # fmt: skip
    counts = {row.verdict: sum(other.verdict == row.verdict for other in rows) for row in rows}
    return ClaimsTable(tuple(rows), "A verdict needs the outcomes of at least 10 seeds on the same starts.", counts)


def make_report() -> str:
    """Return the report's page."""
    sheets = [sheet for sheet in all_tables() if sheet.name in SHOWN]
    figures = {sheet.name: draw_figures(sheet) for sheet in sheets}
    videos = [Video("maze", "a ball", "image/png", PIXEL), Video("walker", "two legs", "image/gif", make_animation())]
    return report_page(sheets, figures, videos, make_claims())


def make_animation() -> bytes:
    """Return a GIF of two frames."""
    first, second = (Image.new("RGB", (64, 48), colour) for colour in ("red", "blue"))
    buffer = io.BytesIO()
    first.save(buffer, "GIF", save_all=True, append_images=[second], duration=100, loop=0)
    return buffer.getvalue()


def make_inspection() -> str:
    """Return the inspection's page of 12 episodes, one of them longer and elsewhere."""
    rng, count = np.random.default_rng(0), 12
    time = np.linspace(0, 1, 60)
    episodes = [
        np.stack([np.sin(3 * time + k), np.cos(2 * time) * (1 + (k == 4)), time * (k + 1), time**2], 1)
        + rng.normal(0, 0.02, (60, 4))
        for k in range(count)
    ]
    obs, act = np.concatenate(episodes), np.clip(np.concatenate(episodes)[:, :2], -1, 1)
    bounds = [[-1.0, -1.0], [1.0, 1.0]]
    demos = Demonstrations.from_arrays(
        obs, act, episode_ends=60 * np.arange(1, count + 1), meta={"action_bounds": bounds}
    )
    scores = np.abs(np.arange(count) - 5.0) + (np.arange(count) == 4) * 9
    order = np.argsort(-scores, kind="stable")
    return make_inspection_page(
        "carts.npz",
        demos,
        about={"episodes": f"{count}, of 60 … 60 steps", "source": "a file"},
        findings=[
            ["problem", "all observations are equal", "obs", "record the observations again"],
            ["warning", "12 % of the actions are at a bound", "act 0, 1", "record the actions before clipping"],
            ["note", "a dimension is constant", "obs 3", "leave it out if it may vary in deployment"],
        ],
        ranges=[[f"obs {k}", "-1", "0", "1", "0.5", ""] for k in range(4)],
        ranking=(["episode", "steps", "unusualness"], [[str(e), "60", f"{scores[e]:.1f}"] for e in order]),
        order=order,
        scores=scores,
    )


def make_demo() -> str:
    """Return the demo's page."""
    points: list[dict[str, Any]] = [
        {"method": method, "updates": updates, "success": success, "low": success - 0.1, "high": min(1, success + 0.1),
         "chosen": method == "DBC" and updates == 2000}
        for method, all_success in (("BC", (0.3, 0.6, 0.8, 0.7)), ("DBC", (0.5, 0.8, 0.95, 0.9)))
        for updates, success in zip((500, 1000, 2000, 4000), all_success, strict=True)
    ]  # fmt: skip
    rows = [
        [str(p["method"]), f"{p['updates']:,}", f"{100 * p['success']:.1f} %", "0 … 1", "3 × 30", ""] for p in points
    ]
    columns = ["method", "updates", "success", "95 %", "seeds × episodes", ""]
    video = Video("FetchPick", "BC after 8,000 updates", "image/png", PIXEL)
    return demo_page(DemoPage("Success on FetchPick", columns, rows, points, 0.96, [video], [record("evaluation")]))


def make_search() -> str:
    """Return the page of a search."""
    candidates = [
        {"method": method, "fields": {"training.lr": lr}, "updates": updates, "score": 0.1 * k + 0.01 * updates / 500,
         "metrics": {"error_absolute": 0.3 + 0.02 * k - updates / 40_000, "track_8": 0.2 + 0.03 * k}}
        for k, (method, lr) in enumerate((("bc", 0.001), ("bc", 0.0003), ("dbc", 0.001), ("dbc", 0.0003)))
        for updates in (500, 1000, 2000)
    ]  # fmt: skip
    state: dict[str, Any] = {
        "candidates": candidates,
        "chosen": 2,
        "metrics": ["error_absolute", "track_8"],
        "rule": "How the score is computed. The lowest score is chosen.",
        "held_out": {"episodes": 5, "steps": 230},
        "notes": ["A note on the choice."],
    }
    return search_page(state)


def make_comparison() -> str:
    """Return the page of a comparison of three runs."""
    rng, runs = np.random.default_rng(0), list[ComparedRun]()
    for k, name in enumerate(("runs/bc", "runs/dbc", "runs/with-a-rather-long-name-for-a-folder")):
        outcomes = rng.random((4, 30)) < 0.5 + 0.2 * k
        found = record("evaluation", task="maze", metric="success", success_rate=0.5)
        loss = np.exp(-np.arange(1, 21) / 8)[:, None] * rng.uniform(0.9, 1.1, (20, 4))
        losses = {"L_BC, training": (list(range(50, 1050, 50)), loss)}
        trained = {"method": "bc" if k == 0 else "dbc", "training": {"lr": 0.001 * (k + 1)}}
        runs.append(ComparedRun(name, found, (0, 1, 2, 3), outcomes, trained, False, losses))
    return comparison_page(runs, compare_runs(runs), differing_settings(runs), {"runs": [run.name for run in runs]})


def make_monitor() -> str:
    """Return the page of a calibrated monitor."""
    rng = np.random.default_rng(0)
    scores = [rng.random(40) + 0.2 * np.sin(np.arange(40) / 6) for _ in range(25)]
    part = PartScores("both", scores, np.full(40, 1.15) + 0.2 * np.sin(np.arange(40) / 6), 1.3, 1)
    return monitor_page(
        MonitorPage("runs/dbc", "logpzo", "band", 5, 0.05, (0.001, 0.11), "25 calibration episodes.", [part], {"a": 1})
    )


PAGES: dict[str, Callable[[], str]] = {
    "report": make_report,
    "inspect": make_inspection,
    "demo": make_demo,
    "train": make_search,
    "compare": make_comparison,
    "calibrate": make_monitor,
}
