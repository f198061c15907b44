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
from diffclone.settings import describe_method
from diffclone.tasks import TASKS
from docs import study_tables

RECORDS = Path(__file__).parent / "records" / "selection.jsonl.gz"
DEVELOPMENT = (
    "maze-25",
    "fetch-pick-10",
    "fetch-pick-27",
    "fetch-pick-68",
    "ant-reach-20",
    "hand-rotate-8",
    "cheetah-1",
    "walker-1",
    "spiral-1",
    "metaworld/basketball-20",
    "metaworld/coffee-pull-20",
    "metaworld/stick-pull-20",
    "ogbench/cube-single",
)
"""Settings on which scores of flow matching were known before the rule was fixed. Not all were run with it."""
METRICS = {
    "track_20": "`track_20`",
    "track_5": "`track_5`",
    "error_absolute": "absolute error",
    "error_squared": "squared error",
    "error_median": "median error",
    "near_absolute": "error nearby",
    "sensitivity": "sensitivity",
    "disagreement": "disagreement",
}
RULES = {
    "tuning": {
        **METRICS,
        "last": "last snapshot",
        "random": "random",
        "tuned BC": "BC, tuned",
        "tuned DBC (paper)": "DBC (paper), tuned",
        "tuned DBC (ours)": "DBC (ours), tuned",
    },
    "search": {
        "the rule": "**`train`**",
        **METRICS,
        "last bc": "BC, last snapshot",
        "last flow-matching": "flow matching, last snapshot",
        "tuned bc": "BC, tuned",
        "tuned flow-matching": "flow matching, tuned",
    },
}
"""Columns, by the study that has the candidates."""
FINAL = Path(__file__).parent / "records" / "search.jsonl.gz"
COST = Path(__file__).parent / "records" / "searching.jsonl"


def read_records(study: str) -> list[Record]:
    """Return one Record per setting, those of development first."""
    return sorted(
        (r for r in Record.read_all(RECORDS) if r.results["study"] == study),
        key=lambda r: (r.results["setting"] not in DEVELOPMENT, r.results["setting"]),
    )


def regret_table(study: str) -> str:
    """Return a row per setting with the regret of each rule, then mean and worst.

    Of the search, settings of development and of the test are apart.
    """
    records, rules = read_records(study), RULES[study]
    groups = {"": records}
    if study == "search":
        known = [r for r in records if r.results["setting"] in DEVELOPMENT]
        groups = {"development, ": known, "test, ": [r for r in records if r not in known]}
    heads = ["setting", "best, % of the expert", *rules.values()]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, group in groups.items():
        rows = np.array([[r.results["regret_split"].get(rule, np.nan) for rule in rules] for r in group])
        shown = {f"{r.results['setting']} | {r.results['best']:.1f}": row for r, row in zip(group, rows, strict=True)}
        shown |= {f"**{name}mean** |": rows.mean(0), f"**{name}worst** |": rows.max(0)}
        for label, row in shown.items():
            cells = ["–" if np.isnan(value) else f"{value:.1f}" for value in row.tolist()]
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


TUNED = ("BC", "DBC (paper)", "DBC (ours)")
"""Methods of the study of tuning beside `train`."""


def final_table() -> str:
    """Return, for each setting, the policy that `train` gives beside tuned BC and plain BC, on evaluation starts."""
    records = [r for r in Record.read_all(FINAL) if r.results["study"] == "final"]
    heads = ["setting", "`train` chose", "`train`", "BC, tuned", "`fit(BC())`", "`train` − BC, tuned"]
    heads += ["`train` − `fit(BC())`", "seeds × starts"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    names = dict.fromkeys(str(r.results["setting"]) for r in records)
    for name in sorted(names, key=lambda n: (n not in DEVELOPMENT, n)):
        own = {r.results["method"]: r for r in records if r.results["setting"] == name}
        ours, tuned, plain = (estimate(own[title]) for title in ("train", "BC, tuned", "BC, plain"))
        chosen: Any = own["train"].results["chosen"]
        unit = "return" if TASKS[str(own["train"].results["task"])].metric == "return" else "success"
        known = " (development)" if name in DEVELOPMENT else ""
        cells = [f"{name}{known} ({unit_label(unit)})"]
        cells.append(f"{describe_method(chosen['method'])}, {chosen['updates']:,} updates")
        cells += [study_tables.describe(e, unit) for e in (ours, tuned, plain)]
        cells += [study_tables.signed(difference(ours, e), unit) for e in (tuned, plain)]
        seeds, starts = ours.outcomes.shape
        lines.append(f"| {' | '.join(cells)} | {seeds} × {starts} |")
    return "\n".join(lines)


def fair_table() -> str:
    """Return, for each setting of the study of tuning, what `train` gives beside the methods that it tuned."""
    records = [r for r in Record.read_all(FINAL) if r.results["study"] == "final" and r.results["method"] == "train"]
    heads = ["setting", "`train`", *(f"{name}, tuned" for name in TUNED), *(f"`train` − {name}" for name in TUNED)]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for record in records:
        name, ours = str(record.results["setting"]), estimate(record)
        tuned = [chosen_estimate(study_tables.read_records(), name, title) for title in TUNED]
        if not any(tuned):
            continue
        unit = study_tables.unit_of(name)
        cells = [f"{name} ({unit_label(unit)})", study_tables.describe(ours, unit)]
        cells += [study_tables.NOT_RUN if e is None else study_tables.describe(e, unit) for e in tuned]
        cells += ["–" if e is None else study_tables.signed(difference(ours, e), unit) for e in tuned]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def refit_table() -> str:
    """Return the success of BC by updates, trained on part of the demonstrations and on all of them."""
    records = [r for r in read_records("tuning") if r.results["refit"]["updates"]]
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
            settings = f"{describe_configuration(own['fields'])}, {own['updates']:,} updates"
            chosen = f"of {row['candidates']} candidates: {describe_method(own['method'])}, {settings}"
        lines.append(f"| {label} | {row['seconds'] / 60:.1f} | {row['member_updates']:,} | {chosen} |")
    data, machine = record.data, record.settings["machine"]
    about = f"{data['episodes']} episodes, {data['steps']:,} transitions of {data['task']}"
    return "\n".join(
        [*lines, "", f"({about}; {machine['cores']} cores, load average {machine['load_before']:.1f} before)"]
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "search-cost": cost_table,
    "selection-refit": refit_table,
    "selection-metrics": lambda: regret_table("tuning"),
    "selection-regret": lambda: regret_table("search"),
    "selection-final": final_table,
    "selection-fair": fair_table,
}
