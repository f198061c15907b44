"""`diffclone train DATA` without a method or settings: search for them."""

from contextlib import AbstractContextManager
from pathlib import Path

from diffclone.cli.console import bars, print_json, print_message, print_table
from diffclone.cli.hints import next_evaluation
from diffclone.cli.interrupt import between_updates
from diffclone.cli.stages import Resumed, describe_finished
from diffclone.cli.tracking import Write
from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.files import write_atomically
from diffclone.training import Progress
from diffclone.training.choice import best_candidates
from diffclone.training.runs import Run
from diffclone.training.search import SearchOptions, SearchResult, search_in_folder
from diffclone.training.search_state import read_state

PAGE = "search.html"
SHOWN = 8
"""Rows of the printed table."""


def parse_budget(text: str) -> float:
    """Return the seconds of "90s", "3m" or "1h"."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        seconds = float(text[:-1]) * (unit or 0)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidSettings(f"--budget takes a time such as 90s, 3m or 1h; it was given {text!r}.")
    return seconds


def run_search(
    folder: Path,
    demos: Demonstrations,
    options: SearchOptions,
    tracking: AbstractContextManager[Write],
    *,
    json: bool,
) -> None:
    """Search, train the choice, write the page and print what was tried."""
    finished, say_resumed = Run(folder).finished, Resumed()
    with tracking as write, bars() as show, between_updates() as stop:

        def progress(stage: str, now: Progress) -> None:
            say_resumed(stage, now)
            show.training(stage, now)
            if stage == "final training":
                write(now)
            stop()

        result = search_in_folder(folder, demos, options, progress, print_message, show.plan)
    page = write_page(folder)
    if finished:
        print_message(describe_finished(folder))
    if json:
        choice = None if result.choice is None else result.choice.to_dict()
        about = {"choice": choice, "tried": len(result.candidates), "notes": list(result.notes)}
        print_json({"run": str(folder), "members": list(result.policy.members), "data": result.policy.data, **about})
        return
    if result.candidates:
        print_candidates(result)
    where = f" What was tried is on {page}." if page else ""
    print_message(f"{result.policy!r} in {folder}.{where} {next_evaluation(folder, result.policy)}")


def print_candidates(result: SearchResult) -> None:
    """Print the best candidates."""
    header, rows = best_candidates(result.candidates, result.chosen, SHOWN)
    print_table(f"The best of {len(result.candidates)} candidates on held-out episodes; lower is better", header, rows)


def write_page(folder: Path) -> Path | None:
    """Write the page of the search next to the run; None if matplotlib is missing or nothing was tried."""
    state = read_state(folder)
    if "candidates" not in state:
        return None
    try:
        from diffclone.reports.search import search_page
    except (ImportError, MissingPackage):
        return None
    write_atomically(folder / PAGE, search_page(state).encode())
    return folder / PAGE
