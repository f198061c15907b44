"""Search over fields that cannot be stacked, such as widths and depths, with Ray Tune: https://docs.ray.io.

Each configuration is one trial: a stack of seeds that is scored at every snapshot. ASHA stops a trial at a snapshot if
it is not among the best part of those that came so far. Scores are those of `diffclone train`: metrics on held-out
episodes; or those of episodes from validation starts, if a task is given. ASHA compares the absolute error of held-out
actions, or success or return; the choice at the end is by the rule of `training/choice.py`, or by success or return.

FOLDER/records.jsonl    one Record per trial and snapshot, written by the driver
FOLDER/runs/NAME        checkpoints of a trial, from which it resumes
FOLDER/sweep.json       what is tried
FOLDER/tune             the state of Ray Tune, from which the sweep resumes
"""

import hashlib
import importlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf, isfinite, prod
from pathlib import Path
from typing import Any

from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidFile
from diffclone.evaluation import evaluate
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.cluster import connect
from diffclone.experiments.executors.interface import Needs
from diffclone.experiments.record_keys import content_key
from diffclone.experiments.sweep_options import SweepOptions, check_options, configure
from diffclone.experiments.task_settings import find_setting
from diffclone.files import read_json, write_json
from diffclone.fit import FitOptions, fit_with_options
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import differences, to_dict
from diffclone.tasks import TASKS
from diffclone.training import Progress
from diffclone.training.choice import ERROR, Candidate, choose
from diffclone.training.lock import lock_folder
from diffclone.training.runs import evaluation_record
from diffclone.training.search_state import may_be_there
from diffclone.training.selection import SelectionContext, selection_metrics

CHECKPOINT_SECONDS = 5.0
SWEPT = "sweep"
"""The kind of Record without a task, and the name of the configuration in results."""


class SweepFailed(DiffcloneError, RuntimeError):
    """A sweep in which no trial has a result."""


def run_trial(
    fields: Mapping[str, Any],
    options: SweepOptions,
    workspace: Workspace,
    train: Demonstrations,
    context: SelectionContext,
    report: Callable[[int, float, Record], None],
) -> None:
    """Train a configuration from snapshot to snapshot, and report its score and Record at each."""
    method = configure(options, fields)
    name = hashlib.sha256(json.dumps([to_dict(method), list(options.seeds)], sort_keys=True).encode()).hexdigest()[:16]
    for update in options.snapshots:
        begun = time.monotonic()

        def enough(now: Progress, update: int = update) -> bool:
            return now.stage == "policy" and now.update >= update

        settings = FitOptions(
            seeds=options.seeds,
            device=workspace.device,
            precision=workspace.precision,
            checkpoints=workspace.folder / "runs" / name,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            cache=workspace.cache,
            snapshots=options.snapshots,
            enough=enough,
        )
        policy = fit_with_options(method, train, settings).snapshots[update]
        score, record = score_snapshot(policy, update, fields, options, context)
        report(update, score, replace(record, seconds=time.monotonic() - begun))


def score_snapshot(
    policy: Policy, update: int, fields: Mapping[str, Any], options: SweepOptions, context: SelectionContext
) -> tuple[float, Record]:
    """Return the number that ASHA compares, lower is better, and the Record of a snapshot."""
    about = {"snapshot": update, SWEPT: dict(fields)}
    if options.task is not None:
        setting = find_setting(options.task)
        place, count = setting.make_task_options(), options.episodes
        scores = evaluate(policy, setting.task, episodes=count, starts="validation", progress=False, **place)
        values = scores.success if TASKS[setting.task].metric == "success" else scores.returns
        return -float(values.mean()), evaluation_record(policy, scores, results=about)
    metrics = selection_metrics(policy.to("cpu"), context)
    record = Record(
        kind=SWEPT,
        settings=to_dict(policy.method),
        members=[dict(member) for member in policy.members],
        data=policy.data,
        results={
            **about,
            "selection": {name: values for name, values in metrics.items() if all(map(isfinite, values))},
        },
        device=policy.device.type,
        seconds=0.0,
    )
    return mean_error(record), record


def mean_error(record: Record) -> float:
    """Return the mean error of held-out actions; infinite if it is not known, since a member diverged."""
    values: list[float] = record.results["selection"].get(ERROR, [inf])
    return sum(values) / len(values)


def choose_record(records: Sequence[Record], options: SweepOptions) -> Record:
    """Return the Record of the chosen configuration and snapshot."""
    if not records:
        raise SweepFailed("no trial of the sweep has a result; FOLDER/tune has the errors.")
    if options.task is not None:
        success = TASKS[find_setting(options.task).task].metric == "success"
        metric = "success_rate" if success else "mean_return"
        return max(records, key=lambda r: (r.results[metric], -r.results["snapshot"]))
    candidates = [
        Candidate(
            str(record.settings["type"]),
            {},
            int(record.results["snapshot"]),
            {name: sum(values) / len(values) for name, values in record.results["selection"].items()},
        )
        for record in records
    ]
    return records[choose(candidates, (ERROR,))]


def run_sweep(
    options: SweepOptions,
    parts: tuple[Demonstrations, Demonstrations],
    workspace: Workspace,
    address: str | None,
    needs: Needs,
) -> list[Record]:
    """Run the trials that are missing, and return the Records of all. Resumes a sweep that was interrupted."""
    check_options(options)
    train, held_out = parts
    own = {name: value for name, value in vars(options).items() if name != "method"}
    identity = json.loads(json.dumps({**own, "method": to_dict(options.method), "data": train.fingerprint}))
    check_folder(workspace.folder, identity)
    with lock_folder(workspace.folder):
        check_folder(workspace.folder, identity)  # another process may have used the folder before it was locked
        (workspace.folder / "runs").mkdir(exist_ok=True)
        write_json(workspace.folder / "sweep.json", identity)
        return run_trials(options, train, held_out, workspace, address, needs)


def run_trials(
    options: SweepOptions,
    train: Demonstrations,
    held_out: Demonstrations,
    workspace: Workspace,
    address: str | None,
    needs: Needs,
) -> list[Record]:
    """Run the trials that are missing, in a folder that is checked and locked."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    ray, on_ctrl_c = connect(address), signal.getsignal(signal.SIGINT)
    tune: Any = importlib.import_module("ray.tune")
    folder = workspace.folder.resolve()
    workspace = replace(workspace, folder=folder)
    file = workspace.records_file

    class SaveRecords(tune.Callback):  # Ray Tune stores it and restores it with the sweep
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            save_record(file, Record(**json.loads(result["record"])))

    context = SelectionContext.prepare(train, held_out, "cpu")
    given = tune.with_parameters(tune_trial, options=options, workspace=workspace, train=train, context=context)
    resources = {"cpu": needs.cpus, "gpu": needs.gpus, **({"memory": needs.memory} if needs.memory else {})}
    trainable = tune.with_resources(given, resources)
    state = folder / "tune"
    try:
        if tune.Tuner.can_restore(str(state)):
            tuner = tune.Tuner.restore(str(state), trainable, restart_errored=True)
        else:
            run_config = tune.RunConfig(
                name="tune",
                storage_path=str(folder),
                callbacks=[SaveRecords()],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=2),
            )
            space = {name: tune.grid_search(list(values)) for name, values in options.over.items()}
            tune_config = tune.TuneConfig(scheduler=make_scheduler(options))
            tuner = tune.Tuner(trainable, param_space=space, tune_config=tune_config, run_config=run_config)
        results = tuner.fit()
    finally:
        signal.signal(signal.SIGINT, on_ctrl_c)  # Ray Tune leaves its own handler, which would ignore the next Ctrl-C
        ray.shutdown()
    records = workspace.read_records()
    check_results(results, options, records)
    return records


def make_scheduler(options: SweepOptions) -> Any:
    """Return what decides which trials go on: ASHA, which cannot keep all, or a queue."""
    schedulers: Any = importlib.import_module("ray.tune.schedulers")
    if options.reduction == 1:
        return schedulers.FIFOScheduler()
    return schedulers.ASHAScheduler(
        time_attr="updates",
        metric="score",
        mode="min",
        max_t=max(options.snapshots),
        grace_period=min(options.snapshots),
        reduction_factor=options.reduction,
    )


def check_results(results: Any, options: SweepOptions, records: Sequence[Record]) -> None:
    """Raise KeyboardInterrupt if trials did not end, and report those that failed.

    After Ctrl-C, Ray Tune returns normally: it calls trials that it stopped terminated, and may not have made some yet.
    """
    trials, last = prod(map(len, options.over.values())), max(options.snapshots)
    ended = [one.metrics.get("done") or one.metrics.get("updates") == last for one in results if not one.error]
    if sum(ended) + len(results.errors) < trials:
        raise KeyboardInterrupt("interrupted. Run the same command to resume.")
    if results.errors:
        reason = str(results.errors[0]).strip().splitlines()[-1]
        if not records:
            raise SweepFailed(f"all trials of the sweep failed: {reason}")
        failed = f"{len(results.errors)} of {trials} trials failed ({reason})."
        warnings.warn(f"{failed} Run the same command to try them again.", DiffcloneWarning, stacklevel=3)


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse a folder that holds another sweep or anything else."""
    path = folder / "sweep.json"
    if path.exists():
        if found := differences(read_json(path), identity):
            raise InvalidFile(
                f"{folder} holds another sweep ({'; '.join(found[:3])}). Nothing was changed; choose another --out."
            )
    elif folder.is_file() or (folder.exists() and not all(map(may_be_there, folder.iterdir()))):
        raise InvalidFile(f"{folder} exists and holds no sweep. Nothing was changed; choose another --out.")


def save_record(path: Path, record: Record) -> None:
    """Append a Record, unless it is there already: a trial that is begun again repeats some."""
    known = Record.read_all(path) if path.exists() else []
    if content_key(record) not in {content_key(other) for other in known}:
        record.append_to(path)


def tune_trial(
    config: Mapping[str, Any],
    options: SweepOptions,
    workspace: Workspace,
    train: Demonstrations,
    context: SelectionContext,
) -> None:
    """Run a trial in a worker of Ray Tune."""
    import torch

    tune: Any = importlib.import_module("ray.tune")
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))

    def report(update: int, score: float, record: Record) -> None:
        tune.report({"updates": update, "score": score, "record": json.dumps(asdict(record))})

    run_trial(dict(config), options, workspace.on_this_node(), train, context, report)
