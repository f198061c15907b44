"""Tables of rules that choose a policy without an environment, from Records of scripts/selection_regret.py."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from diffclone.records import Record
from diffclone.training.search_plan import GRIDS, Grid

RECORDS = Path(__file__).parent / "records" / "selection.jsonl"
DEVELOPMENT = ("maze-25", "fetch-pick-27", "fetch-pick-68", "fetch-pick-10")
"""Settings of the tasks that the rule was developed on. It was fixed before it was tested on the others."""
RULES = {
    "the rule": "**the rule of `train`**",
    "track_20": "distance after 20 steps in learned dynamics",
    "track_5": "distance after 5 steps in learned dynamics",
    "error_absolute": "held-out absolute error",
    "error_squared": "held-out squared error",
    "error_median": "held-out error, median",
    "near_absolute": "error beside held-out states",
    "sensitivity": "sensitivity to the state",
    "disagreement": "disagreement of seeds",
    "last": "last snapshot",
    "random": "a random candidate",
    "tuned BC": "BC tuned in the environment",
    "tuned DBC (paper)": "DBC (paper) tuned in the environment",
    "tuned DBC (ours)": "DBC (ours) tuned in the environment",
}


def read_records() -> list[Record]:
    """Return one Record per setting, those of development first."""
    return sorted(
        Record.read_all(RECORDS), key=lambda r: (r.results["setting"] not in DEVELOPMENT, r.results["setting"])
    )


def regret_table(key: str) -> str:
    """Return the regret of each rule on each setting; mean and worst of development and of tests apart."""
    records = read_records()
    groups = {"development": [r for r in records if r.results["setting"] in DEVELOPMENT]}
    groups["test"] = [r for r in records if r not in groups["development"]]
    head = [name for r in records if (name := str(r.results["setting"]))]
    lines = [f"| rule | {' | '.join(head)} | {' | '.join(f'{g}: mean | {g}: worst' for g in groups)} |"]
    lines.append(f"|---|{'---|' * (len(head) + 4)}")
    for rule, label in RULES.items():
        shown = [float(r.results[key][rule]) for r in records]
        for group in groups.values():
            values = [float(r.results[key][rule]) for r in group]
            shown += [float(np.mean(values)), max(values)]
        lines.append(f"| {label} | {' | '.join(f'{value:.1f}' for value in shown)} |")
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


BLOCKS: dict[str, Callable[[], str]] = {
    "selection-settings": settings_table,
    "selection-refit": refit_table,
    "selection-grids": grids_table,
    "selection-regret": lambda: regret_table("regret"),
    "selection-regret-split": lambda: regret_table("regret_split"),
}
