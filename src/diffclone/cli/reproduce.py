"""The command that runs experiments of the paper and shows them beside the printed numbers."""

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from diffclone.cli.arguments import guide_cache
from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.errors import InvalidSettings
from diffclone.experiments import EXPERIMENTS, Experiment
from diffclone.experiments.choices import Options
from diffclone.experiments.compare import sheets
from diffclone.experiments.cost import costs
from diffclone.experiments.execute import Place
from diffclone.experiments.plan import Job, narrowed, plan
from diffclone.experiments.pool import run_all
from diffclone.experiments.results import ComparedCell, ResultTable
from diffclone.experiments.specification import SettingsSource
from diffclone.fit import choose_device
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training import Precision

DIGITS = {"success": 1, "return": 1, "ratio": 3, "mse": 4, "episodes/s": 2, "ms": 3, "drop": 1, "times": 1}


@dataclass(frozen=True)
class Reproduce:
    """Run experiments of the paper, and show them beside its printed numbers. The same command again goes on."""

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="NAME")]
    """Of experiments: main-table, multimodality, generalization, inference, manifold, noise-injection, guides,
    coefficient, expert-term, loss-curves, dataset-size, augmentation, pixels, gradient-field; or all."""
    plan: bool = False
    """Show what would run and what it would cost, and run nothing."""
    only: str = ""
    """Tasks and methods, e.g. maze,bc; by default all."""
    seeds: int = 5
    """Members of each training."""
    episodes: int | None = None
    """A member; by default 100, 30 for cheetah and walker, 20 for car-racing."""
    quick: bool = False
    """Two seeds, two episodes, hardly any training: shows that everything works. Marked, and never compared."""
    source: SettingsSource = "ours"
    """Whose settings: ours (best where a task has it, else brief), the paper's, or the released code's."""
    data: tuple[str, ...] = ()
    """Demonstrations that are not the bundled ones, as TASK=FILE."""
    out: Path = Path("reproduction")
    """Folder of Records and runs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train and to play; auto is a GPU where there is one."""
    precision: Precision = "float32"
    """Of matrix products in training; tf32 and bfloat16 are faster on a GPU where networks are wide."""
    workers: int = 1
    """Processes that work side by side."""
    cache: bool = True
    """Keep trained guides for other runs, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    json: bool = False
    """Print JSON instead of tables."""

    def run(self) -> None:
        """Do it."""
        experiments, options = self.experiments(), self.options()
        # A plan may be for a machine that is not this one.
        elsewhere = self.plan and self.device != "auto"
        device = self.device if elsewhere else str(choose_device(self.device))
        place = Place(self.out, device, guide_cache() if self.cache else None, self.precision)
        place.refuse_others()
        if self.workers < 1:
            raise InvalidSettings(f"at least one worker is needed; {self.workers} were asked for.")
        jobs = plan(experiments, options, place.read())
        if self.plan:
            self.show_plan(jobs, place.read(), device)
            return
        if jobs:
            self.work(jobs, options, place)
        else:
            print_message(f"Nothing is left to do: all of it is in {place.records}.")
        asked = [narrowed(experiment, options.only) for experiment in experiments]
        shown = sheets(asked, place.read(), self.source, options.files)
        if self.json:
            print_json([asdict(sheet) for sheet in shown])
            return
        for sheet in shown:
            show_sheet(sheet)

    def work(self, jobs: list[Job], options: Options, place: Place) -> None:
        """Train, play and measure."""
        with bars() as show:
            run_all(jobs, options, place, self.workers, between_updates, training=show.training, count=show.update)
        left = plan(self.experiments(), options, place.read())
        missing = sum(len(job.plays) + len(job.looks) for job in left)
        if missing:
            print_message(f"{missing} could not be done (the table says why); the same command tries them again.")

    def experiments(self) -> list[Experiment]:
        """By name."""
        if not self.names:
            raise InvalidSettings(f"say what to run: all, or some of {', '.join(EXPERIMENTS)}.")
        if "all" in self.names:
            return list(EXPERIMENTS.values())
        return [EXPERIMENTS[name] for name in dict.fromkeys(self.names)]

    def options(self) -> Options:
        """From the flags."""
        files: dict[str, str] = {}
        for entry in self.data:
            task, equals, file = entry.partition("=")
            if not equals or not file:
                raise InvalidSettings(f"--data takes TASK=FILE; it was given {entry!r}.")
            files[TASKS[task].name] = file
        only = tuple(word for word in self.only.split(",") if word)
        return Options(self.source, self.seeds, self.episodes, self.quick, only, files)

    def show_plan(self, jobs: list[Job], records: list[Record], device: str) -> None:
        """What would run."""
        priced = list(zip(jobs, costs(jobs, records, device), strict=True))
        if self.json:
            print_json([{**describe(job), "seconds": round(c.seconds), "measured": c.measured} for job, c in priced])
            return
        rows = [
            [*map(str, describe(job).values()), f"{c.seconds:,.0f}", "Records" if c.measured else "table"]
            for job, c in priced
        ]
        columns = ["training", "members", "updates", "episodes", "measures", "seconds", "rates of"]
        total = sum(c.seconds for _, c in priced)
        trained = sum(job.method is not None for job in jobs)
        title = f"To do on {device}: {trained} trainings, about {total / 60:,.0f} minutes one after the other"
        print_table(title, columns, rows)


def describe(job: Job) -> dict[str, Any]:
    """What is to be done, in few words."""
    updates = " + ".join(f"{name} {count / 1000:g}k" for name, count in job.stages.items())
    played = f"{len(job.plays)} × {job.plays[0].episodes} × {len(job.seeds)}" if job.plays else "–"
    measures = ", ".join(dict.fromkeys(look.measure.kind for look in job.looks)) or "–"
    members = job.members if job.method else 0
    return {"name": job.name, "members": members, "updates": updates or "–", "episodes": played, "measures": measures}


def show_sheet(sheet: ResultTable) -> None:
    """A table of an experiment."""
    mark = " (quick: says nothing about the methods)" if sheet.quick else ""
    rows = [
        [cell.row, cell.column, cell.unit, shown_ours(cell), counted(cell), shown_printed(cell), shown_verdict(cell)]
        for cell in sheet.cells
    ]
    if rows:
        columns = ["", "", "unit", "ours (95 %)", "seeds × episodes", "the paper", "verdict"]
        print_table(f"{sheet.title}{mark}", columns, rows)
    figures = {kind: len(records) for kind, records in sheet.measured.items()}
    if figures:
        print_message(f"{sheet.title}: measured {', '.join(f'{kind} ({count})' for kind, count in figures.items())}.")


def number(value: float, unit: str) -> str:
    """With the digits that its unit has."""
    return f"{value:.{DIGITS[unit]}f}"


def shown_ours(cell: ComparedCell) -> str:
    """Mean and interval."""
    if cell.ours is None:
        return "–"
    write = functools.partial(number, unit=cell.unit)
    if cell.ours.low == cell.ours.high:
        return write(cell.ours.mean)
    return f"{write(cell.ours.mean)} ({write(cell.ours.low)} … {write(cell.ours.high)})"


def counted(cell: ComparedCell) -> str:
    """What it is over."""
    if cell.ours is None:
        return "–"
    return f"{cell.ours.seeds} × {cell.ours.episodes}" if cell.ours.episodes else str(cell.ours.seeds)


def shown_printed(cell: ComparedCell) -> str:
    """Mean and standard deviation."""
    if cell.printed is None:
        return "–"
    spread = "" if cell.printed.sd is None else f" ± {number(cell.printed.sd, cell.unit)}"
    return f"{number(cell.printed.mean, cell.unit)}{spread}"


def shown_verdict(cell: ComparedCell) -> str:
    """In words."""
    by = "" if cell.by is None else f" by {cell.by:+.{DIGITS[cell.unit]}f}"
    why = f": {cell.reason}" if cell.reason else ""
    return f"{cell.verdict}{by if cell.verdict in ('better', 'short', 'agrees') else ''}{why}"
