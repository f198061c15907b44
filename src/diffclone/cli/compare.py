"""The `compare` command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.cli.arguments import Device, choose_members, parse_values
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.inspect import check_page
from diffclone.cli.sources import Place, PolicySource, choose_place, find_policy, named_place
from diffclone.errors import InvalidSettings
from diffclone.evaluation import evaluate
from diffclone.experiments.run_comparison import (
    ComparedRun,
    RunDifference,
    by_return,
    compare_runs,
    differing_settings,
    find_evaluation,
    metric_of,
    read_losses,
    read_outcomes,
)
from diffclone.files import write_atomically
from diffclone.fit import choose_device
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.reports.comparison_tables import LETTERS, describe_runs, score_rows
from diffclone.reports.numbers import MISSING, unit_label
from diffclone.settings import to_dict
from diffclone.training.runs import evaluation_record, record_evaluation

MOST_RUNS = 26
"""Runs are named by letters."""
TABLE_WIDTH, LONGEST_NAME = 80, 44


@dataclass(frozen=True)
class Compare:
    """Compare runs on the same starts: differences to the first run with intervals and p, losses, settings.

    Evaluations that the runs have recorded are used if they fit; others are made and recorded.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Folders of runs, or of policies; the first is the baseline."""
    task: str | None = None
    """Task or task setting to compare on; by default the one that the runs were trained for."""
    env: str | None = None
    """Compare in this Gymnasium environment instead."""
    episodes: int = 100
    """Number of starts."""
    where: tuple[str, ...] = ()
    """Compare only members with these values, e.g. coefficient=30, in runs whose members have that field."""
    out: Path | None = None
    """Also write a page with figures (.html). An existing file is not overwritten."""
    device: Device = "auto"
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Evaluate what is missing, compare, and print."""
        if not 2 <= len(self.runs) <= MOST_RUNS:
            raise InvalidSettings(f"compare takes 2 to {MOST_RUNS} runs; it was given {len(self.runs)}.")
        if self.episodes < 2:
            raise InvalidSettings(f"--episodes must be at least 2; it is {self.episodes}.")
        if self.out is not None:
            check_page(self.out, "--out")
        device = str(choose_device(self.device))
        where = parse_values("--where", self.where)
        sources = [find_policy(path) for path in self.runs]
        policies = [source.load(device) for source in sources]
        fields = dict.fromkeys(name for policy in policies for name in policy.members[0])
        if unknown := [name for name in where if name not in fields]:
            raise InvalidSettings(f"--where {unknown[0]}: members differ in {', '.join(fields)}.")
        policies = [select(policy, where, path) for policy, path in zip(policies, self.runs, strict=True)]
        check_sizes(self.runs, policies)
        place = self.find_place(sources, policies)
        runs = [
            self.compared(str(path), source, policy, place)
            for path, source, policy in zip(self.runs, sources, policies, strict=True)
        ]
        silent = [run.name for run in runs if metric_of(run.record) == "return"]
        if silent and len(silent) < len(runs):
            print_message(f"{place.name} reported no success of {', '.join(silent)}, so all are compared by return.")
            runs = [by_return(run) for run in runs]
        differences, settings = compare_runs(runs), differing_settings(runs)
        about = to_json(runs, differences, settings)
        if self.json:
            print_json(about)
        else:
            print_comparison(runs, differences, settings)
        if self.out is not None:
            from diffclone.reports.compare import comparison_page

            write_atomically(self.out, comparison_page(runs, differences, settings, about).encode())
            print_message(f"wrote {self.out}")

    def find_place(self, sources: Sequence[PolicySource], policies: Sequence[Policy]) -> Place:
        """Return where all runs are compared."""
        if named := named_place(self.task, self.env):
            return named
        places = [choose_place(s, policy, None, None) for s, policy in zip(sources, policies, strict=True)]
        for path, place in zip(self.runs, places, strict=True):
            if place != places[0]:
                raise InvalidSettings(
                    f"{self.runs[0]} was trained for {describe_place(places[0])}, {path} for {describe_place(place)}. "
                    "Choose one with --task or --env."
                )
        return places[0]

    def compared(self, name: str, source: PolicySource, policy: Policy, place: Place) -> ComparedRun:
        """Return the outcomes of a run: those that it has recorded, or new ones."""
        run, settings = source.run, to_dict(policy.method)
        records = Record.read_all(run.records) if run is not None and run.records.exists() else []
        record = find_evaluation(
            records,
            members=policy.members,
            settings=settings,
            task=place.name,
            options=place.options,
            episodes=self.episodes,
            snapshot=source.snapshot,
        )
        reused = record is not None
        if record is None:
            with bars() as show:
                scores = evaluate(
                    policy,
                    place.name,
                    episodes=self.episodes,
                    progress=lambda done, total: show.update(f"running {name}", done, total),
                    **place.options,
                )
            if run is None:
                record = evaluation_record(policy, scores)
            else:
                record = record_evaluation(run, policy, scores, source.snapshot)
        seeds, outcomes = read_outcomes(record, self.episodes)
        data = {key: policy.data.get(key) for key in ("fingerprint", "episodes", "steps")}
        trained: dict[str, Any] = {"method": settings["type"], **{k: v for k, v in settings.items() if k != "type"}}
        trained |= {"data": data, "snapshot": source.snapshot, "seeds": list(seeds)}
        trained |= {} if run is None else run.training_options()  # a policy outside a run does not tell them
        losses = {} if run is None else read_losses(run.metrics)
        return ComparedRun(name, record, seeds, outcomes, trained, reused, losses)


def select(policy: Policy, where: Mapping[str, Sequence[float]], path: Path) -> Policy:
    """Return the members to compare: one per seed."""
    own = {name: values for name, values in where.items() if name in policy.members[0]}
    policy = choose_members(policy, own)
    fields = [name for name in policy.members[0] if name != "seed"]
    for name in fields:
        values = sorted({member[name] for member in policy.members})
        if len(values) > 1:
            raise InvalidSettings(
                f"the members of {path} differ in {name} ({', '.join(f'{v:g}' for v in values)}); choose one value: "
                f"--where {name}={values[0]:g}."
            )
    return policy


def check_sizes(paths: Sequence[Path], policies: Sequence[Policy]) -> None:
    """Refuse policies that cannot act in the same environment."""
    first = policies[0].dims
    for path, policy in zip(paths, policies, strict=True):
        if (policy.dims.obs, policy.dims.act) != (first.obs, first.act):
            raise InvalidSettings(
                f"{paths[0]} maps {first.obs} numbers to {first.act}, {path} maps {policy.dims.obs} to "
                f"{policy.dims.act}: they cannot act in the same environment."
            )


def describe_place(place: Place) -> str:
    """Return a place as text."""
    options = ", ".join(f"{name}={value}" for name, value in place.options.items())
    return f"{place.name} with {options}" if options else place.name


def to_json(
    runs: Sequence[ComparedRun], differences: Sequence[RunDifference], settings: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return everything for --json."""
    first = runs[0].record
    return {
        "task": first.results["task"],
        "options": first.results["options"],
        "metric": metric_of(first),
        "episodes": runs[0].outcomes.shape[1],
        "runs": [
            {
                "run": run.name,
                "method": run.record.settings.get("type"),
                "seeds": list(run.seeds),
                "mean": run.mean,
                "interval": list(run.interval),
                "recorded_before": run.reused,
            }
            for run in runs
        ],
        "differences": [
            {
                "run": run.name,
                "minus": runs[0].name,
                "mean": difference.estimate.mean,
                "interval": list(difference.interval),
                "p": difference.p,
                "p_holm": difference.adjusted,
                "paired_seeds": difference.paired,
            }
            for run, difference in zip(runs[1:], differences, strict=True)
        ],
        "settings": {name: list(values) for name, values in settings.items()},
    }


def print_comparison(
    runs: Sequence[ComparedRun], differences: Sequence[RunDifference], settings: Mapping[str, Sequence[str]]
) -> None:
    """Print the tables of the terminal, at most 80 columns wide."""
    first = runs[0]
    listed = [[letter, shorten(name), method, seeds] for letter, name, method, seeds, _ in describe_runs(runs)]
    print_table("Runs", ["", "run", "method", "seeds"], listed)
    rows = [[letter, mean, gap, corrected] for letter, mean, gap, _, corrected in score_rows(runs, differences)]
    title = f"{first.record.results['task']}, {first.outcomes.shape[1]} starts"
    print_table(title, ["run", f"{unit_label(metric_of(first.record))} (95 %)", "minus A (95 %)", "p (Holm)"], rows)
    settings = leave_out_parts(settings)
    if settings:
        room = max(6, (TABLE_WIDTH - 4 - max(map(len, settings))) // len(runs) - 3)
        cells = [[name, *(shorten(v or MISSING, room) for v in values)] for name, values in settings.items()]
        print_table("Settings that differ", ["setting", *LETTERS[: len(runs)]], cells)
    else:
        print_message("No setting differs.")
    if single := [run.name for run in runs if len(run.seeds) == 1]:
        print_message(
            f"{', '.join(single)}: one seed, so the intervals cover other starts but not other seeds. Train with "
            "--seeds 5."
        )


def leave_out_parts(settings: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Leave out the fields of a part, such as a guide, that some run does not have; its name is enough."""
    parts = [f"{name}." for name, values in settings.items() if "" in values]
    return {name: values for name, values in settings.items() if not name.startswith(tuple(parts))}


def shorten(text: str, most: int = LONGEST_NAME) -> str:
    """Return the end of a long text."""
    return text if len(text) <= most else f"…{text[1 - most :]}"
