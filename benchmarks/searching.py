"""What `diffclone train` without settings costs, beside one plain training of BC and of DBC on the same data.

python -m benchmarks.searching                        about 10,000 transitions of FetchPick, the default budget
python -m benchmarks.searching --out FILE             also appends a Record to FILE

A member-update is one update of the weights of one member. Updates of the guide count as well.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.speed.timing import describe_machine
from diffclone import BC, DBC, Demonstrations, fit
from diffclone.cli.console import print_json
from diffclone.files import read_json
from diffclone.fit import choose_device
from diffclone.model import Method
from diffclone.records import Record
from diffclone.tasks import TASKS
from diffclone.training.search import SEARCH_FILE, search
from diffclone.training.search_state import read_grid
from diffclone.training.suggestion import suggest

TASK = "fetch-pick"


def take_transitions(demos: Demonstrations, transitions: int) -> Demonstrations:
    """Return the first episodes, up to this many transitions."""
    count = int((demos.episode_ends <= transitions).sum())
    return demos.take(range(max(1, count)))


def time_plain(method: Method[Any], demos: Demonstrations, device: str) -> dict[str, float]:
    """Train one member with the default settings."""
    begun = time.monotonic()
    fit(method, demos, device=device, progress=False)
    seconds, guide = time.monotonic() - begun, getattr(method, "guide", None)
    updates = method.training.updates + (0 if guide is None else guide.training.updates)
    return {"seconds": round(seconds, 1), "member_updates": updates}


def time_search(demos: Demonstrations, budget: float, device: str) -> dict[str, Any]:
    """Search with a budget in seconds."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        found = search(demos, budget=budget, device=device, folder=folder)
        state = read_json(folder / SEARCH_FILE)
    seconds, grid, choice = time.monotonic() - begun, read_grid(state["grid"]), found.choice
    assert choice is not None
    longest: dict[str, int] = {}
    for candidate in found.candidates:
        longest[candidate.method] = max(longest.get(candidate.method, 0), candidate.updates)
    tried = sum(updates * grid.members(method) for method, updates in longest.items())
    guides = ("dbc" in longest) + (choice.method == "dbc")
    final = choice.updates + guides * grid.guide_updates
    return {
        "seconds": round(seconds, 1),
        "budget": budget,
        "candidates": len(found.candidates),
        "member_updates": tried + final,
        "chosen": {"method": choice.method, "fields": dict(choice.fields), "updates": choice.updates},
    }


@dataclass(frozen=True)
class Searching:
    """Time a search and two plain trainings."""

    transitions: int = 10_000
    """Transitions of the demonstrations, about."""
    budget: float = 240.0
    """Seconds that the search may take."""
    device: str = "auto"
    """Where to train."""
    out: Path | None = None
    """File of Records to append to."""

    def run(self) -> None:
        """Run all three, one after the other."""
        begun, machine, device = time.monotonic(), describe_machine(), str(choose_device(self.device))
        demos = take_transitions(TASKS[TASK].demonstrations(), self.transitions)
        found = {
            "BC": time_plain(suggest(BC(), demos), demos, device),
            "DBC": time_plain(suggest(DBC(), demos), demos, device),
            "train": time_search(demos, self.budget, device),
        }
        data = {"task": TASK, "episodes": demos.num_episodes, "steps": demos.num_steps}
        settings = {"benchmark": "searching", "machine": machine}
        record = Record("benchmark", settings, [], data, found, device, time.monotonic() - begun)
        if self.out is not None:
            record.append_to(self.out)
        print_json(found)


if __name__ == "__main__":
    tyro.cli(Searching, prog="python -m benchmarks.searching").run()
