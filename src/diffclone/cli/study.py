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
    studies: tuple[Study, ...], only: str, seeds: int | None, files: Mapping[str, str], *, quick: bool
) -> StudyOptions:
    """Return the options of the flags; `only` has settings and methods."""
    words = [word for word in only.split(",") if word]
    for word in words:
        if word not in TASK_SETTINGS and word not in TUNED_METHODS:
            known = ", ".join((*SETTINGS, *TUNED_METHODS))
            raise InvalidSettings(f"--only takes settings and methods; {word!r} is neither. Known: {known}.")
    settings = tuple(word for word in words if word in TASK_SETTINGS) or SETTINGS
    methods = tuple(word for word in words if word in TUNED_METHODS) or DEFAULT_METHODS
    return StudyOptions(studies, settings, methods, seeds, quick, files)


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
    columns = ["study", "setting", "method", "members", "updates", "episodes", "training", "CPU time of episodes"]
    shown = [
        [about(float(value)) if "seconds" in name and value != MISSING else str(value) for name, value in row.items()]
        for row in rows
    ]
    print_table("Stages that can run now", columns, shown)


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
    for title, rows in (("Tuned with equal tries", tuned), ("Success or return along training", curves)):
        if rows:
            columns = list(dict.fromkeys(name for row in rows for name in row))
            print_table(f"{title}{mark}", columns, [[str(row.get(name, MISSING)) for name in columns] for row in rows])


def unit_of(setting: str) -> str:
    """Return the metric of a setting's task."""
    return TASKS[TASK_SETTINGS[setting].task].metric


def describe_estimate(value: Estimate | None, unit: str) -> str:
    """Return the mean with its interval."""
    if value is None:
        return MISSING
    low, high = (format_number(end, unit) for end in value.interval)
    return f"{format_number(value.mean, unit)} ({low} … {high})"
