"""A run: one training in one folder, with everything needed to continue, use and check it.

run.json            what is trained, on what: the identity of the run
episodes.json       fingerprints of the episodes in the training data and of those held out
metrics.jsonl       losses, a line a report
checkpoints/        the state of each stage
parts/              weights of what the method needed: the guide's
policy/             the result
records.jsonl       one Record of the training, one of each evaluation
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.deploy.card import model_card
from diffclone.errors import InvalidFile
from diffclone.evaluation import Scores
from diffclone.files import (
    append_line,
    read_json,
    read_lines,
    read_tensors,
    write_atomically,
    write_json,
    write_lines,
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
from diffclone.training.session import describe_data


@final
@dataclass(frozen=True)
class Run:
    """A training's folder."""

    folder: Path
    trained: Policy | None = field(default=None, repr=False, compare=False)
    """The policy, if it was trained in this process."""

    @property
    def records(self) -> Path:
        """Where Records are appended."""
        return self.folder / "records.jsonl"

    @property
    def metrics(self) -> Path:
        """Where losses are appended."""
        return self.folder / "metrics.jsonl"

    @property
    def finished(self) -> bool:
        """Whether there is a policy."""
        return (self.folder / "policy" / "config.json").exists()

    def policy(self, device: str = "cpu") -> Policy:
        """Return the trained policy, read from the folder unless it is in memory."""
        if self.trained is not None:
            return self.trained.to(device)
        if not (self.folder / "run.json").exists():
            raise InvalidFile(f"{self.folder} is not a run: it has no run.json. Make one with: diffclone train.")
        if not self.finished:
            raise InvalidFile(
                f"{self.folder} has not finished training. Give the same `diffclone train` again to continue it."
            )
        policy = Policy.load(self.folder / "policy", device=device)
        files = {path.name.removesuffix(".safetensors"): path for path in (self.folder / "parts").glob("*.safetensors")}
        if "guide" not in files:
            return policy

        def load() -> Parts:
            tensors = {name: read_tensors(path)[0] for name, path in files.items()}
            return parts_from_tensors(policy.method, policy.dims, tensors, str(self.folder / "parts"))

        return replace(policy, guide=TrainedGuide(policy.method, policy.normaliser, load))

    @property
    def episodes(self) -> RunEpisodes | None:
        """Fingerprints of the run's episodes; None in runs of older versions."""
        return RunEpisodes.load(self.folder)

    def identity(self) -> dict[str, Any]:
        """What the run is of."""
        return read_json(self.folder / "run.json")


def claim(folder: Path, identity: Mapping[str, Any]) -> Run:
    """A new run, or the same one again; a folder that holds anything else is left alone."""
    identity = json.loads(json.dumps(identity))
    if folder.exists() and not folder.is_dir():
        raise InvalidFile(f"{folder} is a file; a run needs a folder. Choose another --out.")
    if (folder / "run.json").exists():
        if found := differences(Run(folder).identity(), identity):
            raise InvalidFile(
                f"{folder} holds another run ({'; '.join(found[:3])}). Nothing was changed; choose another --out."
            )
    elif folder.exists() and any(folder.iterdir()):
        raise InvalidFile(f"{folder} is not empty and holds no run. Nothing was changed; choose another --out.")
    else:
        write_json(folder / "run.json", identity)
    return Run(folder)


def train_run(
    folder: Path,
    method: Method[Any],
    demos: Demonstrations,
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
    settings = to_dict(method)
    identity = {
        "task": task,
        "method": settings,
        "seeds": list(options.seeds),
        "vary": {name: list(values) for name, values in (options.vary or {}).items()},
        "data": describe_data(demos),
        "quick": quick,
    }
    if options.precision != "float32":
        identity["precision"] = options.precision
    shared = {} if options.guide_seed is None else {"guide_seed": options.guide_seed}
    identity |= shared
    check_options(method, options)  # settings that cannot be trained must not create a folder
    run = claim(folder, identity)
    if run.episodes is None:
        unseen = () if options.held_out is None else options.held_out.episode_fingerprints
        (episodes or RunEpisodes(demos.episode_fingerprints, unseen)).save(folder)
    if run.finished:
        return run

    begun: set[str] = set()

    def report(now: Progress) -> None:
        if not now.losses:  # only an announcement that a stage begins
            progress(now)
            return
        if now.stage not in begun:
            begun.add(now.stage)
            forget_metrics(run.metrics, now)
        losses = {name: values.tolist() for name, values in now.losses.items()}
        line = {"stage": now.stage, "update": now.update, "seconds": round(now.seconds, 3), **losses}
        append_line(run.metrics, line)
        progress(now)

    fitted = fit_with_options(method, demos, replace(options, checkpoints=folder / "checkpoints"), report)
    record = Record(
        kind="training",
        settings=settings,
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
        write_tensors(folder / "parts" / f"{name}.safetensors", net.state_dict(), describe_data(demos))
    fitted.policy.save(folder / "policy")
    return Run(folder, fitted.policy)


def forget_metrics(path: Path, now: Progress) -> None:
    """Drop lines that a resumed stage writes again: an interruption may lie after the last checkpoint."""
    if path.exists():
        lines = read_lines(path)
        write_lines(path, [line for line in lines if line["stage"] != now.stage or line["update"] < now.update])


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


def record_evaluation(run: Run, policy: Policy, scores: Scores) -> Record:
    """Append an evaluation to the run's Records."""
    record = evaluation_record(policy, scores, quick=bool(run.identity().get("quick")))
    record.append_to(run.records)
    config = read_json(run.folder / "policy" / "config.json")
    evaluations = [r for r in Record.read_all(run.records) if r.kind == "evaluation"]
    write_atomically(run.folder / "policy" / "README.md", model_card(config, evaluations).encode())
    return record


def device_name(policy: Policy) -> str:
    """Return the name of the device that a Record stores: a GPU's model, else torch's name."""
    import torch

    device = policy.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
