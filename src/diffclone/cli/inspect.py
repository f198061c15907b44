"""The `inspect` command."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast, final

import numpy as np
import numpy.typing as npt
import tyro

from diffclone.cli.arguments import Data, ReadArguments, Reading, find_demonstrations
from diffclone.cli.console import print_json, print_message, print_table
from diffclone.data import Demonstrations
from diffclone.data.inspection import (
    SEVERITIES,
    EpisodeRanking,
    Finding,
    find_problems,
    get_action_bounds,
    rank_episodes,
    split_parts,
    summarise,
)
from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.files import refuse_existing, write_atomically

TABLE_DIMENSIONS, TABLE_EPISODES, PAGE_EPISODES = 24, 5, 100
"""Rows in the terminal and on the page. The page has all dimensions, and --json has everything."""
COST_STEPS = 64
"""Steps of an episode whose cost is computed."""
COST_DRAWS = 8
"""Random draws per step, whose costs are averaged."""

Costs = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Inspect:
    """Print what demonstrations contain, problems that would harm imitation, and unusual episodes."""

    data: Data
    read: Reading = ReadArguments()
    page: Path | None = None
    """Also write a page with figures (.html). An existing file is not overwritten."""
    run_folder: Annotated[Path | None, tyro.conf.arg(name="run", metavar="RUN")] = None
    """Folder of a run of dbc, to rank the episodes by the cost of its guide."""
    json: bool = False
    """Print everything as JSON instead of tables."""

    def run(self) -> None:
        """Inspect the demonstrations and print the result."""
        if self.page is not None:
            check_page(self.page)
        _, demos = find_demonstrations(self.data, options=self.read.options())
        costs = None if self.run_folder is None else guide_costs(self.run_folder, demos)
        # The tables show the numbers of images with numbers.
        shown = demos if demos.layout is None else split_parts(demos)[0]
        inspection = Inspection(self.data, shown, find_problems(demos), rank_episodes(shown), costs)
        if self.json:
            print_json(inspection.to_dict())
        else:
            inspection.print_tables()
        if self.page is not None:
            inspection.write_page(self.page)
            print_message(f"wrote {self.page}")


@final
@dataclass(frozen=True)
class Inspection:
    """Everything that was found in demonstrations."""

    name: str
    demos: Demonstrations
    findings: Sequence[Finding]
    ranking: EpisodeRanking
    costs: Costs | None
    """Mean cost of the guide in each episode, if a run is given."""

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The episodes, the most unusual first, by the cost of the guide if there is one."""
        return self.ranking.order if self.costs is None else np.argsort(-self.costs, kind="stable")

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        demos, ranking = self.demos, self.ranking
        columns = {"score": ranking.score, "summary": ranking.summary, "distance": ranking.distance}
        columns |= {} if self.costs is None else {"cost": self.costs}
        return {
            "understood": summarise(demos),
            "ranges": {
                name: {
                    "low": v.min(0).tolist(),
                    "high": v.max(0).tolist(),
                    "mean": v.mean(0, dtype=np.float64).tolist(),
                }
                for name, v in (("obs", demos.obs), ("act", demos.act))
            },
            "findings": [asdict(finding) for finding in self.findings],
            "episodes": [
                {"episode": int(e), "steps": int(demos.lengths[e])} | {name: float(v[e]) for name, v in columns.items()}
                for e in self.order
            ],
        }

    def print_tables(self) -> None:
        """Print the tables of the terminal."""
        contents = {"data": self.name} | describe_contents(self.demos)
        if contents.get("source") == Path(self.name).name:
            del contents["source"]
        print_table("Contents", ["", ""], [[key, value] for key, value in contents.items()])
        columns = ["dimension", "lowest", "mean", "highest", "sd", "bounds"]
        print_table("Ranges", columns, shorten(range_rows(self.demos)))
        if self.findings:
            print_table("Findings", ["", "what", "where", "what to do"], self.finding_rows())
        else:
            print_message("No check found a problem.")
        columns, rows = self.ranking_table()
        print_table("Most unusual episodes", columns, rows[:TABLE_EPISODES])
        counts = {severity: sum(f.severity == severity for f in self.findings) for severity in SEVERITIES}
        print_message(", ".join(f"{count} {severity}{'s' * (count != 1)}" for severity, count in counts.items()))

    def write_page(self, path: Path) -> None:
        """Write the page with figures."""
        from diffclone.cli.inspect_page import make_inspection_page

        columns, rows = self.ranking_table()
        page = make_inspection_page(
            self.name,
            self.demos,
            about=describe_contents(self.demos),
            findings=self.finding_rows(),
            ranges=range_rows(self.demos),
            ranking=(columns, rows[:PAGE_EPISODES]),
            order=self.order,
            scores=self.ranking.score if self.costs is None else self.costs,
        )
        write_atomically(path, page.encode())

    def finding_rows(self) -> list[list[str]]:
        """Return one row per finding."""
        return [[f.severity, f.what, f.where, f.advice] for f in self.findings]

    def ranking_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the columns, and one row per episode, the most unusual first."""
        columns = ["episode", "steps", "unusualness", "by its summary", "by its states"]
        columns += [] if self.costs is None else ["guide's cost"]
        rows: list[list[str]] = []
        for e in self.order:
            scores = (
                f"{self.ranking.score[e]:.1f}",
                f"{self.ranking.summary[e]:.2f}",
                f"{self.ranking.distance[e]:.3f}",
            )
            cost = [] if self.costs is None else [f"{self.costs[e]:.4g}"]
            rows.append([str(e), str(self.demos.lengths[e]), *scores, *cost])
        return columns, rows


def check_page(path: Path, flag: str = "--page") -> None:
    """Raise an error if the page cannot be written, before any data is read."""
    if path.suffix != ".html":
        raise InvalidSettings(f"the page is written as .html; {path} ends in {path.suffix or 'nothing'}.")
    refuse_existing(path)
    if find_spec("matplotlib") is None:
        raise MissingPackage(f"{flag} needs the package matplotlib. Try: {install_command('report')}.")


def guide_costs(folder: Path, demos: Demonstrations) -> Costs:
    """Return the mean cost of a run's guide in each episode, with the same random draws for all."""
    from diffclone.training.runs import Run
    from diffclone.training.windows import gather_all

    policy = Run(folder).policy()[0]
    if policy.guide is None:
        raise InvalidSettings(f"{folder} holds {type(policy.method).__name__}, which has no guide; use a run of dbc.")
    costs: list[float] = []
    for episode in demos.episodes():  # one after the other, because windows of all images may not fit into memory
        obs, act = gather_all(Demonstrations(*episode, np.array([len(episode[0])]), demos.meta), policy.chunks)
        steps = np.linspace(0, len(obs) - 1, min(COST_STEPS, len(obs))).round().astype(int)
        costs.append(float(policy.guide.cost(obs[steps], act[steps], draws=COST_DRAWS).mean()))
    return np.array(costs)


def describe_contents(demos: Demonstrations) -> dict[str, str]:
    """Return what the reader understood, as text."""
    known = summarise(demos)
    lengths = dict.fromkeys((known["shortest"], known["longest"]))  # one number if they are equal
    contents = {
        "episodes": f"{known['episodes']:,}, of {' … '.join(f'{length:,}' for length in lengths)} steps",
        "steps": f"{known['steps']:,}",
        "observations": count(known["observation_size"], "pixel" if known["images"] else "number"),
        "actions": f"{count(known['action_size'], 'number')}, bounds {'not ' * (known['action_bounds'] is None)}known",
        "source": known["source"],
        "reader": describe_reader(known["reader"]),
        "fingerprint": known["fingerprint"],
    }
    return {key: format_value(value) for key, value in contents.items() if value is not None}


def describe_reader(understood: Any) -> Any:
    """Return which arrays a reader of diffclone took from a file, in words; of another reader, what it noted."""
    if not isinstance(understood, dict) or "format" not in understood or "observations" not in understood:
        return cast(Any, understood)
    known = cast(dict[str, Any], understood)
    sizes = {name: " × ".join(map(str, shape)) or "1" for name, shape in known["observations"].items()}
    arrays = ", ".join(f"{name} ({size})" for name, size in sizes.items())
    left_out = f"; left out: {', '.join(known['left_out'])}" if known.get("left_out") else ""
    return f"{known['format']}, observations from {arrays}{left_out}"


def format_value(value: Any) -> str:
    """Return text as it is and other values as JSON, cut to 2,000 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 2000 else f"{text[:2000]} …"


def range_rows(demos: Demonstrations) -> list[list[str]]:
    """Return one row per dimension, and one for all pixels of images."""
    rows: list[list[str]] = []
    bounds = get_action_bounds(demos)
    for name, values in (("obs", demos.obs), ("act", demos.act)):
        if values.dtype == np.uint8:
            rows.append([name, str(values.min()), f"{values.mean():.4g}", str(values.max()), f"{values.std():.3g}", ""])
            continue
        mean, std = values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64)
        for k, (low, high) in enumerate(zip(values.min(0), values.max(0), strict=True)):
            allowed = f"{bounds[0][k]:.4g} … {bounds[1][k]:.4g}" if name == "act" and demos.action_bounds else ""
            rows.append([f"{name} {k}", f"{low:.4g}", f"{mean[k]:.4g}", f"{high:.4g}", f"{std[k]:.3g}", allowed])
    return rows


def shorten(rows: list[list[str]]) -> list[list[str]]:
    """Return the first and the last rows of a long table."""
    if len(rows) <= TABLE_DIMENSIONS:
        return rows
    half = TABLE_DIMENSIONS // 2
    return [*rows[:half], [f"… ({len(rows) - 2 * half})", *5 * [""]], *rows[-half:]]


def count(number: int, noun: str) -> str:
    """Return "1 number" or "3 numbers"."""
    return f"{number} {noun}{'s' * (number != 1)}"
