"""Tables of rules that choose a policy without an environment, and of what `train` gives.

From Records of scripts/selection_regret.py and scripts/search_study.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from diffclone.experiments.study.results import chosen_estimate, describe_configuration, difference, estimate
from diffclone.records import Record
from diffclone.reports.numbers import unit_label
from diffclone.training.search_plan import GRIDS, Grid
from docs import study_tables

RECORDS = Path(__file__).parent / "records" / "selection.jsonl"
DEVELOPMENT = ("maze-25", "fetch-pick-27", "fetch-pick-68", "fetch-pick-10", "cheetah-1")
"""Settings of the tasks that the rule was developed on. It was fixed before it was tested on the others."""
RULES = {
    "the rule": "**`train`**",
    "track_20": "`track_20`",
    "track_5": "`track_5`",
    "error_absolute": "absolute error",
    "error_squared": "squared error",
    "error_median": "median error",
    "near_absolute": "error nearby",
    "sensitivity": "sensitivity",
    "disagreement": "disagreement",
    "last": "last snapshot",
    "random": "random",
    "tuned BC": "BC, tuned",
    "tuned DBC (paper)": "DBC (paper), tuned",
    "tuned DBC (ours)": "DBC (ours), tuned",
}
FINAL = Path(__file__).parent / "records" / "search.jsonl.gz"
COST = Path(__file__).parent / "records" / "searching.jsonl"


def read_records() -> list[Record]:
    """Return one Record per setting, those of development first."""
    return sorted(
        Record.read_all(RECORDS), key=lambda r: (r.results["setting"] not in DEVELOPMENT, r.results["setting"])
    )


def regret_table(key: str) -> str:
    """Return a row per setting with the regret of each rule; mean and worst of development and of tests apart."""
    records = read_records()
    groups = {"development": [r for r in records if r.results["setting"] in DEVELOPMENT]}
    groups["test"] = [r for r in records if r not in groups["development"]]
    lines = [f"| setting | {' | '.join(RULES.values())} |", f"|---|{'---|' * len(RULES)}"]
    for name, group in groups.items():
        rows = np.array([[r.results[key].get(rule, np.nan) for rule in RULES] for r in group], dtype=np.float64)
        shown = {str(r.results["setting"]): row for r, row in zip(group, rows, strict=True)}
        shown |= {f"**{name}, mean**": np.nanmean(rows, 0), f"**{name}, worst**": np.nanmax(rows, 0)}
        for label, row in shown.items():
            cells = ["–" if np.isnan(value) else f"{value:.1f}" for value in row.tolist()]
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def final_table() -> str:
    """Return, for each setting, the policy that `train` gives beside tuned BC and tuned DBC, on evaluation starts."""
    records = [r for r in Record.read_all(FINAL) if r.results["study"] == "final"]
    lines = [
        "| setting | `train` chose | `train` | BC, tuned | DBC, tuned | `train` − BC | `train` − DBC | seeds × starts |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(r.results["setting"] for r in records):
        own = {r.results["method"]: r for r in records if r.results["setting"] == name}
        found = {title: estimate(r) for title, r in own.items()}
        chosen: Any = own["train"].results["chosen"]
        cells = [
            f"{chosen['method']}, {describe_configuration(chosen['fields'])}, {chosen['updates']:,} updates",
            *(f"{e.mean:.1f} ({e.interval[0]:.1f} … {e.interval[1]:.1f})" for e in found.values()),
        ]
        for title in list(found)[1:]:
            d = difference(found["train"], found[title])
            cells.append(f"{d.mean:+.1f} ({d.interval[0]:+.1f} … {d.interval[1]:+.1f})".replace("-", "−"))
        seeds, starts = found["train"].outcomes.shape
        lines.append(f"| {name} | {' | '.join(cells)} | {seeds} × {starts} |")
    return "\n".join(lines)


TUNED = ("BC", "DBC (paper)", "DBC (ours)")
"""Methods of the study of tuning beside `train`."""


def fair_table() -> str:
    """Return, for each setting of the study of tuning, what `train` gives beside `fit(BC())` and the tuned methods."""
    records = Record.read_all(FINAL)
    plain = {str(r.results["setting"]): estimate(r) for r in records if r.results["study"] == "plain"}
    heads = ["setting", "`train` chose", "`train`", "`fit(BC())`", *(f"{name}, tuned" for name in TUNED)]
    heads += ["`train` − `fit(BC())`", "`train` − BC, tuned"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for record in (r for r in records if r.results["study"] == "train"):
        name, chosen, own = str(record.results["setting"]), record.results["chosen"], estimate(record)
        unit = study_tables.unit_of(name)
        label = {"bc": "BC", "dbc": "DBC"}[chosen["method"]]
        tuned = [chosen_estimate(study_tables.read_records(), name, title) for title in TUNED]
        others = [plain.get(name), *tuned]
        cells = [f"{name} ({unit_label(unit)})"]
        cells.append(f"{label}, {describe_configuration(chosen['fields'])}, {chosen['updates']:,} updates")
        cells += [study_tables.NOT_RUN if e is None else study_tables.describe(e, unit) for e in (own, *others)]
        cells += ["–" if e is None else study_tables.signed(difference(own, e), unit) for e in others[:2]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def settings_table() -> str:
    """Return what was tried on each setting."""
    lines = ["| setting | candidates | best score, % of the expert | seeds × validation starts | metric of the rule |"]
    lines.append("|---|---|---|---|---|")
    for record in read_records():
        r = record.results
        counts = f"{r['candidates']} ({', '.join(r['methods'])})"
        lines.append(
            f"| {r['setting']} | {counts} | {r['best']:.1f} | {r['seeds']} × {r['episodes']} | `{r['metric']}` |"
        )
    return "\n".join(lines)


def grids_table() -> str:
    """Return the regret of the rule with each grid of `train`, on each setting."""
    records = [r for r in read_records() if r.results.get("grids")]
    names = [f"{r.results['setting']}{'' if r.results['setting'] in DEVELOPMENT else ' (test)'}" for r in records]
    lines = [f"| grid | {' | '.join(names)} | mean | worst |", f"|---|{'---|' * (len(names) + 2)}"]
    for k, grid in enumerate(GRIDS):
        values = [r.results["grids"][k] for r in records]
        if None in values:
            continue
        shown = " | ".join(f"{value:.1f}" for value in values)
        lines.append(f"| {describe(grid)} | {shown} | {np.mean(values):.1f} | {max(values):.1f} |")
    return "\n".join(lines)


def describe(grid: Grid) -> str:
    """Return the values of a grid."""
    noise, λ, κ, lr = (
        ", ".join(f"{value:g}" for value in values)
        for values in (grid.state_noise, grid.coefficient, grid.away, grid.lr)
    )
    guided = f"; DBC: λ {λ}, κ {κ}" if grid.coefficient else ""
    rates = f"; lr {lr}" if len(grid.lr) > 1 else ""
    return f"BC: state noise {noise}{guided}{rates}; up to {max(grid.snapshots):,} updates"


def refit_table() -> str:
    """Return the success of BC by updates, trained on part of the demonstrations and on all of them."""
    records = [r for r in read_records() if r.results["refit"]["updates"]]
    updates = sorted({update for r in records for update in r.results["refit"]["updates"]})
    lines = [f"| setting | trained on | {' | '.join(f'{u:,}' for u in updates)} |", f"|---|---|{'---|' * len(updates)}"]
    for record in records:
        found = record.results["refit"]
        for key, label in (("part", "the part that is not held out"), ("all", "all demonstrations")):
            values = dict(zip(found["updates"], found[key], strict=True))
            cells = " | ".join(f"{values[u]:.1f}" if u in values else "–" for u in updates)
            lines.append(f"| {record.results['setting']} | {label} | {cells} |")
    return "\n".join(lines)


def cost_table() -> str:
    """Return what a search costs, beside plain trainings."""
    record = Record.read_all(COST)[-1]
    found: Any = record.results
    names = {"BC": "`train --method bc`", "DBC": "`train --method dbc`", "train": "`train`"}
    lines = ["| command | minutes | member-updates | chosen |", "|---|---|---|---|"]
    for key, label in names.items():
        row, chosen = found[key], "–"
        if "chosen" in row:
            own: Any = row["chosen"]
            chosen = (
                f"of {row['candidates']} candidates: {own['method'].upper()}, {describe_configuration(own['fields'])}"
            )
            chosen += f", {own['updates']:,} updates"
        lines.append(f"| {label} | {row['seconds'] / 60:.1f} | {row['member_updates']:,} | {chosen} |")
    data, machine = record.data, record.settings["machine"]
    about = f"{data['episodes']} episodes, {data['steps']:,} transitions of {data['task']}"
    return "\n".join(
        [*lines, "", f"({about}; {machine['cores']} cores, load average {machine['load_before']:.1f} before)"]
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "search-cost": cost_table,
    "selection-settings": settings_table,
    "selection-refit": refit_table,
    "selection-grids": grids_table,
    "selection-regret": lambda: regret_table("regret"),
    "selection-regret-split": lambda: regret_table("regret_split"),
    "selection-final": final_table,
    "selection-fair": fair_table,
}
