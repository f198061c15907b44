"""What an experiment of the paper is: a frozen value that says what to train, what to play and what to measure.

A spec has no number of the paper, and runs nothing. `plan.py` finds what of it is still to do, `execute.py` does it,
`compare.py` lays what came out beside what is printed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, final

Source = Literal["ours", "paper", "release"]
"""Whose settings: our presets (`best` where a task has one, else `brief`), what the paper prints, or what the released
code has."""


@final
@dataclass(frozen=True)
class Data:
    """What is done to a task's demonstrations before anything learns from them."""

    fraction: float = 1.0
    """The share of episodes that is kept."""
    action_noise: float = 0.0
    """Standard deviation of what is added to the expert's actions."""
    generated: float = 0.0
    """Pairs drawn from a diffusion model of the demonstrations and added to them, for each real one."""


@final
@dataclass(frozen=True)
class Arm:
    """Policies that differ in their seed, and in fields that may vary within a stack: one training."""

    task: str
    method: str
    guide: str | None = None
    """Another guide than the diffusion model."""
    preset: str | None = None
    """The preset of ours to take, where it is neither `best` nor `brief` by the rule."""
    change: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields of the method that differ from the preset's."""
    vary: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Fields in which the members differ."""
    data: Data = Data()


@final
@dataclass(frozen=True)
class Cell:
    """One number of a table: some members of an arm, played in some way."""

    row: str
    column: str
    arm: Arm
    where: Mapping[str, float] = field(default_factory=dict[str, float])
    """Which members, where the arm varies in something."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the task's environment."""
    printed: str | None = None
    """Where the paper's number is in paper.toml, e.g. "main-table.maze.bc"."""


@final
@dataclass(frozen=True)
class Measure:
    """Something else than episodes played: its kind names a function of `measures.py`."""

    kind: str
    label: str
    """Which one of its kind it is in this experiment."""
    arm: Arm | None = None
    """The trained policies it looks at, if any."""
    where: Mapping[str, float] = field(default_factory=dict[str, float])
    task: str | None = None
    """The task it looks at, where it needs no policy."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    printed: str | None = None
    """Where the paper's number is in paper.toml."""


@final
@dataclass(frozen=True)
class Derived:
    """A number computed from two cells."""

    row: str
    column: str
    how: Literal["drop", "difference", "times"]
    """How much of the first is lost at the second, in percent; the second less the first; the first over the second."""
    first: tuple[str, str]
    """Row and column."""
    second: tuple[str, str]
    printed: str | None = None
    """Where the paper's number is; without it, the same is computed from the two printed ones."""


@final
@dataclass(frozen=True)
class Experiment:
    """A table or a figure."""

    name: str
    title: str
    about: str
    """What is asked, in one or two sentences."""
    cells: tuple[Cell, ...] = ()
    measures: tuple[Measure, ...] = ()
    derived: tuple[Derived, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the paper leaves open, or what differs from it, in words."""


def episodes_of(task: str) -> int:
    """A member, where nothing else is asked for: the paper's counts."""
    return {"cheetah": 30, "walker": 30}.get(task, 100)
