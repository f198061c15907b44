"""The `sweep` command."""

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from diffclone.cli.arguments import Data, Device, ReadArguments, Reading, find_demonstrations, guide_cache
from diffclone.cli.console import print_json, print_message, print_table
from diffclone.cli.hints import next_evaluation
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.experiments import preset
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.choose import RAY, check_on, parse_needs
from diffclone.experiments.sweep import SWEPT, choose_record, mean_error, run_sweep
from diffclone.experiments.sweep_options import SweepOptions, configure
from diffclone.experiments.task_settings import find_setting
from diffclone.fit import FitOptions, choose_device
from diffclone.model import Method
from diffclone.records import Record
from diffclone.settings import differences, to_dict
from diffclone.tasks import TASKS
from diffclone.training.holdout import hold_out
from diffclone.training.members import replace_fields
from diffclone.training.runs import Run, train_run
from diffclone.training.suggestion import suggest

SHOWN = 10
"""Rows of the printed table."""


@dataclass(frozen=True)
class Sweep:
    """Try all combinations of settings with Ray Tune, which stops bad ones early, and train the choice."""

    data: Data
    out: Path
    """Folder of the sweep. Run the same command again to resume it."""
    over: tuple[str, ...]
    """Fields and their values, e.g. network.width=128,256,512 network.depth=2,3 training.lr=1e-3,3e-4."""
    read: Reading = ReadArguments()
    method: str = "bc"
    """Method to train."""
    snapshots: tuple[int, ...] = (500, 1000, 2000, 4000)
    """Updates at which trials are compared; the last is the longest training."""
    seeds: int = 2
    """Members of each trial."""
    task: str | None = None
    """Score trials by episodes of this task or task setting from validation starts; by default by held-out episodes."""
    episodes: int = 20
    """Episodes per member, with --task."""
    keep: float = 0.5
    """Part of the trials that is continued after each snapshot; 1 continues all."""
    device: Device = "auto"
    on: str = RAY
    """Ray cluster: ray (that of RAY_ADDRESS, else one on this machine) or ray://HOST:10001."""
    needs: str = ""
    """What a trial occupies, e.g. cpus=2,gpus=0.5,memory=4GB."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Run the trials, choose one, and train it on all demonstrations."""
        check_on(self.on)
        if not self.on.startswith(RAY):
            raise InvalidSettings("a sweep runs on Ray; --on takes ray or ray://HOST:10001.")
        snapshots = tuple(sorted({*self.snapshots}))
        if not snapshots or snapshots[0] < 1 or self.seeds < 1 or not 0 < self.keep <= 1:
            raise InvalidSettings("a sweep needs snapshots and seeds of at least 1, and --keep above 0 and at most 1.")
        task, demos = find_demonstrations(self.data, self.task, self.read.options())
        parts = hold_out(demos)
        if parts is None:
            raise InvalidSettings(f"{self.data} has too few steps to hold any out, so that nothing can be chosen.")
        base = suggest(preset(None, self.method, None), demos)
        training = replace(base.training, updates=snapshots[-1], decay="constant")
        method = replace_fields(base, {"training": training})
        options = SweepOptions(
            method, parse_over(self.over), snapshots, tuple(range(self.seeds)), self.task, self.episodes, 1 / self.keep
        )
        device = str(choose_device(self.device))
        workspace = Workspace(self.out, device, guide_cache())
        address = None if self.on == RAY else self.on
        records = run_sweep(options, parts, workspace, address, parse_needs(self.needs, device))
        chosen = choose_record(records, options)
        fields, updates = chosen.results[SWEPT], int(chosen.results["snapshot"])
        final = replace_fields(configure(options, fields), {"training.updates": updates})
        check_choice(self.out / "run", final)
        fit = FitOptions(seeds=options.seeds, device=device, cache=guide_cache())
        policy = train_run(self.out / "run", final, demos, fit, task=task).policy()
        if self.json:
            about = {"chosen": fields, "updates": updates, "records": len(records), "method": to_dict(final)}
            print_json({"run": str(self.out / "run"), **about, "record": asdict(chosen)})
            return
        print_records(records, chosen, None if self.task is None else find_setting(self.task).task)
        print_message(f"{policy!r} in {self.out / 'run'}. {next_evaluation(self.out / 'run', policy)}")


def check_choice(folder: Path, method: Method[Any]) -> None:
    """Refuse a folder with the choice of an earlier call, when fewer trials had results. (Failed ones run again.)"""
    if not (folder / "run.json").exists():
        return
    if found := differences(Run(folder).identity()["method"], json_module.loads(json_module.dumps(to_dict(method)))):
        raise InvalidFile(
            f"{folder} holds what an earlier call chose, and now the choice is another ({'; '.join(found[:3])}). "
            f"Nothing was changed; rename {folder} and run the same command again, which trains only the choice."
        )


def parse_over(entries: Sequence[str]) -> dict[str, list[Any]]:
    """Parse `field=1,2,3`; a value that is no number, true, false or null is a text."""
    found: dict[str, list[Any]] = {}
    for entry in entries:
        name, _, values = entry.partition("=")
        if not values:
            raise InvalidSettings(f"--over takes FIELD=VALUE,VALUE,…; it was given {entry!r}.")
        if name in found:
            raise InvalidSettings(f"--over names {name} twice; give all its values at once: {name}=VALUE,VALUE,….")
        found[name] = [parse_value(value) for value in values.split(",")]
    if not found:
        raise InvalidSettings("--over names the fields to try, e.g. network.width=128,256.")
    return found


def parse_value(text: str) -> Any:
    """Return a number, a truth value, None or a text."""
    try:
        return json_module.loads(text)
    except ValueError:
        return text


def print_records(records: Sequence[Record], chosen: Record, task: str | None) -> None:
    """Print the best snapshots."""
    metric = None if task is None else "success_rate" if TASKS[task].metric == "success" else "mean_return"

    def score(record: Record) -> float:
        return mean_error(record) if metric is None else float(record.results[metric])

    rows = [
        [
            ", ".join(f"{name} {value}" for name, value in record.results[SWEPT].items()),
            f"{record.results['snapshot']:,}",
            f"{score(record):.4g}",
            "chosen" if record is chosen else "",
        ]
        for record in sorted(records, key=score, reverse=task is not None)
    ]
    shown = rows[:SHOWN] + [row for row in rows[SHOWN:] if row[-1]]
    what = "held-out error" if task is None else "validation"
    print_table(f"{len(records)} snapshots", ["settings", "updates", what, ""], shown)
