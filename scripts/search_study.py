"""What `diffclone train` chooses without an environment, and how good that is: Records for docs/training.md.

python -m scripts.search_study metaworld/stick-pull-20 fetch-pick-27 --out FILE --folder RUNS

For each setting, in this order; what FILE has already is not done again:

1. The search of `train`: candidates are trained on a part of the demonstrations with two seeds, and measured on the
   held-out part.
2. "search": the same candidates trained on all demonstrations with eight fresh seeds, as `train` trains its choice,
   and run from validation starts. One Record per method and snapshot, with the metrics of step 1.
3. "final": run from evaluation starts with the same seeds: what `train` chooses; the candidate of BC with the highest
   score on validation starts; and `fit(BC())`, which does not search.

Seeds and evaluation starts are those of the tuning study, so that differences can be paired.
"""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from diffclone.data import Demonstrations
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments.study.plan import LONG_EVALUATION_EPISODES
from diffclone.experiments.study.run import short_record
from diffclone.experiments.task_settings import TASK_SETTINGS, TaskSetting
from diffclone.fit import FitOptions, fit
from diffclone.methods import BC
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.batch import Starts
from diffclone.training.choice import Candidate, choose, list_candidates
from diffclone.training.holdout import divide
from diffclone.training.runs import Run, train_run
from diffclone.training.search_plan import DEFAULT_GRIDS, FALLBACK_UPDATES, GRIDS, Grid, stacks
from diffclone.training.selection import SelectionContext, selection_metrics

GRID = DEFAULT_GRIDS - 1
"""Place in `GRIDS` of the largest grid that the default budget has."""
FRESH_SEEDS = tuple(range(100, 108))
VALIDATION_EPISODES, EVALUATION_EPISODES, EXTERNAL_EPISODES = 24, 100, 50
LONG_VALIDATION_EPISODES = 6
"""Of tasks whose score is a return: their episodes have a thousand steps."""
ENVIRONMENTS = 2
"""Environments per member; those of other packages take long to make."""


def play(policy: Policy, setting: TaskSetting, starts: Starts) -> Scores:
    """Run episodes of a setting with all members."""
    task = TASKS[setting.task]
    long, external = task.metric == "return", task.environments_per_member is not None
    if starts == "validation":
        episodes = LONG_VALIDATION_EPISODES if long else VALIDATION_EPISODES
    else:
        episodes = LONG_EVALUATION_EPISODES if long else EXTERNAL_EPISODES if external else EVALUATION_EPISODES
    task = replace(task, environments_per_member=ENVIRONMENTS) if external else task
    return evaluate(policy, task, episodes=episodes, starts=starts, progress=False, **setting.make_task_options())


def find(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the Records with these results."""
    return [r for r in records if all(r.results.get(key) == value for key, value in wanted.items())]


def read(path: Path) -> list[Record]:
    """Return the Records of a file, if there is one."""
    return Record.read_all(path) if path.exists() else []


def train_stack(folder: Path, grid: Grid, demos: Demonstrations, name: str, seeds: Iterable[int]) -> Run:
    """Train one stack of the grid."""
    method, vary = stacks(grid, demos)[name]
    options = FitOptions(
        seeds=tuple(seeds),
        vary=vary,
        snapshots=grid.lengths(name),
        guide_seed=0 if name == "dbc" else None,
        device="cpu",
    )
    return train_run(folder, method, demos, options)


def search(setting: TaskSetting, grid: Grid, folder: Path) -> list[Candidate]:
    """Return what the search of `train` sees: all candidates with their metrics on held-out episodes."""
    parts, _ = divide(setting.load_demonstrations(), FALLBACK_UPDATES)
    assert parts is not None, f"{setting.name} has too few demonstrations to hold any out"
    context, found = SelectionContext.prepare(*parts, "cpu"), list[Candidate]()
    for name in stacks(grid, parts[0]):
        run = train_stack(folder / "search" / name, grid, parts[0], name, range(grid.seeds))
        for updates, policy in run.snapshots("cpu").items():
            found += list_candidates(name, updates, policy.members, selection_metrics(policy, context))
    return found


def rounded(metrics: dict[str, float]) -> dict[str, float | None]:
    """Return metrics with four digits; None for those that are not numbers."""
    return {name: float(f"{value:.4g}") if isfinite(value) else None for name, value in metrics.items()}


def choose_members(policy: Policy, candidate: Candidate) -> Policy:
    """Return the members of a stack that have the values of a candidate."""
    fields = candidate.fields.items()
    return policy.choose([m for m, member in enumerate(policy.members) if fields <= member.items()])


def study(setting: TaskSetting, grid: Grid, folder: Path, out: Path) -> None:
    """Do all steps on one setting, and append their Records."""
    candidates, demos = search(setting, grid, folder), setting.load_demonstrations()
    runs = {name: train_stack(folder / "all" / name, grid, demos, name, FRESH_SEEDS) for name in stacks(grid, demos)}
    scores: dict[int, float] = {}
    long = TASKS[setting.task].metric == "return"
    for k, candidate in enumerate(candidates):
        about = {"setting": setting.name, "method": candidate.method, "snapshot": candidate.updates}
        about |= {"fields": dict(candidate.fields)}
        done = find(read(out), study="search", **about)
        if not done:
            policy = choose_members(runs[candidate.method].snapshot(candidate.updates), candidate)
            results = {"study": "search", **about, "metrics": rounded(dict(candidate.metrics))}
            done = [short_record(policy, play(policy, setting, "validation"), results)]
            done[0].append_to(out)
        scores[k] = done[0].results["mean_return" if long else "success_rate"]
        print(f"{setting.name}: {candidate.method} {candidate.updates} {scores[k]:.3f}", flush=True)
    own = [k for k, candidate in enumerate(candidates) if candidate.method == "bc"]
    titles = {"train": choose(candidates), "BC, tuned": max(own, key=lambda k: scores[k])}
    played: dict[int, tuple[Policy, Scores]] = {}
    for title, k in titles.items():
        if find(read(out), study="final", setting=setting.name, method=title):
            continue
        candidate = candidates[k]
        policy = choose_members(runs[candidate.method].snapshot(candidate.updates), candidate)
        played[k] = played.get(k) or (policy, play(policy, setting, "evaluation"))
        chosen = {"method": candidate.method, "fields": dict(candidate.fields), "updates": candidate.updates}
        about = {"study": "final", "setting": setting.name, "method": title}
        short_record(*played[k], {**about, "chosen": chosen, "snapshot": candidate.updates}).append_to(out)
    if not find(read(out), study="final", setting=setting.name, method="BC, plain"):
        policy = fit(BC(), demos, seeds=FRESH_SEEDS, device="cpu", progress=False)
        about = {"study": "final", "setting": setting.name, "method": "BC, plain"}
        results = {**about, "snapshot": policy.method.training.updates}
        short_record(policy, play(policy, setting, "evaluation"), results).append_to(out)


def main() -> None:
    """Run the settings one after the other."""
    parser = argparse.ArgumentParser(prog="search_study", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("settings", nargs="+", help="names of task settings")
    parser.add_argument("--out", type=Path, required=True, help="file to append Records to")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the trainings, which resume there")
    parser.add_argument("--grid", type=int, default=GRID, help="which grid of `train`, from 0, the smallest")
    given = parser.parse_args()
    for name in given.settings:
        study(TASK_SETTINGS[name], GRIDS[given.grid], given.folder / name.replace("/", "-"), given.out)
        print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
