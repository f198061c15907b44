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
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from dataclasses import fields as dataclass_fields
from math import inf, isfinite
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings
from diffclone.evaluation import evaluate
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.cluster import connect
from diffclone.experiments.executors.interface import Needs
from diffclone.experiments.record_keys import content_key
from diffclone.files import read_json, write_json
from diffclone.fit import FitOptions, fit_with_options
from diffclone.model import Method
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import differences, to_dict
from diffclone.tasks import TASKS
from diffclone.training import Progress
from diffclone.training.choice import ERROR, Candidate, choose
from diffclone.training.members import replace_fields
from diffclone.training.runs import evaluation_record
from diffclone.training.selection import SelectionContext, selection_metrics

CHECKPOINT_SECONDS = 5.0
SWEPT = "sweep"
"""The kind of Record without a task, and the name of the configuration in results."""


class SweepFailed(DiffcloneError, RuntimeError):
    """A sweep in which no trial has a result."""


@final
@dataclass(frozen=True, eq=False)
class SweepOptions:
    """What is tried, and how it is scored."""

    method: Method[Any]
    """With the longest training."""
    over: Mapping[str, Sequence[Any]]
    """Values of each field; all combinations are tried."""
    snapshots: tuple[int, ...]
    seeds: tuple[int, ...] = (0, 1)
    task: str | None = None
    """Score by episodes of this task from validation starts."""
    episodes: int = 20
    reduction: float = 2.0
    """ASHA keeps one of this many trials at each snapshot."""


def configure(options: SweepOptions, fields: Mapping[str, Any]) -> Method[Any]:
    """Return the method of a trial."""
    for name in fields:
        if not has_field(options.method, name):
            raise InvalidSettings(f"--over names a field that {type(options.method).__name__} does not have: {name}.")
    try:
        return replace_fields(options.method, fields)
    except (AttributeError, TypeError) as error:
        given = ", ".join(f"{name}={value}" for name, value in fields.items())
        raise InvalidSettings(f"--over gives a value that its field does not take: {given} ({error}).") from None


def has_field(settings: Any, name: str) -> bool:
    """Return whether settings have a field; a dot separates the names of nested fields."""
    outer, dot, inner = name.partition(".")
    known = is_dataclass(settings) and outer in {field.name for field in dataclass_fields(settings)}
    return known and (not dot or has_field(getattr(settings, outer), inner))


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
        scores = evaluate(policy, options.task, episodes=options.episodes, starts="validation", progress=False)
        values = scores.success if TASKS[options.task].metric == "success" else scores.returns
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
        metric = "success_rate" if TASKS[options.task].metric == "success" else "mean_return"
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
    for fields in ({}, *({name: value} for name, values in options.over.items() for value in values)):
        method = configure(options, fields)
        if options.task is None and method.chunks.has_memory:
            raise InvalidSettings(
                "without --task, trials are compared by the errors of single actions, which need horizon 1 and history "
                f"1; these have {method.horizon} and {method.history}. Add --task NAME, or set both to 1."
            )
    train, held_out = parts
    open_folder(options, train, workspace.folder)
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    ray = connect(address)
    tune: Any = importlib.import_module("ray.tune")
    schedulers: Any = importlib.import_module("ray.tune.schedulers")
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
            scheduler = schedulers.ASHAScheduler(
                time_attr="updates",
                metric="score",
                mode="min",
                max_t=max(options.snapshots),
                grace_period=min(options.snapshots),
                reduction_factor=options.reduction,
            )
            run_config = tune.RunConfig(
                name="tune",
                storage_path=str(folder),
                callbacks=[SaveRecords()],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=2),
            )
            space = {name: tune.grid_search(list(values)) for name, values in options.over.items()}
            tuner = tune.Tuner(
                trainable, param_space=space, tune_config=tune.TuneConfig(scheduler=scheduler), run_config=run_config
            )
        results = tuner.fit()
    finally:
        ray.shutdown()
    records = workspace.read_records()
    if not records and results.errors:
        raise SweepFailed(f"all trials of the sweep failed: {str(results.errors[0]).strip().splitlines()[-1]}")
    return records


def open_folder(options: SweepOptions, train: Demonstrations, folder: Path) -> None:
    """Create the folder of a sweep; refuse one that holds something else."""
    own = {name: value for name, value in vars(options).items() if name != "method"}
    identity = json.loads(json.dumps({**own, "method": to_dict(options.method), "data": train.fingerprint}))
    path = folder / "sweep.json"
    if folder.is_file() or (folder.exists() and any(folder.iterdir()) and not path.exists()):
        raise InvalidFile(f"{folder} exists and holds no sweep. Nothing was changed; choose another --out.")
    if path.exists() and (found := differences(read_json(path), identity)):
        raise InvalidFile(
            f"{folder} holds another sweep ({'; '.join(found[:3])}). Nothing was changed; choose another --out."
        )
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    write_json(path, identity)


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
