"""`search`: choose a method, its settings and its training length from the demonstrations alone.

Some episodes are held out. BC and DBC are trained on the others, with several settings and seeds at once. Every
snapshot is measured on the held-out episodes (`selection.py`), a rule chooses one (`choice.py`), and the chosen
settings are trained on all demonstrations for the chosen number of updates.

FOLDER/search.json     what is tried and what was chosen
FOLDER/search/         the runs of the search, removed at the end
FOLDER                 the run of the chosen settings
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.files import is_temporary, read_json, write_json
from diffclone.fit import FitOptions, choose_device
from diffclone.model import Method
from diffclone.policy import Policy
from diffclone.training import Precision, Progress, Stack
from diffclone.training.choice import ERROR, Candidate, choose, describe_choice, list_candidates, rule_metric, scores
from diffclone.training.episodes import RunEpisodes
from diffclone.training.holdout import FEW, hold_out
from diffclone.training.runs import Run, train_run
from diffclone.training.search_plan import (
    FALLBACK_UPDATES,
    Grid,
    bc_method,
    choose_grid,
    chosen_method,
    measure_rates,
    stacks,
)
from diffclone.training.selection import SelectionContext, selection_metrics
from diffclone.training.session import describe_data

SEARCH, SEARCH_FILE = "search", "search.json"
BUDGET = 240.0
"""Seconds that a search takes by default."""

OnStage = Callable[[str, Progress], None]


@final
@dataclass(frozen=True, eq=False)
class SearchOptions:
    """The options of a search."""

    budget: float = BUDGET
    """Seconds that it may take."""
    seeds: Sequence[int] = (0,)
    """Seeds of the final policy."""
    device: str = "auto"
    precision: Precision = "float32"
    cache: str | Path | None = None
    """Folder of trained guides."""
    checkpoint_seconds: float = 30.0
    task: str | None = None
    episodes: RunEpisodes | None = None
    """Fingerprints of the episodes, for the final run; by default those of the demonstrations."""
    grid: Grid | None = None
    """What to try, instead of the largest grid that fits the budget."""
    keep: bool = False
    """Whether to keep the runs of the search."""
    quick: bool = False
    """Whether Records say that the run was shortened."""


@final
@dataclass(frozen=True, eq=False)
class SearchResult:
    """A trained policy, and how it was chosen."""

    policy: Policy
    candidates: Sequence[Candidate]
    """Everything that was tried; empty if there was nothing to choose with."""
    chosen: int | None
    """Index of the choice."""
    notes: Sequence[str]
    """What the demonstrations did not allow, in one line each."""
    seconds: float

    @property
    def choice(self) -> Candidate | None:
        """The candidate that was chosen."""
        return None if self.chosen is None else self.candidates[self.chosen]


def search(
    demos: Demonstrations,
    *,
    budget: float = BUDGET,
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    folder: str | Path | None = None,
    progress: OnStage = lambda stage, progress: None,
) -> SearchResult:
    """Choose method, settings and training length without an environment, and train the choice on all demonstrations.

    Args:
        demos: the demonstrations to learn from.
        budget: about how many seconds the search and the final training may take together.
        seeds: seeds of the final policy.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a CUDA GPU if there is one.
        folder: the folder of the run, as `diffclone train` makes it; an interrupted search resumes there. By default
            nothing is kept.
        progress: called with the name of the stage and the state of its training.
    """
    options = SearchOptions(budget=budget, seeds=seeds, device=device)
    if folder is not None:
        return search_in_folder(Path(folder), demos, options, progress)
    with tempfile.TemporaryDirectory() as temporary:
        return search_in_folder(Path(temporary) / "run", demos, options, progress)


def search_in_folder(
    folder: Path,
    demos: Demonstrations,
    options: SearchOptions,
    progress: OnStage = lambda stage, progress: None,
    print_line: Callable[[str], None] = lambda line: None,
) -> SearchResult:
    """Search in a run's folder, or resume there. A finished search is not repeated."""
    if not options.budget > 0:
        raise InvalidSettings(f"the budget must be above 0 seconds; it is {options.budget:g}.")
    # A device or a number of seeds that cannot be used must not create a folder.
    choose_device(options.device)
    Stack.of(bc_method(demos, FALLBACK_UPDATES), options.seeds, None)
    begun, state = time.monotonic(), open_search(folder, demos, options)
    parts, notes = divide(demos)
    for note in notes:
        print_line(note)
    if parts is None:
        method = bc_method(demos, FALLBACK_UPDATES)
        policy = final_run(folder, method, demos, options, progress).policy()
        save(folder, state, notes=notes)
        return SearchResult(policy, (), None, notes, time.monotonic() - begun)
    train, held_out = parts
    if "chosen" not in state:
        grid = plan_grid(folder, state, train, options, print_line)
        candidates = try_all(folder, grid, train, held_out, options, progress)
        chosen = choose(candidates)
        table = [
            {**candidate.to_dict(), "score": float(score) if np.isfinite(score) else None}
            for candidate, score in zip(candidates, scores(candidates), strict=True)
        ]
        extra = {"metrics": list(dict.fromkeys([rule_metric(candidates), ERROR])), "held_out": describe_data(held_out)}
        state = save(folder, state, notes=notes, candidates=table, chosen=chosen, **extra)
    candidates, grid = [Candidate.from_dict(c) for c in state["candidates"]], read_grid(state["grid"])
    choice = candidates[state["chosen"]]
    print_line(f"chosen: {describe_choice(choice, candidates)}")
    method = chosen_method(grid, demos, choice.method, choice.fields, choice.updates)
    policy = final_run(folder, method, demos, options, progress).policy()
    if not options.keep:
        shutil.rmtree(folder / SEARCH, ignore_errors=True)
    return SearchResult(policy, candidates, state["chosen"], notes, time.monotonic() - begun)


def divide(demos: Demonstrations) -> tuple[tuple[Demonstrations, Demonstrations] | None, list[str]]:
    """Return the part to train on and the held-out part, None if there is nothing to choose with, and remarks."""
    fixed = f"training BC for {FALLBACK_UPDATES:,} updates instead."
    if not np.ptp(demos.act, axis=0).any():
        return None, [f"all actions are equal, so that there is nothing to choose; {fixed}"]
    parts = hold_out(demos)
    if parts is None:
        what = f"{demos.num_episodes} episode{'s' * (demos.num_episodes > 1)} with {demos.num_steps} steps"
        return None, [f"{what} are too few to hold any out, so that nothing can be chosen; {fixed}"]
    notes: list[str] = []
    if demos.num_episodes < FEW:
        notes.append(
            f"{demos.num_episodes} episode{'s' * (demos.num_episodes > 1)}: too few to hold out whole ones. Pieces of "
            "them are held out, which shows over-fitting less well."
        )
    if demos.lengths.max() == 1:
        notes.append("episodes have one step: the choice is by the error of single actions.")
    if demos.obs.dtype == np.uint8:
        notes.append("observations are images: only BC is tried, and the choice is by the error of single actions.")
    return parts, notes


def open_search(folder: Path, demos: Demonstrations, options: SearchOptions) -> dict[str, Any]:
    """Return the state of the search in a folder; refuse a folder with another search or a run without one."""
    identity = {"data": describe_data(demos)["fingerprint"], "budget": options.budget, "seeds": list(options.seeds)}
    path = folder / SEARCH_FILE
    if not path.exists():
        if folder.is_file() or (folder.exists() and not all(map(is_temporary, folder.iterdir()))):
            raise InvalidFile(f"{folder} exists and holds no search. Nothing was changed; choose another --out.")
        write_json(path, {"identity": identity})
    state = read_json(path)
    if state.get("identity") != identity:
        raise InvalidFile(
            f"{folder} holds another search ({state.get('identity')}, now {identity}). Nothing was changed; choose "
            "another --out."
        )
    return state


def save(folder: Path, state: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """Add values to the search's file."""
    state = {**state, **values}
    write_json(folder / SEARCH_FILE, state)
    return state


def plan_grid(
    folder: Path,
    state: dict[str, Any],
    train: Demonstrations,
    options: SearchOptions,
    print_line: Callable[[str], None],
) -> Grid:
    """Return what is tried: what an interrupted search tried, or the largest grid that fits the budget."""
    if "grid" not in state and options.grid is not None:
        state.update(save(folder, state, grid=asdict(options.grid), seconds={}))
    elif "grid" not in state:
        rates = measure_rates(train, options.device, options.precision)
        grid = choose_grid(rates, options.budget, len(options.seeds), images=train.obs.dtype == np.uint8)
        seconds = rates.seconds(grid, len(options.seeds))
        state.update(save(folder, state, grid=asdict(grid), rates=asdict(rates), seconds=seconds))
    grid, seconds = read_grid(state["grid"]), state["seconds"]
    times = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    members = f"{grid.bc_members} members of BC" + f" and {grid.dbc_members} of DBC" * (grid.dbc_members > 0)
    about = f"; about {sum(seconds.values()) / 60:.1f} minutes: {times}" if seconds else ""
    print_line(f"trying {members}, each at {', '.join(f'{update:,}' for update in grid.snapshots)} updates{about}.")
    return grid


def read_grid(values: Mapping[str, Any]) -> Grid:
    """Return the grid that a file contains."""
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}  # pyright: ignore[reportUnknownArgumentType]
    return Grid(**fields)


def try_all(
    folder: Path,
    grid: Grid,
    train: Demonstrations,
    held_out: Demonstrations,
    options: SearchOptions,
    progress: OnStage,
) -> list[Candidate]:
    """Train the stacks and return every configuration at every snapshot, with its metrics."""
    device = choose_device(options.device)
    context = SelectionContext.prepare(train, held_out, device)
    found: list[Candidate] = []
    for name, (method, vary) in stacks(grid, train).items():
        fit_options = FitOptions(
            seeds=range(grid.seeds),
            vary=vary,
            snapshots=grid.snapshots,
            guide_seed=None if name == "bc" else 0,
            device=options.device,
            precision=options.precision,
            cache=options.cache,
            checkpoint_seconds=options.checkpoint_seconds,
        )
        run = train_run(
            folder / SEARCH / name,
            method,
            train,
            fit_options,
            quick=options.quick,
            progress=lambda now, name=name: progress(f"trying {name.upper()}", now),
        )
        for updates, policy in run.snapshots(str(device)).items():
            found += list_candidates(name, updates, policy.members, selection_metrics(policy, context))
    return found


def final_run(
    folder: Path, method: Method[Any], demos: Demonstrations, options: SearchOptions, progress: OnStage
) -> Run:
    """Train a method on all demonstrations."""
    fit_options = FitOptions(
        seeds=options.seeds,
        device=options.device,
        precision=options.precision,
        cache=options.cache,
        checkpoint_seconds=options.checkpoint_seconds,
    )
    return train_run(
        folder,
        method,
        demos,
        fit_options,
        task=options.task,
        quick=options.quick,
        episodes=options.episodes,
        progress=lambda now: progress("final training", now),
    )
