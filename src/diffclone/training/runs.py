"""A run: one training in one folder, with everything needed to resume, use and check it.

run.json            the method, the seeds and the data: the identity of the run
episodes.json       fingerprints of the episodes in the training data and of those held out
metrics.jsonl       losses, one line per report
checkpoints/        the state of each stage
parts/              weights of the parts of the method, e.g. the guide
snapshots/UPDATE/   the policy at earlier updates
policy/             the result
records.jsonl       one Record of the training, one per evaluation
run.lock            locked while a process trains in the folder; contains its process id
"""

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from diffclone.data import AnyDemonstrations
from diffclone.deploy.card import model_card
from diffclone.errors import InvalidFile
from diffclone.evaluation import Scores
from diffclone.files import (
    append_line,
    is_temporary,
    read_json,
    read_tensors,
    remove_temporary_files,
    write_atomically,
    write_json,
    write_tensors,
)
from diffclone.fit import FitOptions, OnProgress, check_options, fit_with_options
from diffclone.model import Method, Parts
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import differences, to_dict
from diffclone.training import Progress
from diffclone.training.episodes import RunEpisodes
from diffclone.training.guide import TrainedGuide, parts_from_tensors
from diffclone.training.lock import HELD, LOCK, lock_folder
from diffclone.training.members import list_seeds
from diffclone.training.metrics import drop_metrics
from diffclone.training.session import describe_data

SEARCHED = ("search", "search.json")  # of `diffclone.training.search`, which then trains its choice in the same folder


@final
@dataclass(frozen=True)
class Run:
    """A training's folder."""

    folder: Path
    """Where its files are."""
    trained: Policy | None = field(default=None, repr=False, compare=False)
    """The policy, if it was trained in this process."""

    @property
    def records(self) -> Path:
        """The file of Records."""
        return self.folder / "records.jsonl"

    @property
    def metrics(self) -> Path:
        """The file of losses."""
        return self.folder / "metrics.jsonl"

    @property
    def finished(self) -> bool:
        """Whether the policy is trained."""
        return (self.folder / "policy" / "config.json").exists()

    def policy(self, device: str = "cpu") -> Policy:
        """Return the trained policy, read from the folder unless it is in memory."""
        if self.trained is not None:
            return self.trained.to(device)
        return self.load("policy", device)

    def snapshots(self, device: str = "cpu") -> dict[int, Policy]:
        """Return the policy at the updates of `FitOptions.snapshots`, in order."""
        return {update: self.load(f"snapshots/{update}", device) for update in self.snapshot_updates}

    @property
    def snapshot_updates(self) -> list[int]:
        """The updates that the run has snapshots of."""
        names = [path.name for path in (self.folder / "snapshots").glob("[0-9]*")]
        return sorted(int(name) for name in names if name.isdecimal())

    def snapshot(self, update: int, device: str = "cpu") -> Policy:
        """Return the policy at one of these updates."""
        known = ", ".join(map(str, self.snapshot_updates)) or "none; diffclone train --snapshots makes them"
        if self.finished and update not in self.snapshot_updates:
            raise InvalidFile(f"{self.folder} has no snapshot of update {update}; it has {known}.")
        return self.load(f"snapshots/{update}", device)

    def load(self, name: str, device: str, *, monitor: bool = True) -> Policy:
        """Read a policy of the run, with the run's guide; without its monitor if that is to be replaced."""
        if not (self.folder / "run.json").exists():
            raise InvalidFile(f"{self.folder} is not a run: it has no run.json. Make one with: diffclone train.")
        if not self.finished:
            raise InvalidFile(
                f"{self.folder} has not finished training. Run the same `diffclone train` command again to resume it."
            )
        policy = Policy.load(self.folder / name, device=device, monitor=monitor)
        files = {path.name.removesuffix(".safetensors"): path for path in (self.folder / "parts").glob("*.safetensors")}
        if "guide" not in files:
            return policy

        def load() -> Parts:
            tensors = {name: read_tensors(path)[0] for name, path in files.items()}
            return parts_from_tensors(policy.method, policy.window_dims, tensors, str(self.folder / "parts"))

        return replace(policy, guide=TrainedGuide(policy.method, policy.window_normaliser, load))

    @property
    def episodes(self) -> RunEpisodes | None:
        """Fingerprints of the run's episodes; None in runs of older versions."""
        return RunEpisodes.load(self.folder)

    def identity(self) -> dict[str, Any]:
        """Return the content of run.json."""
        return read_json(self.folder / "run.json")

    def training_options(self) -> dict[str, Any]:
        """Return what the weights depend on beside the method and the data: the precision, a guide's shared seed."""
        identity = self.identity()
        shared = {"guide_seed": identity["guide_seed"]} if "guide_seed" in identity else {}
        return {"precision": identity.get("precision", "float32"), **shared}


def check_folder(folder: Path, identity: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse a folder that contains another run or anything else but the files `allowed` before a run."""
    if folder.exists() and not folder.is_dir():
        raise InvalidFile(f"{folder} is a file; a run needs a folder. Choose another --out.")
    if (folder / "run.json").exists():
        found = differences(Run(folder).identity(), identity)
        # A file may have another name by now: its fingerprint says whether the data is the same.
        if any(not difference.startswith("data.meta.source: ") for difference in found):
            raise InvalidFile(
                f"{folder} holds another run ({'; '.join(found[:3])}). Nothing was changed; choose another --out."
            )
    elif folder.exists() and (
        others := {path.name for path in folder.iterdir() if not is_temporary(path)}.difference(allowed)
    ):
        if "search.json" in others:
            raise InvalidFile(
                f"{folder} holds an unfinished search. Nothing was changed; repeat the search's command to finish it, "
                "or choose another --out."
            )
        raise InvalidFile(f"{folder} is not empty and holds no run. Nothing was changed; choose another --out.")


def train_run(
    folder: Path,
    method: Method[Any],
    demos: AnyDemonstrations,
    options: FitOptions,
    *,
    task: str | None = None,
    quick: bool = False,
    episodes: RunEpisodes | None = None,
    progress: OnProgress = lambda progress: None,
) -> Run:
    """Train into a folder, or resume there. A finished run is not trained again.

    `episodes` are the fingerprints to remember; by default those of `demos` and `options.held_out`.
    """
    check_options(method, options, demos)  # settings that cannot be trained must not create a folder
    identity = {
        "task": task,
        "method": to_dict(method),
        "seeds": list_seeds(options.seeds),
        "vary": {name: list(values) for name, values in (options.vary or {}).items()},
        "data": describe_data(demos),
        "quick": quick,
    }
    if options.precision != "float32":
        identity["precision"] = options.precision
    if options.guide_seed is not None:
        identity["guide_seed"] = options.guide_seed
    if options.snapshots:
        identity["snapshots"] = sorted({*options.snapshots})
    identity = json.loads(json.dumps(identity))
    # A search has locked its folder when it trains its choice there. On Windows, which has no locks, this is not known.
    searching = sys.platform == "win32" or folder.resolve() in HELD.get()
    check_folder(folder, identity, (LOCK, *SEARCHED))  # whether a search is running is known once it is locked
    run = Run(folder)
    if run.finished and run.episodes is not None:
        return run
    with lock_folder(folder):
        # Another process may have used the folder before it was locked.
        check_folder(folder, identity, (LOCK, *SEARCHED) if searching else (LOCK,))
        remove_temporary_files(folder)
        if not (folder / "run.json").exists():
            write_json(folder / "run.json", identity)
        if run.episodes is None:
            held_out = () if options.held_out is None else options.held_out.episode_fingerprints
            (episodes or RunEpisodes(demos.episode_fingerprints, held_out)).save(folder)
        return run if run.finished else train_in_folder(run, method, demos, options, quick=quick, progress=progress)


def train_in_folder(
    run: Run, method: Method[Any], demos: AnyDemonstrations, options: FitOptions, *, quick: bool, progress: OnProgress
) -> Run:
    """Train in a run's folder, which is checked and locked."""
    shared = {} if options.guide_seed is None else {"guide_seed": options.guide_seed}
    begun: set[str] = set()

    def report(now: Progress) -> None:
        if not now.losses:  # only an announcement that a stage begins
            progress(now)
            return
        if now.stage not in begun:
            begun.add(now.stage)
            drop_metrics(run.metrics, now)
        losses = {name: values.tolist() for name, values in now.losses.items()}
        if not (run.folder / "run.json").exists():
            raise InvalidFile(
                f"{run.folder} was removed or moved during training, so nothing can be saved there. Run the same "
                "command again to train from the beginning."
            )
        line = {"stage": now.stage, "update": now.update, "seconds": round(now.seconds, 3), **losses}
        append_line(run.metrics, line)
        progress(now)

    fitted = fit_with_options(method, demos, replace(options, checkpoints=run.folder / "checkpoints"), report)
    record = Record(
        kind="training",
        settings=to_dict(method),
        members=[dict(member) for member in fitted.policy.members],
        data=describe_data(demos),
        results={"diverged": list(fitted.policy.diverged), "precision": options.precision, **shared},
        device=device_name(fitted.policy),
        seconds=fitted.seconds,
        quick=quick,
    )
    # The Record is there already if an earlier attempt could not save its policy.
    if not run.records.exists() or not Record.read_all(run.records):
        record.append_to(run.records)
    for name, net in fitted.trained.parts.items():
        write_tensors(run.folder / "parts" / f"{name}.safetensors", net.state_dict(), describe_data(demos))
    for update, policy in fitted.snapshots.items():
        if not (run.folder / "snapshots" / str(update)).exists():  # an earlier attempt may have saved it
            policy.save(run.folder / "snapshots" / str(update))
    fitted.policy.save(run.folder / "policy")
    return replace(run, trained=fitted.policy)


def evaluation_record(
    policy: Policy, scores: Scores, *, quick: bool = False, results: Mapping[str, Any] | None = None
) -> Record:
    """Return the Record of an evaluation; `results` are added to the scores."""
    return Record(
        kind="evaluation",
        settings=to_dict(policy.method),
        members=[dict(member) for member in policy.members],
        data=policy.data,
        results={**scores.summary(), **(results or {})},
        device=device_name(policy),
        seconds=scores.seconds,
        quick=quick,
    )


def record_evaluation(run: Run, policy: Policy, scores: Scores, snapshot: int | None = None) -> Record:
    """Append an evaluation to the run's Records: of the trained policy, or of the snapshot at an update."""
    results = run.training_options() | ({} if snapshot is None else {"snapshot": snapshot})
    record = evaluation_record(policy, scores, quick=bool(run.identity().get("quick")), results=results)
    record.append_to(run.records)
    if snapshot is not None:  # the model card is about the trained policy
        return record
    config = read_json(run.folder / "policy" / "config.json")
    records = Record.read_all(run.records)
    evaluations = [r for r in records if r.kind == "evaluation" and "snapshot" not in r.results]
    write_atomically(run.folder / "policy" / "README.md", model_card(config, evaluations).encode())
    return record


def device_name(policy: Policy) -> str:
    """Return the name of the device that a Record stores: a GPU's model, else torch's name."""
    import torch

    device = policy.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
