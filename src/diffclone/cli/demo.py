"""The `demo` command: FetchPick from 27 demonstrations."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import final

from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.interrupt import between_updates
from diffclone.cli.search import write_page
from diffclone.errors import DiffcloneError, InvalidFile, MissingPackage, install_command
from diffclone.evaluation import Scores, evaluate
from diffclone.experiments.task_settings import TASK_SETTINGS
from diffclone.files import write_atomically
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.reports.numbers import percent, percent_interval
from diffclone.reports.videos import MEDIA_TYPES, Video
from diffclone.settings import describe_method
from diffclone.statistics import mean_interval
from diffclone.tasks import TASKS
from diffclone.tasks.rendering import render_episode, write_frames
from diffclone.training import Progress
from diffclone.training.display import Bars
from diffclone.training.runs import Run, evaluation_record, record_evaluation
from diffclone.training.search import SEARCH, SEARCH_FILE, SearchOptions, SearchResult, search_in_folder
from diffclone.training.search_plan import DEFAULT_GRIDS, GRIDS, Grid
from diffclone.training.selection import same_settings

SETTING = "fetch-pick-27"
NEEDED, FOR_VIDEOS = ("gymnasium_robotics", "jinja2", "matplotlib", "mujoco"), "imageio"
"""Packages of the task and of the page, and the one that writes videos, which the page may lack."""
GRID = replace(GRIDS[DEFAULT_GRIDS - 1], seeds=3, coefficient=(3.0,), guide_updates=6_000)
"""What `train` tries by default, with another seed, and DBC, which is shown and not chosen."""
QUICK_GRID = Grid(2, (16, 32), coefficient=(3.0,), guide_updates=32, flow=(32,))
COLUMNS = ("method", "updates", "success", "95 %", "seeds × episodes", "")


@final
@dataclass(frozen=True)
class Point:
    """One method at one snapshot of its training, evaluated."""

    method: str
    updates: int
    success: float
    low: float
    high: float
    episodes: str
    chosen: bool

    @property
    def row(self) -> list[str]:
        """The row of the table."""
        mark = "chosen without the environment" if self.chosen else ""
        interval = percent_interval((self.low, self.high))
        return [self.method, f"{self.updates:,}", percent(self.success), interval, self.episodes, mark]


@dataclass(frozen=True)
class Demo:
    """Learn to pick up a block from 27 demonstrations: methods along training, what a search chooses, and a page."""

    out: Path = Path("demo")
    """Folder of the page and the runs."""
    episodes: int = 30
    """Episodes per member and snapshot."""
    quick: bool = False
    """Train for a few seconds only, to check that everything works. The scores then say nothing about the methods."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Search, evaluate every snapshot in the environment, write the page and print the table."""
        if self.out.exists() and any(self.out.iterdir()) and not (self.out / SEARCH_FILE).exists():
            raise InvalidFile(f"{self.out} is not empty and holds no demo. Nothing was changed; choose another --out.")
        check_packages()
        setting = TASK_SETTINGS[SETTING]
        demos = setting.load_demonstrations()
        options = SearchOptions(
            device="cpu",
            task=setting.task,
            grid=self.grid,
            keep=True,
            quick=self.quick,
        )
        with bars() as show, between_updates() as stop:

            def progress(stage: str, now: Progress) -> None:
                show.training(stage, now)
                stop()

            result = search_in_folder(self.out, demos, options, progress, print_message)
            points = self.evaluate_snapshots(result, show)
            final = self.run_episodes(result.policy, show, "final policy")
            record = record_evaluation(Run(self.out), result.policy, final)
        write_page(self.out)
        rows = [point.row for point in points]
        final_row = [percent(final.success_rate), percent_interval(final.success_interval)]
        shape = f"{final.success.shape[0]} × {final.success.shape[1]}"
        rows.append(["the choice, trained on all demonstrations", "", *final_row, shape, ""])
        caption = (
            "Success on FetchPick from 27 demonstrations" + " (quick: says nothing about the methods)" * self.quick
        )
        self.write_demo_page(caption, rows, points, record)
        if self.json:
            choice = None if result.choice is None else result.choice.to_dict()
            about = {"final": final.summary(), "choice": choice, "quick": self.quick}
            print_json({"points": [asdict(point) for point in points], **about})
        else:
            print_table(caption, COLUMNS, rows)
            print_message(f"The page is {self.out / 'index.html'}")

    @property
    def grid(self) -> Grid:
        """What is tried."""
        return QUICK_GRID if self.quick else GRID

    def run_episodes(self, policy: Policy, show: Bars, name: str) -> Scores:
        """Run episodes from the evaluation starts."""
        setting = TASK_SETTINGS[SETTING]
        return evaluate(
            policy,
            setting.task,
            episodes=min(self.episodes, 2) if self.quick else self.episodes,
            progress=lambda done, total: show.update(f"{name}: episodes", done, total),
            **setting.make_task_options(),
        )

    def evaluate_snapshots(self, result: SearchResult, show: Bars) -> list[Point]:
        """Run episodes with all snapshots of the search. The choice does not use them."""
        points: list[Point] = []
        for run in sorted((self.out / SEARCH).iterdir()):
            for updates, policy in Run(run).snapshots().items():
                scores = self.run_episodes(policy, show, f"{describe_method(run.name)} {updates:,}")
                quick = evaluation_record(policy, scores, quick=self.quick, results={"snapshot": updates})
                quick.append_to(run / "records.jsonl")
                points += [
                    self.make_point(run.name, updates, policy, scores, rows, result)
                    for rows in same_settings([dict(member) for member in policy.members])
                ]
        return points

    @staticmethod
    def make_point(
        method: str, updates: int, policy: Policy, scores: Scores, rows: Sequence[int], result: SearchResult
    ) -> Point:
        """Return the success of some members, which differ in their seeds only."""
        success = scores.success[list(rows)]
        fields = {name: value for name, value in policy.members[rows[0]].items() if name != "seed"}
        choice = result.choice
        chosen = choice is not None and (choice.method, choice.updates) == (method, updates) and choice.fields == fields
        low, high = mean_interval(success)
        shape = f"{success.shape[0]} × {success.shape[1]}"
        return Point(describe_method(method), updates, float(success.mean()), low, high, shape, chosen)

    def write_demo_page(
        self,
        caption: str,
        rows: Sequence[Sequence[str]],
        points: Sequence[Point],
        record: Record,
    ) -> None:
        """Write the page with the table, success along training, and a video of each method."""
        from diffclone.reports.demo import DemoPage, demo_page, draw_success

        page = DemoPage(
            caption=caption,
            columns=COLUMNS,
            rows=rows,
            points=[asdict(point) for point in points],
            final=float(record.results["success_rate"]),
            videos=self.make_videos(),
            records=[record],
        )
        write_atomically(self.out / "index.html", demo_page(page).encode())
        picture = draw_success(page.points, page.final).figure
        picture.savefig(self.out / "success.png", dpi=110, bbox_inches="tight", facecolor="white")

    def make_videos(self) -> list[Video]:
        """Return an episode of the longest training of each method; none if this machine cannot render."""
        task, found = TASKS[TASK_SETTINGS[SETTING].task], list[Video]()
        for run in sorted((self.out / SEARCH).iterdir()):
            path = self.out / f"{run.name}.gif"
            try:
                if not path.exists():
                    write_frames(path, render_episode(task, Run(run).policy()[0].session()).frames[::2])
            except (DiffcloneError, ImportError, RuntimeError, OSError, AttributeError) as error:
                print_message(f"no video: {str(error).splitlines()[0] or type(error).__name__}")
                break
            longest = max(self.grid.lengths(run.name))
            text = f"{describe_method(run.name)} after {longest:,} updates, the first evaluation start"
            found.append(Video("FetchPick", text, MEDIA_TYPES["gif"], path.read_bytes()))
        return found


def check_packages() -> None:
    """Refuse to train if a package is missing that is needed afterwards, and say now if there will be no videos."""
    missing = [name.replace("_", "-") for name in NEEDED if find_spec(name) is None]
    if missing:
        noun = "packages" if len(missing) > 1 else "package"
        raise MissingPackage(f"the demo needs the {noun} {', '.join(missing)}. Try: {install_command('demo')}.")
    if find_spec(FOR_VIDEOS) is None:
        print_message(f"The page will have no videos, which need {FOR_VIDEOS}. For them: {install_command('demo')}.")
