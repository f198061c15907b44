"""Studies of `diffclone reproduce`: tuning, training-length and controls."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.cli.jobs import announce_jobs
from diffclone.errors import InvalidSettings
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.choose import LOCAL, open_executor
from diffclone.experiments.executors.interface import Callbacks, Needs
from diffclone.experiments.study.candidates import DEFAULT_METHODS, TUNED_METHODS
from diffclone.experiments.study.on_engine import run_study_with
from diffclone.experiments.study.plan import SETTINGS, STUDIES, Stage, Study, StudyOptions, plan_study
from diffclone.experiments.study.results import (
    Estimate,
    describe_configuration,
    training_length,
    tuned_rows,
)
from diffclone.experiments.study.run import run_study
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, format_number, format_signed
from diffclone.tasks import TASKS
from diffclone.training.time_left import about


def select_studies(names: Sequence[str]) -> tuple[Study, ...]:
    """Return the studies among the names of experiments."""
    return tuple(study for study in STUDIES if study in names)


def study_options(
    studies: tuple[Study, ...],
    only: str,
    seeds: int | None,
    files: Mapping[str, str],
    *,
    quick: bool,
    small: bool = False,
) -> StudyOptions:
    """Return the options of the flags; `only` has settings and methods."""
    words = [word for word in only.split(",") if word]
    for word in words:
        if word not in TASK_SETTINGS and word not in TUNED_METHODS:
            known = ", ".join((*SETTINGS, *TUNED_METHODS))
            raise InvalidSettings(f"--only takes settings and methods; {word!r} is neither. Known: {known}.")
    settings = tuple(word for word in words if word in TASK_SETTINGS) or SETTINGS
    methods = tuple(word for word in words if word in TUNED_METHODS) or DEFAULT_METHODS
    return StudyOptions(studies, settings, methods, seeds, quick, files, small)


def run_studies(
    options: StudyOptions,
    workspace: Workspace,
    workers: int,
    *,
    plan: bool,
    json: bool,
    show_results: bool = True,
    on: str = LOCAL,
    needs: Needs | None = None,
) -> None:
    """Run studies and print their results, or print their plan."""
    if plan:
        print_plan(plan_study(options, workspace.read_records()), workspace.read_records(), json=json)
        return

    def save(record: Record) -> None:
        record.append_to(workspace.records_file)

    with bars() as show, between_updates() as stop:
        callbacks = Callbacks(save, show.training, show.update, stop, announce_jobs())
        if on == LOCAL:
            failures = run_study(options, workspace, callbacks, workers)
        else:
            with open_executor(on, workers) as executor:
                assert executor is not None
                failures = run_study_with(executor, options, workspace, callbacks, needs or Needs())
    for name, reason in failures.items():
        print_message(f"{name} failed: {reason}. Run the same command to try it again.")
    if show_results:
        print_study(workspace.read_records(), json=json)


def print_plan(stages: Sequence[Stage], records: Sequence[Record], *, json: bool) -> None:
    """Print the stages that can be run now."""
    rows = [describe_stage(stage, records) for stage in stages]
    if json:
        print_json(rows)
        return
    for study in dict.fromkeys(row["study"] for row in rows):
        own = [row for row in rows if row["study"] == study]
        times = [name for name in ("training_seconds", "episode_seconds") if any(row[name] != MISSING for row in own)]
        columns = ["setting", "method", "members", "updates", "episodes", *(TIMES[name] for name in times)]
        shown = [plan_row(row, same, times) for row, same in count_equal(own)]
        print_table(f"{study}: {len(own)} stages that can run now", columns, shown)
    if rows and all(row["training_seconds"] == MISSING for row in rows):
        print_message("No Record tells how long a stage takes; the first ones that are run will.")


NAMES = ("setting", "method")
"""The keys of a row along training that are not numbers of updates."""
TIMES = {"training_seconds": "training", "episode_seconds": "episodes, CPU"}
"""The columns of a plan that have times."""


def count_equal(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], int]]:
    """Return the rows that differ, each with the number of rows that equal it: stacks of one configuration each."""
    found: list[tuple[dict[str, Any], int]] = []
    for row in rows:
        if found and found[-1][0] == row:
            found[-1] = row, found[-1][1] + 1
        else:
            found.append((row, 1))
    return found


def plan_row(row: Mapping[str, Any], same: int, times: Sequence[str]) -> list[str]:
    """Return a row of the table of a plan: `same` stages, and their times together."""
    members = f"{same} × {row['members']}" if same > 1 else str(row["members"])
    spent = [MISSING if row[name] == MISSING else about(same * float(row[name])) for name in times]
    return [row["setting"], row["method"], members, f"{row['updates']:,}", f"{same * row['episodes']:,}", *spent]


def describe_stage(stage: Stage, records: Sequence[Record]) -> dict[str, Any]:
    """Return what a stage does, and its time if a Record of the same kind tells."""
    same = [r for r in records if r.results.get("study") == stage.study and r.results["method"] == stage.name]
    seconds = [float(r.results["training_seconds"]) for r in same]
    episodes = sum(stage.episodes.values()) * stage.members
    own = [
        r.seconds / (len(r.members) * r.results["episodes"]) for r in same if r.results["task"] == stage.setting.task
    ]
    return {
        "study": stage.study,
        "setting": stage.setting.name,
        "method": stage.name,
        "members": stage.members,
        "updates": max(stage.snapshots),
        "episodes": episodes,
        "training_seconds": round(sum(seconds) / len(seconds)) if seconds else MISSING,
        "episode_seconds": math.ceil(episodes * sum(own) / len(own)) if own else MISSING,
    }


def print_study(records: Sequence[Record], *, json: bool) -> None:
    """Print the results of the studies in the Records."""
    records = [record for record in records if "study" in record.results]
    tuned = [
        {
            "setting": row.setting,
            "method": row.method,
            "tries": row.tries,
            "chosen": f"{describe_configuration(row.chosen.configuration)}, {row.chosen.snapshot:,} updates",
            "validation": format_number(row.chosen.score, unit_of(row.setting)),
            "evaluation (95 %)": describe_estimate(row.reported, unit_of(row.setting)),
            "minus BC (95 %)": MISSING
            if row.minus_bc is None
            else f"{format_signed(row.minus_bc.mean, unit_of(row.setting))} "
            f"({' … '.join(format_signed(v, unit_of(row.setting)) for v in row.minus_bc.interval)})",
        }
        for row in tuned_rows(records)
    ]
    curves = [
        {"setting": setting, "method": method}
        | {
            f"{e.snapshot:,}": describe_estimate(e, unit_of(setting))
            for e in training_length(records, study, setting, method)
        }
        for study in ("fresh", "controls")
        for setting, method in dict.fromkeys(
            (str(r.results["setting"]), str(r.results["method"])) for r in records if r.results["study"] == study
        )
    ]
    if json:
        print_json({"tuned": tuned, "training_length": curves})
        return
    mark = " (quick: says nothing about the methods)" if any(record.quick for record in records) else ""
    columns = ["method", "tries", "evaluation (95 %)", "minus BC (95 %)"]
    for setting in dict.fromkeys(row["setting"] for row in tuned):
        own = [row for row in tuned if row["setting"] == setting]
        chosen = [f"{row['chosen']}; {row['validation']} in validation" for row in own]
        shown = [[str(row[name]) for name in columns] for row in own]
        print_table(f"{setting}, tuned with equal tries{mark}", columns, shown, chosen)
    curves = [row for row in curves if len(row) > len(NAMES) + 1]  # a small study has one length per method
    for setting in dict.fromkeys(row["setting"] for row in curves):
        own = [row for row in curves if row["setting"] == setting]
        updates = sorted(
            {name for row in own for name in row} - set(NAMES), key=lambda name: int(name.replace(",", ""))
        )
        means = [[row.get(name, MISSING).partition(" (")[0] for name in updates] for row in own]  # no intervals
        shown = [[row["method"], *values] for row, values in zip(own, means, strict=True)]
        print_table(f"{setting}, {unit_of(setting)} along training{mark}", ["method", *updates], shown)
    if curves:
        print_message("Columns are numbers of updates. --json prints the intervals as well.")


def unit_of(setting: str) -> str:
    """Return the metric of a setting's task."""
    return TASKS[TASK_SETTINGS[setting].task].metric


def describe_estimate(value: Estimate | None, unit: str) -> str:
    """Return the mean with its interval."""
    if value is None:
        return MISSING
    low, high = (format_number(end, unit) for end in value.interval)
    return f"{format_number(value.mean, unit)} ({low} … {high})"
