"""Test `diffclone train` without settings on tasks that its rule was not developed on.

python -m scripts.search_study metaworld/coffee-pull-20 spiral-1 --out FILE --folder FOLDER

For each setting, in this order; what FILE has already is not done again:

1. "search": the candidates of a grid of `train`, with eight seeds, trained as `train` does. Every snapshot is
   measured on held-out episodes and run from validation starts. `scripts.selection_regret` computes regrets from it.
2. "final": trained on all demonstrations with fresh seeds, and run from evaluation starts: what `train` chooses with
   its two seeds, and what tuning in the environment chooses for BC and for DBC.

`--stage train` is for settings of the study of tuning, whose Records have the tuned methods: it does what `train` does,
with the fresh seeds of that study, and runs the policies from the same evaluation starts. `--stage plain` does the same
with `fit(BC())`, which does not search.

A member is the same alone and in a stack, so the first two seeds are the search that `train` makes.
"""

import argparse
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from diffclone.data import Demonstrations
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments.study.plan import FRESH_SEEDS as STUDY_SEEDS
from diffclone.experiments.study.plan import LONG_EVALUATION_EPISODES as LONG_STUDY_EPISODES
from diffclone.experiments.study.plan import LONG_SEEDS
from diffclone.experiments.study.run import short_record
from diffclone.experiments.task_settings import TASK_SETTINGS, TaskSetting
from diffclone.fit import FitOptions, fit
from diffclone.methods import BC
from diffclone.model import Method
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.tasks.batch import Starts
from diffclone.training.choice import Candidate, choose, list_candidates
from diffclone.training.holdout import divide
from diffclone.training.runs import train_run
from diffclone.training.search import SearchOptions, search_in_folder
from diffclone.training.search_plan import FALLBACK_UPDATES, GRIDS, Grid, chosen_method, stacks
from diffclone.training.selection import SelectionContext, selection_metrics

GRID = 4
"""Place in `GRIDS` of the grid that fits into the default budget on two cores; 3 is the next smaller one."""
SEEDS, FRESH_SEEDS = 8, tuple(range(100, 108))
PLAIN_SEEDS = 8
SEEN = 2
"""Seeds of `train`'s search."""
VALIDATION_EPISODES, EVALUATION_EPISODES = 12, 50
LONG_VALIDATION_EPISODES, LONG_EVALUATION_EPISODES = 3, 10
"""Of tasks whose score is a return: their episodes have a thousand steps."""
ENVIRONMENTS = 2
"""Environments per member; those of other packages take long to make."""
TITLES = {0.0: "DBC (paper)", 1.0: "DBC (ours)"}
"""Names of DBC by κ, as in the study of tuning."""


def play(policy: Policy, setting: TaskSetting, starts: Starts, episodes: int) -> Scores:
    """Run episodes of a setting with all members."""
    task = TASKS[setting.task]
    task = replace(task, environments_per_member=ENVIRONMENTS) if task.environments_per_member else task
    return evaluate(policy, task, episodes=episodes, starts=starts, **setting.make_task_options())


def find(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the Records with these results."""
    return [r for r in records if all(r.results.get(key) == value for key, value in wanted.items())]


def episodes_of(setting: TaskSetting) -> tuple[int, int]:
    """Return the episodes per member on validation and on evaluation starts."""
    if TASKS[setting.task].metric == "return":
        return LONG_VALIDATION_EPISODES, LONG_EVALUATION_EPISODES
    return VALIDATION_EPISODES, EVALUATION_EPISODES


def search(setting: TaskSetting, grid: Grid, folder: Path, out: Path) -> None:
    """Train the candidates of a grid and append one Record per method and snapshot."""
    done = find(read(out), study="search", setting=setting.name)
    demos = setting.load_demonstrations()
    parts, _ = divide(demos, FALLBACK_UPDATES)
    assert parts is not None, f"{setting.name} has too few demonstrations to hold any out"
    context: SelectionContext | None = None
    for name, (method, vary) in stacks(grid, parts[0]).items():
        titles = ["BC"] if name == "bc" else [TITLES[away] for away in grid.away]
        missing = [
            update
            for update in grid.snapshots
            if any(not find(done, method=title, snapshot=update) for title in titles)
        ]
        if not missing:
            continue
        options = FitOptions(
            seeds=range(grid.seeds),
            vary=vary,
            snapshots=grid.snapshots,
            guide_seed=None if name == "bc" else 0,
            device="cpu",
        )
        run = train_run(folder / name, method, parts[0], options)
        context = context or SelectionContext.prepare(*parts, "cpu")
        for update in missing:
            policy = run.snapshot(update)
            metrics = selection_metrics(policy, context)
            scores = play(policy, setting, "validation", episodes_of(setting)[0])
            for title in titles:
                if not find(done, method=title, snapshot=update):
                    rows = rows_of(policy, title)
                    results = {
                        "study": "search",
                        "setting": setting.name,
                        "method": title,
                        "snapshot": update,
                        "selection": {key: [rounded(values[m]) for m in rows] for key, values in metrics.items()},
                    }
                    short_record(policy.choose(rows), take(scores, rows), results).append_to(out)


def rows_of(policy: Policy, title: str) -> list[int]:
    """Return the members that a title stands for."""
    away = {title: value for value, title in TITLES.items()}.get(title)
    return [m for m, member in enumerate(policy.members) if away is None or member["away"] == away]


def take(scores: Scores, rows: Sequence[int]) -> Scores:
    """Return the scores of some members."""
    return replace(scores, success=scores.success[rows], length=scores.length[rows], returns=scores.returns[rows])


def rounded(value: float) -> float | None:
    """Return a metric with four digits; None if it is not a number."""
    return float(f"{value:.4g}") if isfinite(value) else None


def read(path: Path) -> list[Record]:
    """Return the Records of a file, if there is one."""
    return Record.read_all(path) if path.exists() else []


def choices(records: Sequence[Record], seeds: Sequence[int]) -> dict[str, Candidate]:
    """Return what `train` chooses with its seeds, and the best BC and DBC on validation starts with all seeds."""
    seen: list[Candidate] = []
    scored: list[tuple[float, Candidate]] = []
    for record in records:
        r = record.results
        seen += list_candidates(r["method"], r["snapshot"], record.members, r["selection"], seeds)
        outcomes = r["outcomes"].get("success") or r["outcomes"]["returns"]
        means = [sum(map(float, row)) / len(row) for row in outcomes]
        every = list_candidates(r["method"], r["snapshot"], record.members, {"score": means})
        scored += [(candidate.metrics["score"], candidate) for candidate in every]
    tuned = {
        f"{title}, tuned": min(
            (pair for pair in scored if pair[1].method.startswith(title)), key=lambda pair: (-pair[0], pair[1].updates)
        )[1]
        for title in ("BC", "DBC")
    }
    return {"train": seen[choose(seen)], **tuned}


def final(setting: TaskSetting, grid: Grid, folder: Path, out: Path) -> None:
    """Train the choices on all demonstrations with fresh seeds, and append a Record of each."""
    records, demos = read(out), setting.load_demonstrations()
    found = choices(find(records, study="search", setting=setting.name), range(SEEN))
    played: dict[str, tuple[Policy, Scores]] = {}
    for title, candidate in found.items():
        if find(records, study="final", setting=setting.name, method=title):
            continue
        key = str(candidate.to_dict() | {"metrics": None})
        if key not in played:
            policy = train_final(folder / f"final-{len(played)}", grid, demos, candidate)
            played[key] = policy, play(policy, setting, "evaluation", episodes_of(setting)[1])
        chosen = {"method": candidate.method, "fields": dict(candidate.fields), "updates": candidate.updates}
        about = {"study": "final", "setting": setting.name, "method": title}
        results = {**about, "chosen": chosen, "snapshot": candidate.updates}
        short_record(*played[key], results).append_to(out)


def train_final(folder: Path, grid: Grid, demos: Demonstrations, candidate: Candidate) -> Policy:
    """Train a candidate on all demonstrations with fresh seeds, as `train` does."""
    name = "bc" if candidate.method == "BC" else "dbc"
    method: Method[Any] = chosen_method(grid, demos, name, candidate.fields, candidate.updates)
    shutil.rmtree(folder, ignore_errors=True)
    return train_run(folder, method, demos, FitOptions(seeds=FRESH_SEEDS, device="cpu")).policy()


def train(setting: TaskSetting, grid: Grid, folder: Path, out: Path) -> None:
    """Search and train as `train` does, with the fresh seeds of the study of tuning, and append a Record."""
    if find(read(out), study="train", setting=setting.name):
        return
    long = TASKS[setting.task].metric == "return"
    seeds = STUDY_SEEDS[:LONG_SEEDS] if long else STUDY_SEEDS
    options = SearchOptions(seeds=seeds, device="cpu", grid=replace(grid, seeds=SEEN))
    found = search_in_folder(folder / "train", setting.load_demonstrations(), options)
    scores = play(found.policy, setting, "evaluation", LONG_STUDY_EPISODES if long else setting.evaluation_episodes)
    candidate = found.choice
    assert candidate is not None, f"{setting.name} has too few demonstrations to choose from"
    chosen = {"method": candidate.method, "fields": dict(candidate.fields), "updates": candidate.updates}
    about = {"study": "train", "setting": setting.name, "method": "train", "chosen": chosen}
    results = {**about, "snapshot": candidate.updates, "search_seconds": round(found.seconds, 1)}
    short_record(found.policy, scores, results).append_to(out)


def plain(setting: TaskSetting, grid: Grid, folder: Path, out: Path) -> None:
    """Train `fit(BC())` with fresh seeds of the study of tuning, and append a Record."""
    if find(read(out), study="plain", setting=setting.name):
        return
    long = TASKS[setting.task].metric == "return"
    policy = fit(BC(), setting.load_demonstrations(), seeds=STUDY_SEEDS[:PLAIN_SEEDS], device="cpu", progress=False)
    scores = play(policy, setting, "evaluation", LONG_STUDY_EPISODES if long else setting.evaluation_episodes)
    updates = policy.method.training.updates
    results = {"study": "plain", "setting": setting.name, "method": "BC, plain", "snapshot": updates}
    short_record(policy, scores, results).append_to(out)


STAGES = {"search": (search,), "final": (final,), "both": (search, final), "train": (train,), "plain": (plain,)}


def main() -> None:
    """Run the settings one after the other."""
    parser = argparse.ArgumentParser(prog="search_study", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("settings", nargs="+", help="names of task settings")
    parser.add_argument("--out", type=Path, required=True, help="file to append Records to")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the trainings, which resume there")
    parser.add_argument("--stage", choices=tuple(STAGES), default="both")
    parser.add_argument("--grid", type=int, default=GRID, help="which grid of `train`, from 0, the smallest")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each configuration")
    given = parser.parse_args()
    for name in given.settings:
        setting, grid = TASK_SETTINGS[name], replace(GRIDS[given.grid], seeds=given.seeds)
        folder = given.folder / name.replace("/", "-")
        for stage in STAGES[given.stage]:
            stage(setting, grid, folder, given.out)
            print(f"{name}: {stage.__name__} done", flush=True)


if __name__ == "__main__":
    main()
