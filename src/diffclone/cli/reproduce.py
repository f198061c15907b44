"""The command `reproduce`: run experiments of the paper and print the results beside its numbers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.cli.arguments import guide_cache
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.cli.study import run_studies, select_studies, study_options
from diffclone.errors import InvalidSettings
from diffclone.experiments import EXPERIMENTS, Experiment
from diffclone.experiments.compare import compare_experiments
from diffclone.experiments.execute import Workspace, run_jobs
from diffclone.experiments.plan import Job, estimate_costs, filter_experiment, plan
from diffclone.experiments.results import ResultTable
from diffclone.experiments.specification import RunOptions, SettingsSource
from diffclone.experiments.study.plan import STUDIES
from diffclone.experiments.workers import Callbacks
from diffclone.fit import choose_device
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, format_count, format_estimate, format_printed, format_status
from diffclone.tasks import TASKS
from diffclone.training import Precision


@dataclass(frozen=True)
class Reproduce:
    """Run experiments of the paper and print the results beside its numbers. Run the same command to resume."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME")]
    """Experiments: main-table, multimodality, generalization, inference, manifold, noise-injection, guides,
    coefficient, expert-term, loss-curves, dataset-size, augmentation, pixels, gradient-field; or all. Studies: tuning,
    training-length, controls."""
    plan: bool = False
    """Print what would run and how long it would take, and run nothing."""
    only: str = ""
    """Tasks and methods to run, e.g. maze,bc; by default all. Studies take settings, e.g. maze-25,bc."""
    seeds: int | None = None
    """Members of each training; by default 5, and 16 fresh seeds in a study (10 for cheetah and walker)."""
    episodes: int | None = None
    """Episodes per member; by default 100, or 30 for cheetah and walker."""
    quick: bool = False
    """Two seeds, two episodes and very little training, to check that everything works. Never compared."""
    source: SettingsSource = "ours"
    """Settings to use: ours (best if a task has it, else brief), the paper's, or the released code's."""
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
    cache: bool = True
    """Store trained guides for other runs, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Run the command."""
        studies = select_studies(self.names)
        experiments = self.find_experiments() if len(studies) < len(set(self.names)) or not studies else []
        options = self.run_options()
        elsewhere = self.plan and self.device.partition(":")[0] in ("cpu", "cuda", "mps")  # a plan for another machine
        device = self.device if elsewhere else str(choose_device(self.device))
        workspace = Workspace(self.out, device, guide_cache() if self.cache else None, self.precision)
        workspace.check()
        if self.workers < 1:
            raise InvalidSettings(f"at least one worker is needed; {self.workers} were requested.")
        if studies:
            chosen = study_options(studies, self.only, self.seeds, parse_files(self.data), quick=self.quick)
            run_studies(chosen, workspace, self.workers, plan=self.plan, json=self.json)
        if not experiments:
            return
        jobs = plan(experiments, options, workspace.read_records())
        if self.plan:
            self.print_plan(jobs, workspace)
            return
        if jobs:
            with bars() as show, between_updates() as stop:

                def save(record: Record) -> None:
                    record.append_to(workspace.records_file)

                run_jobs(jobs, options, workspace, Callbacks(save, show.training, show.update, stop), self.workers)
            missing = plan(experiments, options, workspace.read_records())
            if count := sum(len(job.evaluations) + len(job.measurements) for job in missing):
                print_message(f"{count} results failed (the table shows why). Run the same command to try them again.")
        else:
            print_message(f"Everything is done already: all results are in {workspace.records_file}.")
        filtered = [filter_experiment(experiment, options.only) for experiment in experiments]
        tables = compare_experiments(filtered, workspace.read_records(), self.source, options.files)
        if self.json:
            print_json([asdict(table) for table in tables])
        else:
            for table in tables:
                print_results(table)

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
            self.source,
            5 if self.seeds is None else self.seeds,
            self.episodes,
            self.quick,
            only,
            parse_files(self.data),
        )

    def print_plan(self, jobs: list[Job], workspace: Workspace) -> None:
        """Print what would run."""
        estimates = estimate_costs(jobs, workspace.read_records(), workspace.device)
        rows = [
            {**describe_job(job), "seconds": round(estimate.seconds), "measured": estimate.measured}
            for job, estimate in zip(jobs, estimates, strict=True)
        ]
        if self.json:
            print_json(rows)
            return
        columns = ["training", "members", "updates", "episodes", "measurements", "seconds", "rates from Records"]
        minutes, trained = sum(e.seconds for e in estimates) / 60, sum(job.method is not None for job in jobs)
        title = f"On {workspace.device}: {trained} trainings, about {minutes:,.0f} minutes one after another"
        print_table(title, columns, [[str(value) for value in row.values()] for row in rows])


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
    """Print the table of an experiment."""
    rows = [
        [
            cell.row,
            cell.column,
            cell.unit,
            format_estimate(cell.ours, cell.unit),
            MISSING if cell.ours is None else format_count(cell.ours),
            format_printed(cell.printed, cell.unit),
            format_status(cell) + (f": {cell.reason}" if cell.reason else ""),
        ]
        for cell in table.cells
    ]
    if rows:
        columns = ["", "", "unit", "ours (95 %)", "seeds × episodes", "the paper", "levels"]
        mark = " (quick: says nothing about the methods)" if table.quick else ""
        print_table(f"{table.title}{mark}", columns, rows)
    if table.measured:
        measured = ", ".join(f"{kind} ({len(records)})" for kind, records in table.measured.items())
        print_message(f"{table.title}: measured {measured}.")
