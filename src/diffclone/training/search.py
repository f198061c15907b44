"""`search`: choose a method, its settings and its training length from the demonstrations alone.

Some episodes are held out. BC and flow matching are trained on the others, with several lengths and seeds at once.
Every snapshot is measured on the held-out episodes (`selection.py`), a rule chooses one (`choice.py`), and the chosen
settings are trained on all demonstrations for the chosen number of updates.

FOLDER/search.json     what is tried and what was chosen
FOLDER/search/         the runs of the search, removed at the end
FOLDER                 the run of the chosen settings
"""

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.data import Demonstrations, Streamed
from diffclone.errors import InvalidSettings
from diffclone.fit import FitOptions, choose_device, fit_with_options, open_demonstrations
from diffclone.model import Method
from diffclone.settings import describe_method
from diffclone.training import Precision, Progress, Stack
from diffclone.training.choice import ERROR, RULE, Candidate, choose, describe_choice, list_candidates, scores
from diffclone.training.display import choose_bars
from diffclone.training.episodes import RunEpisodes
from diffclone.training.estimate import first_steps
from diffclone.training.holdout import divide
from diffclone.training.runs import Run, train_run
from diffclone.training.search_pace import Deadline, OutOfTime, Pace, affordable
from diffclone.training.search_plan import (
    DEFAULT_GRIDS,
    FALLBACK_UPDATES,
    Grid,
    Rates,
    bc_method,
    choose_grid,
    chosen_method,
    describe_grid,
    measure_rates,
    stacks,
)
from diffclone.training.search_result import SearchResult
from diffclone.training.search_state import SEARCH_FILE, open_search, read_grid, read_rates, save
from diffclone.training.selection import SelectionContext, selection_metrics
from diffclone.training.session import describe_data

__all__ = ["SEARCH", "SEARCH_FILE", "SearchOptions", "SearchResult", "search", "search_in_folder"]

SEARCH = "search"
BUDGET = 240.0
"""Seconds that a search takes by default."""

OnStage = Callable[[str, Progress], None]


@final
@dataclass(frozen=True, eq=False)
class SearchOptions:
    """The options of a search."""

    budget: float = BUDGET
    """Seconds that it may take, the final training included."""
    begun: float | None = None
    """When the budget began, by the monotonic clock; by default when the search begins."""
    seeds: int | Sequence[int] = (0,)
    """Seeds of the final policy, or their number: N means 0 to N − 1."""
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


def search(
    demos: Demonstrations | str | Path,
    *,
    budget: float = BUDGET,
    seeds: int | Sequence[int] = (0,),
    device: str = "auto",
    folder: str | Path | None = None,
    progress: OnStage | bool | None = None,
) -> SearchResult:
    """Choose method, settings and training length without an environment, and train the choice on all demonstrations.

    Args:
        demos: the demonstrations to learn from, or the file or folder to read them from.
        budget: about how many seconds the search and the final training may take together; 240 by default.
        seeds: seeds of the final policy, or their number: 3 means the seeds 0, 1, 2.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a CUDA GPU if there is one.
        folder: the folder of the run, as `diffclone train` makes it; an interrupted search resumes there. By default
            nothing is kept.
        progress: by default a progress bar in a terminal and in a notebook, and nothing elsewhere. False for none, True
            for lines where a bar cannot be shown, or a function, called with the name of the stage and the state of its
            training.

    Returns:
        The policy, and everything that was tried with its scores on held-out episodes.
    """
    options = SearchOptions(budget=budget, seeds=seeds, device=device)
    known = open_demonstrations(demos, None)
    if isinstance(known, Streamed):
        raise InvalidSettings("a search needs the demonstrations in memory; these are read in blocks. Use fit.")
    shown = False if callable(progress) else progress
    with tempfile.TemporaryDirectory() as temporary, choose_bars(progress=shown) as bars:
        folder = Path(temporary) / "run" if folder is None else Path(folder)
        if bars is not None:
            return search_in_folder(folder, known, options, bars.training, plan=bars.plan)
        if callable(progress):
            return search_in_folder(folder, known, options, progress)
        return search_in_folder(folder, known, options)


def search_in_folder(
    folder: Path,
    demos: Demonstrations,
    options: SearchOptions,
    progress: OnStage = lambda stage, progress: None,
    print_line: Callable[[str], None] = lambda line: None,
    plan: Callable[[Mapping[str, float]], None] = lambda seconds: None,
) -> SearchResult:
    """Search in a run's folder, or resume there. A finished search is not repeated.

    `plan` is called with the seconds that all stages will take, by the labels of the progress display.
    """
    if not isinstance(options.budget, Real) or not 0 < options.budget < math.inf:
        raise InvalidSettings(f"the budget must be above 0 seconds, such as 240.0; it is {options.budget!r}.")
    # A device or a number of seeds that cannot be used must not create a folder.
    choose_device(options.device)
    Stack.of(bc_method(demos, FALLBACK_UPDATES), options.seeds, None)
    with open_search(folder, demos, options.budget, options.seeds) as state:
        return search_in_locked_folder(folder, demos, options, state, progress, print_line, plan)


def search_in_locked_folder(
    folder: Path,
    demos: Demonstrations,
    options: SearchOptions,
    state: dict[str, Any],
    progress: OnStage,
    print_line: Callable[[str], None],
    plan: Callable[[Mapping[str, float]], None],
) -> SearchResult:
    """Search from the state that the folder has."""
    begun = time.monotonic()
    deadline = Deadline() if options.grid else Deadline((options.begun or begun) + options.budget)
    parts, notes = divide(demos, FALLBACK_UPDATES)
    for note in notes:
        print_line(note)
    if parts is None:
        method = bc_method(demos, FALLBACK_UPDATES)
        policy = final_run(folder, method, demos, options, progress).policy()
        save(folder, state, notes=notes)
        return SearchResult(policy, (), None, notes, time.monotonic() - begun)
    train, held_out = parts
    if "chosen" not in state:
        context = SelectionContext.prepare(train, held_out, choose_device(options.device), closed_loop=False)
        grid, rates = plan_grid(folder, state, train, context, options, deadline)
        seconds = {} if rates is None else rates.seconds(grid)
        print_line(describe_grid(grid, seconds))
        plan(seconds)
        candidates, slowdown = try_all(folder, grid, rates, train, context, options, deadline, progress, print_line)
        within = affordable(candidates, grid, rates, deadline.left / slowdown)
        chosen = within[choose([candidates[k] for k in within])]
        table = [
            {**candidate.to_dict(), "score": float(score) if np.isfinite(score) else None}
            for candidate, score in zip(candidates, scores(candidates), strict=True)
        ]
        extra = {"metrics": [ERROR], "rule": RULE, "held_out": describe_data(held_out)}
        state = save(folder, state, notes=notes, candidates=table, chosen=chosen, **extra)
    candidates, grid = [Candidate.from_dict(c) for c in state["candidates"]], read_grid(state["grid"])
    choice = candidates[state["chosen"]]
    print_line(f"chosen: {describe_choice(choice, candidates)}")
    if (rates := read_rates(state)) is not None:
        plan(rates.final_seconds(grid, choice.method, choice.updates))
    method = chosen_method(grid, demos, choice.method, choice.fields, choice.updates)
    policy = final_run(folder, method, demos, options, progress).policy()
    if not options.keep:
        shutil.rmtree(folder / SEARCH, ignore_errors=True)
    return SearchResult(policy, candidates, state["chosen"], notes, time.monotonic() - begun)


def plan_grid(
    folder: Path,
    state: dict[str, Any],
    train: Demonstrations,
    context: SelectionContext,
    options: SearchOptions,
    deadline: Deadline,
) -> tuple[Grid, Rates | None]:
    """Return what is tried: what an interrupted search tried, or the largest grid that fits into the time left."""
    if "grid" not in state and options.grid is not None:
        state.update(save(folder, state, grid=asdict(options.grid)))
    elif "grid" not in state:
        rates = measure_rates(train, options.device, options.precision, options.seeds)
        rates = replace(rates, score=measure_score(train, context, options))
        count = DEFAULT_GRIDS if options.budget <= BUDGET else None
        grid = choose_grid(rates, deadline.left, count, images=train.obs.dtype == np.uint8)
        state.update(save(folder, state, grid=asdict(grid), rates=asdict(rates)))
    return read_grid(state["grid"]), read_rates(state)


def measure_score(train: Demonstrations, context: SelectionContext, options: SearchOptions) -> float:
    """Return the seconds that the metrics of one member take."""
    one = FitOptions(seeds=range(4), device=options.device, precision=options.precision)
    policy = fit_with_options(bc_method(train, 1), first_steps(train), one).policy
    begun = time.monotonic()
    selection_metrics(policy, context)
    return (time.monotonic() - begun) / len(policy)


def try_all(
    folder: Path,
    grid: Grid,
    rates: Rates | None,
    train: Demonstrations,
    context: SelectionContext,
    options: SearchOptions,
    deadline: Deadline,
    progress: OnStage,
    print_line: Callable[[str], None],
) -> tuple[list[Candidate], float]:
    """Train the stacks; return every configuration at every snapshot with its metrics, and how slow the machine was.

    If the time that is left is needed for the final training, a stack ends at its last snapshot, and DBC is left out if
    its guide is not trained by then.
    """
    found: list[Candidate] = []
    pace = Pace(grid, rates, deadline)
    for name, (method, vary) in stacks(grid, train).items():

        def report(now: Progress, name: str = name) -> None:
            progress(f"trying {describe_method(name)}", now)
            pace.report(name, now)

        fit_options = FitOptions(
            seeds=range(grid.seeds),
            vary=vary,
            snapshots=grid.lengths(name),
            enough=lambda now, name=name: pace.late and now.stage == "policy" and now.update >= min(grid.lengths(name)),
            guide_seed=0 if name == "dbc" else None,
            device=options.device,
            precision=options.precision,
            cache=options.cache,
            checkpoint_seconds=options.checkpoint_seconds,
        )
        try:
            run = train_run(folder / SEARCH / name, method, train, fit_options, quick=options.quick, progress=report)
        except OutOfTime:
            print_line("DBC is left out: the budget would end before its guide is trained.")
            break
        for updates, policy in run.snapshots(str(choose_device(options.device))).items():
            found += list_candidates(name, updates, policy.members, selection_metrics(policy, context))
    return found, pace.slowdown


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
