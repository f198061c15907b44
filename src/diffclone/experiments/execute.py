"""Does what a plan says: trains, plays, measures. What fails is recorded as failed, and the rest goes on.

OUT/records.jsonl    every Record, appended as it is made
OUT/runs/NAME        a training each; finished ones are left, interrupted ones go on
OUT/data/NAME.npz    demonstrations with generated pairs
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile
from diffclone.evaluation import evaluate
from diffclone.experiments.choices import Options
from diffclone.experiments.content import NOTHING
from diffclone.experiments.material import Material
from diffclone.experiments.measures import MEASURES
from diffclone.experiments.plan import Job, Look, Play
from diffclone.experiments.specification import DataChanges
from diffclone.experiments.subject import Subject
from diffclone.fit import FitOptions, choose_device
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.training import Precision, Progress
from diffclone.training.runs import Run, device_name, train_run
from diffclone.training.session import describe_data


@final
@dataclass(frozen=True)
class Place:
    """Where, and on what."""

    out: Path
    device: str
    cache: Path | None
    """Of trained guides."""
    precision: Precision = "float32"
    """Of matrix products while training."""

    @property
    def records(self) -> Path:
        """All Records."""
        return self.out / "records.jsonl"

    def read(self) -> list[Record]:
        """Those that are there."""
        return Record.read_all(self.records) if self.records.exists() else []

    def refuse_others(self) -> None:
        """A folder that holds something else is left alone."""
        if self.out.exists() and not self.out.is_dir():
            raise InvalidFile(f"{self.out} is a file; experiments need a folder. Choose another --out.")
        if self.out.exists() and any(self.out.iterdir()) and not (self.out / "runs").exists() and not self.read():
            raise InvalidFile(
                f"{self.out} is not empty and holds no experiments. Nothing was changed; choose another --out."
            )


@final
@dataclass(frozen=True)
class Watch:
    """What is called while a job is done."""

    training: Callable[[str, Progress], None] = lambda name, now: None
    count: Callable[[str, int, int], None] = lambda what, done, total: None
    stop: Callable[[], None] = lambda: None
    """Between two steps of anything: raises KeyboardInterrupt where one was asked for."""


def do(job: Job, options: Options, place: Place, keep: Callable[[Record], None], watch: Watch) -> None:
    """All of a job, in order; `keep` is given each Record as soon as it is made."""
    work = Work(job, options, place, keep, watch)
    try:
        demos, run = work.prepare()
    except Exception as fault:
        forbid(fault)
        for wanted in (*job.plays, *job.looks):
            keep(work.failure(wanted, None, f"training: {reason(fault)}"))
        return
    for wanted in (*job.plays, *job.looks):
        try:
            keep(work.play(wanted, run) if isinstance(wanted, Play) else work.measure(wanted, run, demos))
        except Exception as fault:
            forbid(fault)
            keep(work.failure(wanted, demos, reason(fault)))


@final
@dataclass(frozen=True)
class Work:
    """One job, and all that is needed for it."""

    job: Job
    options: Options
    place: Place
    keep: Callable[[Record], None]
    watch: Watch

    def prepare(self) -> tuple[Demonstrations, Run | None]:
        """Demonstrations and, where the job has one, the training."""
        job, place, material = self.job, self.place, Material(self.options)
        if job.variant is None or job.method is None:
            return material.real(job.task, NOTHING), None
        path = place.out / "data" / f"{job.name}.npz"
        demos = material.made(job.task, job.variant.data, path, place.device, place.cache, self.trained)
        folder = place.out / "runs" / job.name
        before = Run(folder).finished
        run = train_run(
            folder,
            job.method,
            demos,
            FitOptions(
                seeds=job.seeds,
                vary=job.variant.vary,
                device=place.device,
                precision=begun_in(folder, place.precision),
                cache=place.cache,
            ),
            task=job.task,
            quick=self.options.quick,
            progress=self.trained,
        )
        if not before:
            self.keep(Record.read_all(run.records)[0])
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)  # a finished training needs none
        return demos, run

    def trained(self, now: Progress) -> None:
        """Called while something is trained or generated."""
        if now.losses:
            self.watch.training(self.job.label, now)
        else:
            self.watch.count(f"{self.job.label}: {now.stage}", now.update, now.updates)
        self.watch.stop()

    def counted(self, what: str) -> Callable[[int, int], None]:
        """What is called while something is counted."""

        def progress(done: int, total: int) -> None:
            self.watch.count(f"{self.job.label}: {what}", done, total)
            self.watch.stop()

        return progress

    def play(self, play: Play, run: Run | None) -> Record:
        """Episodes of the chosen members."""
        assert run is not None, "what is played was trained"
        policy = run.policy(str(choose_device(self.place.device)))
        policy = policy.choose(matching(policy, play.select))
        scores = evaluate(
            policy, self.job.task, episodes=play.episodes, progress=self.counted("playing"), **play.options
        )
        return Record(
            kind="evaluation",
            settings=to_dict(policy.method),
            members=[dict(member) for member in policy.members],
            data=policy.data,
            results={
                **scores.summary(),
                "preset": self.job.preset,
                "precision": begun_in(run.folder, self.place.precision),
            },
            device=device_name(policy),
            seconds=scores.seconds,
            quick=self.options.quick,
        )

    def measure(self, look: Look, run: Run | None, demos: Demonstrations) -> Record:
        """What a measure finds."""
        begun, job, wanted = time.monotonic(), self.job, look.measure
        policy = None if run is None else run.policy(str(choose_device(self.place.device)))
        chosen = [] if policy is None else matching(policy, wanted.select)
        clean = demos
        if job.variant is not None:
            clean = Material(self.options).real(job.task, DataChanges(fraction=job.variant.data.fraction))
        progress = self.counted(wanted.kind)
        subject = Subject(job.task, wanted.settings, demos, clean, run, policy, chosen, self.options.quick, progress)
        measured = MEASURES[wanted.kind](subject)
        return Record(
            kind=wanted.kind,
            settings={**measured.settings, "method": self.settings()},
            members=[] if policy is None else [dict(policy.members[m]) for m in chosen],
            data=describe_data(demos),
            results={**look.content.about, "task": job.task, **measured.results},
            device=measured.device or ("cpu" if policy is None else device_name(policy)),
            seconds=time.monotonic() - begun,
            quick=self.options.quick,
        )

    def failure(self, wanted: Play | Look, demos: Demonstrations | None, why: str) -> Record:
        """A Record of what could not be done, with the content of what would have been."""
        where = wanted.select if isinstance(wanted, Play) else wanted.measure.select
        settings = self.settings() if isinstance(wanted, Play) else {"method": self.settings()}
        return Record(
            kind="failure",
            settings=settings,
            members=[{"seed": seed, **where} for seed in self.job.seeds],
            data=wanted.content.data if demos is None else describe_data(demos),
            results={"what": wanted.content.kind, "reason": why, "task": self.job.task, **wanted.content.about},
            device=self.place.device,
            seconds=0.0,
            quick=self.options.quick,
        )

    def settings(self) -> Any:
        """The method's, if there is one."""
        return None if self.job.method is None else to_dict(self.job.method)


def begun_in(folder: Path, asked: Precision) -> Precision:
    """The precision that a training was begun with: it goes on so. The one asked for where there is none yet."""
    if not (folder / "run.json").exists():
        return asked
    return Run(folder).identity().get("precision", "float32")


def forbid(fault: Exception) -> None:
    """A full disk is nobody's failed run."""
    if isinstance(fault, OSError) and not isinstance(fault, ImportError):
        raise fault


def reason(fault: Exception) -> str:
    """One line."""
    lines = str(fault).strip().splitlines() or [""]
    known = type(fault).__module__.startswith("diffclone")
    return lines[0] if known and lines[0] else f"{type(fault).__name__}: {lines[0]}"


def matching(policy: Policy, where: Mapping[str, float]) -> list[int]:
    """Members with these values."""
    return [m for m, member in enumerate(policy.members) if all(member.get(k) == v for k, v in where.items())]
