"""Run jobs: train, evaluate, measure. A failure is recorded, and the other jobs still run.

FOLDER/records.jsonl    every Record, appended when it is made
FOLDER/runs/NAME        one folder per training; finished ones are kept, interrupted ones resume
FOLDER/data/NAME.npz    demonstrations with generated pairs
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, InvalidFile
from diffclone.evaluation import evaluate
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.measure import MEASURES
from diffclone.experiments.measurement import MeasureInput
from diffclone.experiments.plan import Job, PlannedEvaluation, PlannedMeasurement
from diffclone.experiments.record_index import count_generated, generating_guide, load_demonstrations
from diffclone.experiments.specification import DataChanges, RunOptions
from diffclone.fit import FitOptions
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.training import Precision, Progress
from diffclone.training.augmentation import generate
from diffclone.training.runs import Run, device_name, evaluation_record, train_run
from diffclone.training.session import describe_data


@final
@dataclass(frozen=True)
class Workspace:
    """The folder of the experiments, and how to train in it."""

    folder: Path
    device: str
    cache: Path | None
    """Folder of trained guides."""
    precision: Precision = "float32"
    """Precision of matrix products in training."""

    @property
    def records_file(self) -> Path:
        """The file of all Records."""
        return self.folder / "records.jsonl"

    def read_records(self) -> list[Record]:
        """Return the Records made so far."""
        return Record.read_all(self.records_file) if self.records_file.exists() else []

    def check(self) -> None:
        """Raise an error if the folder holds something else."""
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise InvalidFile(f"{folder} is a file; experiments need a folder. Choose another --out.")
        if folder.exists() and any(folder.iterdir()) and not (folder / "runs").exists() and not self.read_records():
            raise InvalidFile(
                f"{folder} is not empty and holds no experiments. Nothing was changed; choose another --out."
            )

    def precision_of(self, run: Path) -> Precision:
        """Return the precision that a training began with, which it keeps when it resumes."""
        return Run(run).identity().get("precision", "float32") if (run / "run.json").exists() else self.precision

    def on_this_node(self) -> "Workspace":
        """Return the workspace that a worker on another machine uses: this one if both have the same file system."""
        if (self.folder / "runs").is_dir():
            return self
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"diffclone-{name}"
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        return replace(self, folder=folder, cache=None if self.cache is None else folder / "guides")


def run_job(job: Job, callbacks: Callbacks, options: RunOptions, workspace: Workspace) -> None:
    """Run one job."""
    JobRunner(job, options, workspace, callbacks).run()


@final
@dataclass(frozen=True)
class JobRunner:
    """Runs one job."""

    job: Job
    options: RunOptions
    workspace: Workspace
    callbacks: Callbacks

    def run(self) -> None:
        """Train, then evaluate and measure. Each Record is reported as soon as it is made."""
        job, on_record = self.job, self.callbacks.on_record
        items = (*job.evaluations, *job.measurements)
        try:
            demos, run = self.train()
        except Exception as error:
            raise_os_error(error)
            for item in items:
                on_record(self.failure(item, f"training: {describe_error(error)}"))
            return
        for item in items:
            try:
                if isinstance(item, PlannedMeasurement):
                    record = self.measure(item, run, demos)
                else:
                    record = self.evaluate(item, run)
            except Exception as error:
                raise_os_error(error)
                record = self.failure(item, describe_error(error))
            on_record(record)

    def train(self) -> tuple[Demonstrations, Run | None]:
        """Return the demonstrations and, if the job has a training, its finished run."""
        job, workspace = self.job, self.workspace
        if job.variant is None or job.method is None:
            return load_demonstrations(job.task, DataChanges(), self.options), None
        demos, folder = self.prepare_data(job.variant.data), workspace.folder / "runs" / job.name
        options = FitOptions(
            seeds=job.seeds,
            vary=job.variant.vary,
            device=workspace.device,
            precision=workspace.precision_of(folder),
            cache=workspace.cache,
        )
        run = train_run(
            folder, job.method, demos, options, task=job.task, quick=self.options.quick, progress=self.report_training
        )
        # Also if it was finished before: the process may have been killed before its Record was written.
        self.callbacks.on_record(Record.read_all(run.records)[0])
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # a finished training needs none
        return demos, run

    def prepare_data(self, changes: DataChanges) -> Demonstrations:
        """Return the training data. Generated pairs are stored: another machine would not generate the same ones."""
        job, workspace = self.job, self.workspace
        demos = load_demonstrations(job.task, changes, self.options)
        if not changes.generated:
            return demos
        path = workspace.folder / "data" / f"{job.name}.npz"
        if not path.exists():
            guide, count = generating_guide(job.task, self.options), count_generated(demos, changes, self.options)
            generated = generate(
                guide, demos, count, device=workspace.device, cache=workspace.cache, progress=self.report_training
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            demos.joined(generated).save(path)
        return Demonstrations.load(path)

    def report_training(self, now: Progress) -> None:
        """Pass on the progress of training or generating."""
        if now.losses:
            self.callbacks.on_training(self.job.label, now)
        else:
            self.callbacks.on_count(f"{self.job.label}: {now.stage}", now.update, now.updates)
        self.callbacks.check_stop()

    def report_count(self, what: str) -> Callable[[int, int], None]:
        """Return a function that passes on how many are done."""

        def progress(done: int, total: int) -> None:
            self.callbacks.on_count(f"{self.job.label}: {what}", done, total)
            self.callbacks.check_stop()

        return progress

    def evaluate(self, planned: PlannedEvaluation, run: Run | None) -> Record:
        """Run episodes with the selected members."""
        assert run is not None, "only trained policies are evaluated"
        policy = run.policy(self.workspace.device)
        policy = policy.choose(select_members(policy, planned.select))
        progress = self.report_count("evaluation")
        scores = evaluate(policy, self.job.task, episodes=planned.episodes, progress=progress, **planned.options)
        results = {"preset": self.job.preset, "precision": self.workspace.precision_of(run.folder)}
        return evaluation_record(policy, scores, quick=self.options.quick, results=results)

    def measure(self, planned: PlannedMeasurement, run: Run | None, demos: Demonstrations) -> Record:
        """Make a measurement."""
        begun, job, measurement = time.monotonic(), self.job, planned.measurement
        policy = None if run is None else run.policy(self.workspace.device)
        members = [] if policy is None else select_members(policy, measurement.select)
        policy = None if policy is None else policy.choose(members)
        changes = DataChanges(fraction=1.0 if job.variant is None else job.variant.data.fraction)
        given = MeasureInput(
            task=job.task,
            settings=measurement.settings,
            demos=demos,
            clean_demos=load_demonstrations(job.task, changes, self.options),
            selected=policy,
            metrics=None if run is None else run.metrics,
            members=members,
            quick=self.options.quick,
            progress=self.report_count(measurement.kind),
        )
        measured = MEASURES[measurement.kind](given)
        method = None if job.method is None else to_dict(job.method)
        return Record(
            kind=measurement.kind,
            settings={**measured.settings, "method": method},
            members=[] if policy is None else [dict(member) for member in policy.members],
            data=describe_data(demos),
            results={**planned.identity.about, "task": job.task, **measured.results},
            device=measured.device or ("cpu" if policy is None else device_name(policy)),
            seconds=time.monotonic() - begun,
            quick=self.options.quick,
        )

    def failure(self, planned: PlannedEvaluation | PlannedMeasurement, reason: str) -> Record:
        """Return the Record of a failure, with the identity of the intended Record."""
        identity = planned.identity
        scored = isinstance(planned, PlannedEvaluation)
        select = planned.select if scored else planned.measurement.select
        return Record(
            kind="failure",
            settings=(identity.settings or {}) if scored else {"method": identity.settings},
            members=[{"seed": seed, **select} for seed in self.job.seeds],
            data=identity.data,
            results={"what": identity.kind, "reason": reason, "task": self.job.task, **identity.about},
            device=self.workspace.device,
            seconds=0.0,
            quick=self.options.quick,
        )


def select_members(policy: Policy, select: Mapping[str, float]) -> list[int]:
    """Return the members with these values."""
    return [m for m, member in enumerate(policy.members) if all(member.get(k) == v for k, v in select.items())]


def raise_os_error(error: Exception) -> None:
    """Raise errors of the operating system, such as a full disk, again: they are not the failure of one job."""
    if isinstance(error, OSError) and not isinstance(error, ImportError):
        raise error


def describe_error(error: Exception) -> str:
    """Return one line."""
    line = (str(error).strip().splitlines() or [""])[0]
    return line if isinstance(error, DiffcloneError) and line else f"{type(error).__name__}: {line}"
