"""The command `reproduce`: run experiments of the paper and print the results beside its numbers."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.cli.arguments import guide_cache
from diffclone.cli.claims import CLAIMS, claims_stages, claims_study, print_claims
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.cli.jobs import announce_jobs
from diffclone.cli.study import describe_stage, run_studies, select_studies, study_options
from diffclone.cli.study import print_plan as print_study_plan
from diffclone.errors import InvalidSettings
from diffclone.experiments import EXPERIMENTS, Experiment
from diffclone.experiments.claims_table import decide_claims
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.execute import Workspace
from diffclone.experiments.executors.choose import LOCAL, check_on, check_workers, open_executor, parse_needs
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.plan import Job, estimate_costs, filter_experiment, group_jobs, plan
from diffclone.experiments.results import ResultTable
from diffclone.experiments.run_jobs import run_jobs
from diffclone.experiments.shards import Shard, parse_shard
from diffclone.experiments.specification import RunOptions, SettingsSource
from diffclone.experiments.study.plan import STUDIES, Stage, StudyOptions, plan_study
from diffclone.fit import choose_device
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, format_count, format_estimate, format_printed, format_status
from diffclone.tasks import TASKS
from diffclone.training import Precision
from diffclone.training.time_left import about

UNITS = {"success": " (%)", "return": " (return)"}
"""What is written after the name of a task."""


@dataclass(frozen=True)
class Reproduce:
    """Run experiments of the paper and print the results beside its numbers. Run the same command to resume."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME")]
    """Experiments: main-table, multimodality, generalization, inference, manifold, noise-injection, guides,
    coefficient, expert-term, loss-curves, dataset-size, augmentation, pixels, gradient-field, known-errors; or all.
    Studies: tuning, training-length, controls. Or claims: what the claims of the paper need, and their verdicts."""
    plan: bool = False
    """Print what would run and how long it would take, and run nothing."""
    only: str = ""
    """Tasks and methods to run, e.g. maze,bc; by default all. Studies take settings, e.g. maze-25,bc."""
    seeds: int | None = None
    """Members of each training; by default 5, 10 for claims, 16 fresh seeds in a study (10 for cheetah and walker)."""
    episodes: int | None = None
    """Episodes per member; by default 100, or 30 for cheetah and walker."""
    quick: bool = False
    """Two seeds, two episodes and very little training, to check that everything works. Never compared."""
    small: bool = False
    """For a machine without a GPU: networks of width 256 and 4,000 updates; in tuning 8 tries and 8 fresh seeds."""
    source: SettingsSource = "ours"
    """Settings to use: ours (best if a task has it, else brief), the paper's, the released code's, or small."""
    data: tuple[str, ...] = ()
    """Demonstrations instead of the bundled ones, as TASK=FILE."""
    out: Path = Path("reproduction")
    """Folder of Records and runs."""
    device: str = "auto"
    """Device for training and evaluation: cpu, cuda, cuda:1, mps, or auto for a GPU if there is one."""
    precision: Precision = "float32"
    """Precision of matrix products in training; tf32 and bfloat16 are faster on a GPU for wide networks."""
    workers: int = 1
    """Processes that run jobs in parallel; each gets an equal share of the CPU cores."""
    on: str = LOCAL
    """Where jobs run: local (--workers), ray (the cluster of RAY_ADDRESS, else one on this machine), ray://HOST:10001."""
    needs: str = ""
    """What a job occupies on a Ray cluster, e.g. cpus=2,gpus=0.5,memory=4GB; by default one core and, with
    --device cuda, a quarter of a GPU."""
    shard: str = ""
    """Run only part K of N, given as K/N, into OUT/shard-K-of-N; `diffclone merge` joins the Records of all parts."""
    cache: bool = True
    """Store trained guides for other runs, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Run the command."""
        options, shard = self.run_options(), parse_shard(self.shard)
        stages, studies = self.list_stages(options), self.list_studies()
        check_on(self.on)
        # A plan is for another machine, and so are jobs on Ray.
        elsewhere = (self.plan or self.on != LOCAL) and self.device.partition(":")[0] in ("cpu", "cuda", "mps")
        device = self.device if elsewhere else str(choose_device(self.device))
        out = self.out / shard.folder if self.shard else self.out
        workspace = Workspace(out, device, guide_cache() if self.cache else None, self.precision)
        workspace.check()
        check_workers(self.workers)
        needs = parse_needs(self.needs, device)
        alone = CLAIMS not in self.names
        if studies and (alone or not self.plan):
            if self.shard:
                studies = replace(studies, settings=tuple(shard.take(studies.settings)))
            run_studies(
                studies,
                workspace,
                self.workers,
                plan=self.plan,
                json=self.json,
                show_results=alone,
                on=self.on,
                needs=needs,
            )
        if not stages:
            return
        if self.plan:
            records = workspace.read_records()
            jobs = [job for stage, own in stages for job in shard.select(plan(stage, own, records), stage, own)]
            self.print_plan(jobs, workspace, plan_study(studies, records) if studies and not alone else ())
            return
        for experiments, own in stages:
            self.run_missing(experiments, own, workspace, shard)
        if self.shard:
            files = f"{self.out}/shard-*-of-{shard.count}/records.jsonl"
            print_message(
                f"Done. Join the Records of all shards: diffclone merge {files} --out {self.out}/records.jsonl"
            )
            return
        if CLAIMS in self.names:
            print_claims(decide_claims(workspace.read_records(), files=options.files), json=self.json)
            return
        experiments = [filter_experiment(experiment, options.only) for experiment in self.find_experiments()]
        tables = compare_experiments(experiments, workspace.read_records(), options.source, options.files)
        if self.json:
            print_json([asdict(table) for table in tables])
        else:
            for table in tables:
                print_results(table)

    @property
    def settings_source(self) -> SettingsSource:
        """Whose settings to use."""
        if self.small and self.source not in ("ours", "small"):
            raise InvalidSettings(f"--small and --source {self.source} exclude each other; leave one of them out.")
        return "small" if self.small else self.source

    def list_stages(self, options: RunOptions) -> list[tuple[list[Experiment], RunOptions]]:
        """Return the experiments to run, each list with its options."""
        if CLAIMS in self.names:
            if len(self.names) > 1:
                raise InvalidSettings(f"{CLAIMS} is run alone; it was given with {len(self.names) - 1} other names.")
            return claims_stages(options, self.seeds)
        experiments = self.find_experiments()
        return [(experiments, options)] if experiments else []

    def list_studies(self) -> StudyOptions | None:
        """Return the studies to run."""
        files, small = parse_files(self.data), self.settings_source == "small"
        if CLAIMS in self.names:
            return claims_study(self.only, self.seeds, files, quick=self.quick, small=small)
        studies = select_studies(self.names)
        if small and (without := [study for study in studies if study != "tuning"]):
            raise InvalidSettings(f"{' and '.join(without)} cannot be run with --small; run without it.")
        if not studies:
            return None
        return study_options(studies, self.only, self.seeds, files, quick=self.quick, small=small)

    def run_missing(
        self, experiments: list[Experiment], options: RunOptions, workspace: Workspace, shard: Shard
    ) -> None:
        """Run what the Records do not have yet."""

        def find_missing() -> list[Job]:
            return shard.select(plan(experiments, options, workspace.read_records()), experiments, options)

        jobs = find_missing()
        if not jobs:
            print_message(f"Everything is done already: all results are in {workspace.records_file}.")
            return
        with (
            open_executor(self.on, self.workers if len(group_jobs(jobs)) > 1 else 1) as executor,
            bars() as show,
            between_updates() as stop,
        ):

            def save(record: Record) -> None:
                record.append_to(workspace.records_file)

            callbacks = Callbacks(save, show.training, show.update, stop, announce_jobs())
            run_jobs(jobs, options, workspace, callbacks, executor, parse_needs(self.needs, workspace.device))
        if count := sum(len(job.evaluations) + len(job.measurements) for job in find_missing()):
            print_message(f"{count} results failed (the table shows why). Run the same command to try them again.")

    def find_experiments(self) -> list[Experiment]:
        """Return the experiments by name."""
        names = [name for name in self.names if name not in STUDIES]
        if not self.names:
            raise InvalidSettings(f"name the experiments to run: all, or some of {', '.join(EXPERIMENTS)}.")
        return [EXPERIMENTS[name] for name in (EXPERIMENTS if "all" in self.names else dict.fromkeys(names))]

    def run_options(self) -> RunOptions:
        """Return the options of the flags."""
        only = tuple(word for word in self.only.split(",") if word)
        return RunOptions(
            self.settings_source,
            5 if self.seeds is None else self.seeds,
            self.episodes,
            self.quick,
            only,
            parse_files(self.data),
        )

    def print_plan(self, jobs: list[Job], workspace: Workspace, study: Sequence[Stage] = ()) -> None:
        """Print what would run: jobs, and stages of a study."""
        records = workspace.read_records()
        estimates = estimate_costs(jobs, records, workspace.device)
        rows = [
            {**describe_job(job), "seconds": round(estimate.seconds), "measured": estimate.measured}
            for job, estimate in zip(jobs, estimates, strict=True)
        ]
        if self.json:
            print_json([*rows, *(describe_stage(stage, records) for stage in study)])
            return
        if study:
            print_study_plan(study, records, json=False)
        total, trained = about(sum(e.seconds for e in estimates)), sum(job.method is not None for job in jobs)
        title = f"On {workspace.device}: {trained} trainings, about {total} one after another"
        shown = [plan_row(job, e.seconds) for job, e in zip(jobs, estimates, strict=True)]
        print_table(title, ["training", "members", "updates", "episodes", "time"], shown)
        measured = sum(e.measured for job, e in zip(jobs, estimates, strict=True) if job.method is not None)
        if trained:
            known = f"{measured} of {trained} times follow from" if measured else "No time follows from"
            print_message(f"{known} Records in {workspace.records_file}; the others are typical ones.")


def plan_row(job: Job, seconds: float) -> list[str]:
    """Return a row of the table of a plan: the name without its hash, and numbers."""
    name = re.sub("-[0-9a-f]{8}$", "", job.name)
    measures = ", ".join(dict.fromkeys(item.measurement.kind for item in job.measurements))
    updates = [f"{'' if name == 'policy' else f'{name} '}{count / 1000:g}k" for name, count in job.updates.items()]
    episodes = sum(run.episodes for run in job.evaluations) * len(job.seeds)
    return [
        f"{name}: {measures}" if measures and not job.evaluations else name,
        str(job.members or MISSING),
        ", ".join(updates) or MISSING,
        f"{episodes:,}" if episodes else MISSING,
        about(seconds),
    ]


def parse_files(entries: Sequence[str]) -> dict[str, str]:
    """Return files of demonstrations by task, given as TASK=FILE."""
    files: dict[str, str] = {}
    for entry in entries:
        task, _, file = entry.partition("=")
        if not file:
            raise InvalidSettings(f"--data takes TASK=FILE; it was given {entry!r}.")
        files[TASKS[task].name] = file
    return files


def describe_job(job: Job) -> dict[str, Any]:
    """Return a short description of a job."""
    updates = " + ".join(f"{name} {count / 1000:g}k" for name, count in job.updates.items())
    runs = job.evaluations
    return {
        "name": job.name,
        "members": job.members,
        "updates": updates or MISSING,
        "episodes": f"{len(runs)} × {runs[0].episodes} × {len(job.seeds)}" if runs else MISSING,
        "measures": ", ".join(dict.fromkeys(item.measurement.kind for item in job.measurements)) or MISSING,
    }


def print_results(table: ResultTable) -> None:
    """Print the tables of an experiment, one for each of its rows. What all cells share is said once."""
    mark = " (quick: says nothing about the methods)" if table.quick else ""
    states = {id(cell): format_status(cell) + (f": {cell.reason}" if cell.reason else "") for cell in table.cells}
    common = len({*states.values()}) == 1
    columns = ["", "ours (95 %)", "seeds × episodes", "the paper", *([] if common else ["levels"])]
    for name in dict.fromkeys(cell.row for cell in table.cells):
        rows = [
            [
                cell.column + UNITS.get(cell.unit, ""),
                format_estimate(cell.ours, cell.unit),
                MISSING if cell.ours is None else format_count(cell.ours),
                format_printed(cell.printed, cell.unit),
                *([] if common else [states[id(cell)]]),
            ]
            for cell in table.cells
            if cell.row == name
        ]
        print_table(f"{table.title}{mark}: {name}", columns, rows)
    if common:
        print_message(f"{table.title}, levels: {next(iter(states.values()))}.")
    if table.measured:
        measured = ", ".join(f"{kind} ({len(records)})" for kind, records in table.measured.items())
        print_message(f"{table.title}: measured {measured}.")
