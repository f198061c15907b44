"""The specification of an experiment: what to train, evaluate and measure. It holds no number of the paper."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

SettingsSource = Literal["ours", "paper", "release", "small"]
"""Our presets (`best` where a task has one, otherwise `brief`), the paper's settings, the released code's, or ours with
small networks and few updates."""


@final
@dataclass(frozen=True)
class DataChanges:
    """Changes to a task's demonstrations before training."""

    fraction: float = 1.0
    """The fraction of episodes to keep."""
    action_noise: float = 0.0
    """The standard deviation of Gaussian noise added to the expert's actions."""
    generated: float = 0.0
    """Pairs to generate with a diffusion model and add, for each real pair."""


@final
@dataclass(frozen=True)
class Variant:
    """One training, with the settings of a preset: policies that differ in their seed and in the fields of `vary`."""

    task: str
    """The name of the task."""
    method: str
    """The name of the method."""
    guide: str | None = None
    """The guide, if it is not the diffusion model."""
    preset: str | None = None
    """Which of our presets to use instead of `best` or `brief`."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the method that differ from the preset; those of its parts have a dot: "guide.t_low"."""
    vary: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Fields in which the members differ, with their values."""
    data: DataChanges = DataChanges()
    """Changes to the demonstrations."""


@final
@dataclass(frozen=True)
class TableCell:
    """One score in a table: members of a variant, evaluated with some environment options."""

    row: str
    """The label of the row."""
    column: str
    """The label of the column."""
    variant: Variant
    """The training whose policies are evaluated."""
    select: Mapping[str, float] = field(default_factory=dict[str, float])
    """The value of each varied field that chooses the members."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the task's environment."""
    paper_key: str | None = None
    """The key of the paper's number in paper.toml, e.g. "main-table.maze.bc"."""


@final
@dataclass(frozen=True)
class Measurement:
    """A measurement that is not a score."""

    kind: str
    """The name of a function in `measure.MEASURES`."""
    label: str
    """Distinguishes measurements of one kind within an experiment."""
    variant: Variant | None = None
    """The trained policies to measure, if any."""
    select: Mapping[str, float] = field(default_factory=dict[str, float])
    """The value of each varied field that chooses the members."""
    task: str | None = None
    """The task, if no variant is given."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the measurement."""
    paper_key: str | None = None
    """The key of the paper's number in paper.toml."""

    @property
    def task_name(self) -> str:
        """The task of the variant or of the measurement itself."""
        return self.variant.task if self.variant else str(self.task)


@final
@dataclass(frozen=True)
class DerivedCell:
    """A number computed from two other cells, each given by its row and column."""

    row: str
    """The label of the row."""
    column: str
    """The label of the column."""
    operation: Literal["drop", "difference", "times"]
    """`drop`: percent lost from the first to the second; `difference`: second − first; `times`: first / second."""
    first: tuple[str, str]
    """Row and column of the first cell."""
    second: tuple[str, str]
    """Row and column of the second cell."""
    paper_key: str | None = None
    """The key of the paper's number in paper.toml; without it, the number is computed from the two printed ones."""


@final
@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    name: str
    """What `diffclone reproduce` calls it, e.g. "main-table"."""
    title: str
    """The heading of its table."""
    about: str
    """The question it answers, in one or two sentences."""
    cells: tuple[TableCell, ...] = ()
    """Scores of trained policies."""
    measurements: tuple[Measurement, ...] = ()
    """Numbers that are not scores."""
    derived: tuple[DerivedCell, ...] = ()
    """Numbers that are computed from scores."""
    choices: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the paper leaves something open, or we differ from it: what we chose, by topic."""


QUICK_SEEDS, QUICK_EPISODES = 2, 2


@final
@dataclass(frozen=True)
class RunOptions:
    """How to run experiments."""

    source: SettingsSource = "ours"
    """Whose settings to train with."""
    seeds: int = 5
    """Seeds of each training: 0, 1, …"""
    episodes: int | None = None
    """Episodes per member; by default as many as in the paper."""
    quick: bool = False
    """Shorten everything, to check that it works. Such results are never compared."""
    only: tuple[str, ...] = ()
    """The tasks and methods to run; all if empty."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of demonstrations by task, instead of the bundled ones."""

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds of each training."""
        return tuple(range(min(self.seeds, QUICK_SEEDS) if self.quick else self.seeds))

    def episodes_for(self, task: str) -> int:
        """Return the number of episodes per member."""
        if self.quick:
            return min(self.episodes or QUICK_EPISODES, QUICK_EPISODES)
        return self.episodes or {"cheetah": 30, "walker": 30}.get(task, 100)
