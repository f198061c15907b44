"""The command that times everything in one run on one machine, with ratios; each Record is written when measured."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch

from diffclone.api import choose_device
from diffclone.bench import acting, extras
from diffclone.bench.floor import peaks, work
from diffclone.bench.plot import check_free, write_plot
from diffclone.bench.tables import TABLES
from diffclone.bench.timing import device_name, machine, take_turns
from diffclone.bench.training import (
    TABLE_WIDTH,
    Case,
    by_sines,
    cases,
    find_rivals,
    ground,
    ours,
    ours_by_sines,
    ours_short,
)
from diffclone.console import Bars, answer, bars, say, show_table
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.guides import GUIDES
from diffclone.methods import METHODS
from diffclone.model import Model
from diffclone.records import Record
from diffclone.settings import to_dict
from diffclone.tasks import TASKS
from diffclone.training import Precision

USUAL = ("floor", "train", "rollouts", "latency")
ON_REQUEST = ("memory", "precision", "conditioning", "variants", "compiler", "full")


@dataclass(frozen=True)
class Bench:
    """Time training, playing and acting on this machine, beside other ways to do the same."""

    only: str = ",".join(USUAL)
    """Which, with commas: floor, train, rollouts, latency; and, on request, memory (GPU), precision,
    conditioning, variants, compiler (CPU), full."""
    tasks: tuple[str, ...] = ("maze", "fetch-pick", "hand-rotate")
    """Whose sizes; policies and large stacks have those of the first."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    against: Path | None = None
    """The folder benchmarks/ of a checkout, for the other ways to train; by default the one beside the package."""
    precision: Precision = "float32"
    """Of matrix products in `full`; the other parts have their own."""
    quick: bool = False
    """Only see that everything works: the numbers are worth nothing."""
    out: Path | None = None
    """A file of Records to append to, each as soon as it is measured."""
    plot: Path | None = None
    """A new SVG file: how fast members train, by how many there are."""
    json: bool = False
    """Print JSON instead of tables."""
    records: list[Record] = field(default_factory=list[Record], init=False)

    def run(self) -> None:
        """Do it."""
        chosen = self.only.split(",")
        if unknown := [name for name in chosen if name not in (*USUAL, *ON_REQUEST)]:
            raise InvalidSettings(f"unknown part {unknown[0]!r}; known are {', '.join((*USUAL, *ON_REQUEST))}.")
        if unknown := [task for task in self.tasks if task not in TABLE_WIDTH]:
            raise InvalidSettings(f"no released settings for {unknown[0]!r}; known are {', '.join(TABLE_WIDTH)}.")
        if self.plot is not None:
            check_free(self.plot)
        device = choose_device(self.device)
        parts: dict[str, Callable[[torch.device, Bars], None]] = {
            "floor": self.time_peaks,
            "train": self.time_training,
            "rollouts": self.time_rollouts,
            "latency": self.time_latency,
            "memory": self.measure_memory,
            "precision": self.time_precisions,
            "conditioning": self.compare_conditioning,
            "variants": self.time_variants,
            "compiler": self.time_compiler,
            "full": self.time_maze_in_full,
        }
        with bars() as show:
            for name, part in parts.items():
                if name not in chosen:
                    continue
                try:
                    part(device, show)
                except MissingPackage as fault:
                    say(f"Left out: {name}. {fault}")
        if self.plot is not None and not write_plot(self.records, self.plot):
            say(f"Nothing to draw in {self.plot}: no diffusion model was timed in stacks of several sizes.")
        if self.json:
            answer([asdict(record) for record in self.records])
        else:
            for table in (make(self.records) for make in TABLES):
                if table.rows:
                    show_table(table.title, table.columns, table.rows)

    def keep(
        self, name: str, device: torch.device, begun: float, results: Mapping[str, Any], **settings: Any
    ) -> Record:
        """A Record, written at once."""
        record = Record(
            kind="benchmark",
            settings={"benchmark": name, "machine": machine(), **settings},
            members=[],
            data={},
            results=results,
            device=device_name(device),
            seconds=time.monotonic() - begun,
            quick=self.quick,
        )
        if self.out is not None:
            record.append_to(self.out)
        self.records.append(record)
        return record

    def rivals(self) -> dict[str, ModuleType]:
        """Other ways to train, where they can be found."""
        found = find_rivals(self.against)
        if not found:
            say("Left out: the released style and vmap. They are in benchmarks/ of a checkout; say --against FOLDER.")
        return found

    def turns(self, device: torch.device) -> dict[str, Any]:
        """How long and how many; fewer on a GPU, which is rarely shared and waits for compilers."""
        if self.quick:
            return {"window": 0.01, "rounds": 1}
        return {"window": 0.5, "rounds": 3 if device.type == "cuda" else 5}

    def time_peaks(self, device: torch.device, show: Bars) -> None:
        """What the machine can do."""
        begun = time.monotonic()
        self.keep("floor", device, begun, peaks(device, quick=self.quick))

    def time_training(self, device: torch.device, show: Bars) -> None:
        """Updates a second of each case: ours, on both its paths where there are two, and the others."""
        rivals = self.rivals()
        todo = list(cases(device, self.tasks, quick=self.quick))
        for done, case in enumerate(todo):
            show.update("training", done, len(todo), case.label)
            self.time_case(case, device, rivals)
        show.update("training", len(todo), len(todo))

    def time_case(self, case: Case, device: torch.device, rivals: Mapping[str, ModuleType]) -> Record:
        """One case."""
        begun, given = time.monotonic(), ground(case, device)
        playing = [ours(given)]
        if device.type == "cuda":  # there a short training is not compiled
            playing.append(ours_short(given))
        playing += ours_by_sines(given)
        playing += [rival.contestant(given) for rival in rivals.values()]
        timed = take_turns(playing, device, **self.turns(device))
        rates = {name: found.to_dict() for name, found in timed.items()}
        mine = rates["ours"]["member_updates_per_second"]

        def counted(model: Model[Any] | None) -> dict[str, int] | None:
            found = None if model is None else work(model, given.session.dims, case.members)
            return None if found is None else asdict(found)

        results = {
            "rates": rates,
            "ratio": {name: mine / other["member_updates_per_second"] for name, other in rates.items()},
            "work": counted(given.model),
            "work_by_sines": counted(by_sines(given.model)),
            "matmul_precision": given.session.precision,
        }
        model = to_dict(given.model, METHODS, GUIDES)
        settings = {"case": asdict(case), "model": model, "width": TABLE_WIDTH[case.task], **self.turns(device)}
        return self.keep("training", device, begun, results, **settings)

    def time_rollouts(self, device: torch.device, show: Bars) -> None:
        """Episodes of Maze a second."""
        begun = time.monotonic()
        show.update("rollouts: training the players", 0, 1)
        playing = list(acting.players(TASKS["maze"].demonstrations(), device, quick=self.quick))
        show.update("rollouts: training the players", 1, 1)
        found = acting.rollouts(playing, lambda done, total: show.update("rollouts", done, total))
        self.keep("rollouts", device, begun, {"players": found}, task="maze")

    def time_latency(self, device: torch.device, show: Bars) -> None:
        """Milliseconds an action, on one CPU thread whatever the device: there policies act."""
        begun, threads = time.monotonic(), torch.get_num_threads()
        demos = TASKS["maze"].demonstrations()
        torch.set_num_threads(1)
        try:
            found = acting.measure(
                list(acting.actors(demos)),
                demos.obs.astype(np.float32),
                1 if self.quick else 5,
                lambda done, total: show.update("latency", done, total),
            )
        finally:
            torch.set_num_threads(threads)
        ratio = {name: taken / found["BC"] for name, taken in found.items()}
        results = {"milliseconds": found, "ratio_to_bc": ratio}
        self.keep("latency", torch.device("cpu"), begun, results, task="maze", threads=1)

    def measure_memory(self, device: torch.device, show: Bars) -> None:
        """By members, and for a large set of transitions."""
        if device.type != "cuda":
            say("Left out: memory, which is measured on a GPU.")
            return
        begun, sizes = time.monotonic(), (1, 2) if self.quick else (1, 8, 64)
        for task in self.tasks[: 1 if self.quick else 2]:
            taken = {str(members): extras.memory(device, Case("guide", task, members)) for members in sizes}
            self.keep("memory", device, begun, {"bytes": taken}, task=task, width=TABLE_WIDTH[task])
        if not self.quick:
            self.keep("transitions", device, begun, extras.many_transitions(device))

    def time_precisions(self, device: torch.device, show: Bars) -> None:
        """Updates a second of each precision, and the loss after the same number of updates."""
        accelerated = device.type == "cuda"
        updates = 64 if self.quick else extras.PRECISION_UPDATES[device.type]
        for task in self.tasks[: 2 if accelerated and not self.quick else 1]:
            begun, case = time.monotonic(), Case("guide", task, 8 if accelerated else 1)
            losses: dict[str, float] = {}
            playing = extras.precision_contestants(case, device, losses, updates=updates)
            timed = take_turns(list(playing), device, **self.turns(device))
            results = {"rates": {name: found.to_dict() for name, found in timed.items()}, "losses": losses}
            settings = {"case": asdict(case), "updates": updates, "width": TABLE_WIDTH[task]}
            self.keep("precision", device, begun, results, **settings)

    def compare_conditioning(self, device: torch.device, show: Bars) -> None:
        """What a diffusion model loses by knowing its step by sines instead of by tables."""
        updates = 64 if self.quick else extras.CONDITIONING_UPDATES
        for task in self.tasks[: 2 if device.type == "cuda" else 1]:
            begun, case = time.monotonic(), Case("guide", task, 8 if device.type == "cuda" else 2)
            losses = extras.conditioning_losses(case, device, updates=updates)
            settings = {"case": asdict(case), "updates": updates, "width": TABLE_WIDTH[task]}
            self.keep("conditioning", device, begun, {"losses": losses}, **settings)

    def time_variants(self, device: torch.device, show: Bars) -> None:
        """What each of DBC's options costs, beside plain DBC and BC."""
        begun, members = time.monotonic(), 8 if device.type == "cuda" else 1
        playing = list(extras.variant_contestants(device, members))
        timed = take_turns(playing, device, **self.turns(device))
        rates = {name: found.to_dict() for name, found in timed.items()}
        results = {
            "rates": rates,
            "cost_to_dbc": {name: timed["DBC"].rate / found.rate for name, found in timed.items()},
            "cost_to_bc": {name: timed["BC"].rate / found.rate for name, found in timed.items()},
        }
        self.keep("variants", device, begun, results, task="maze", members=members)

    def time_compiler(self, device: torch.device, show: Bars) -> None:
        """What compiling would gain on a CPU, where the loop does without."""
        if device.type != "cpu":
            say("Left out: compiler, which is timed on a CPU; a GPU has both paths in `train`.")
            return
        todo = extras.compiler_cases(quick=self.quick)
        for done, case in enumerate(todo):
            show.update("compiler", done, len(todo), case.label)
            begun = time.monotonic()
            timed = take_turns(list(extras.compiler_contestants(case, device)), device, **self.turns(device))
            results = {
                "rates": {name: found.to_dict() for name, found in timed.items()},
                "gain": timed["compiled"].rate / timed["plain"].rate,
            }
            self.keep("compiler", device, begun, results, case=asdict(case), width=TABLE_WIDTH[case.task])
        show.update("compiler", len(todo), len(todo))

    def time_maze_in_full(self, device: torch.device, show: Bars) -> None:
        """The wall clock of the whole."""
        begun = time.monotonic()
        found = extras.maze_in_full(
            device,
            lambda stage, done, total: show.update(f"Maze in full: {stage}", done, total),
            precision=self.precision,
            shorten=20_000 if self.quick else 1,
        )
        self.keep("full", device, begun, found, precision=self.precision)
