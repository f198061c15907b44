"""What `diffclone bench` measures on a device: a job each, which makes a Record."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import torch

from benchmarks.speed import breakdown, extras
from benchmarks.speed.floor import peaks, work
from benchmarks.speed.timing import Contestant, Timed, device_name, machine, take_turns
from benchmarks.speed.training import (
    LESS,
    SHORT_RUN,
    TABLE_WIDTH,
    Case,
    by_sines,
    cases,
    find_rivals,
    ground,
    lasting,
    ours,
    ours_by_sines,
    ours_less_precise,
    ours_short,
    updates_of,
)
from diffclone.model import Model
from diffclone.records import Record
from diffclone.settings import to_dict


@final
class Job(NamedTuple):
    """A method of `Bencher`, and what it is given."""

    method: str
    given: Case | str | None = None

    @property
    def label(self) -> str:
        """In words."""
        return self.given.label if isinstance(self.given, Case) else self.given or ""


def jobs(part: str, device: torch.device, tasks: Sequence[str], *, quick: bool) -> list[Job]:
    """Of a part; none where the device has nothing to measure."""
    accelerated = device.type == "cuda"
    some = tasks[: 1 if quick else 2]
    found: dict[str, list[Job]] = {
        "floor": [Job("peaks")],
        "train": [Job("case", case) for case in cases(device, tuple(tasks), quick=quick)],
        "memory": [Job("memory", task) for task in some] + ([] if quick else [Job("transitions")]),
        "precision": [Job("precision", task) for task in some],
        "conditioning": [Job("conditioning", task) for task in (some if accelerated else some[:1])],
        "variants": [Job("variants")],
        "compiler": [Job("compiler", case) for case in extras.compiler_cases(quick=quick)],
        "profile": [Job("profile", case) for case in breakdown.profiled_cases(device, quick=quick)],
    }
    elsewhere = "compiler" if accelerated else "memory"
    return [] if part == elsewhere else found[part]


@final
@dataclass(frozen=True)
class Bencher:
    """Measures."""

    device: torch.device
    quick: bool
    against: Path | None
    """The folder of the other ways to train."""
    alone: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered when all is compiled and only time is to be taken, which needs the machine for itself."""

    def do(self, job: Job) -> Record:
        """One job."""
        method: Callable[..., Record] = getattr(self, job.method)
        return method() if job.given is None else method(job.given)

    def record(self, name: str, begun: float, results: Mapping[str, Any], **settings: Any) -> Record:
        """Of what was found."""
        return Record(
            kind="benchmark",
            settings={
                "benchmark": name,
                "machine": machine(),
                "side_by_side": self.alone is not nullcontext,
                **settings,
            },
            members=[],
            data={},
            results=results,
            device=device_name(self.device),
            seconds=time.monotonic() - begun,
            quick=self.quick,
        )

    @property
    def turns(self) -> dict[str, Any]:
        """How long and how many; fewer on a GPU, which is rarely shared and waits for compilers."""
        if self.quick:
            return {"window": 0.01, "rounds": 1}
        return {"window": 0.5, "rounds": 3 if self.device.type == "cuda" else 5}

    def timed(self, playing: Sequence[Contestant]) -> dict[str, Timed]:
        """They take turns."""
        return take_turns(playing, self.device, alone=self.alone, **self.turns)

    def peaks(self) -> Record:
        """What the machine can do."""
        begun = time.monotonic()
        with self.alone():
            return self.record("floor", begun, peaks(self.device, quick=self.quick))

    def case(self, case: Case) -> Record:
        """Updates a second: ours, on both its paths where there are two, and the others."""
        begun, given = time.monotonic(), ground(case, self.device)
        if self.quick and self.device.type == "cpu":  # spares a compiler's time
            given = replace(given, model=lasting(given.model, SHORT_RUN))
        playing = [ours(given)]
        if updates_of(given).compiled:  # a short training is not
            playing.append(ours_short(given))
        playing += [*ours_by_sines(given), ours_less_precise(given)]
        playing += [rival.contestant(given) for rival in find_rivals(self.against).values()]
        rates = {name: found.to_dict() for name, found in self.timed(playing).items()}
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
            "less_precise": LESS[self.device.type],
        }
        model = to_dict(given.model)
        width = TABLE_WIDTH[case.task]
        return self.record("training", begun, results, case=asdict(case), model=model, width=width, **self.turns)

    def memory(self, task: str) -> Record:
        """By members. The first training in a process also brings workspaces that stay, and is not counted."""
        begun, sizes = time.monotonic(), (1, 2) if self.quick else (1, 8, 64)
        extras.memory(self.device, Case("guide", task, sizes[0]))
        taken = {str(members): extras.memory(self.device, Case("guide", task, members)) for members in sizes}
        return self.record("memory", begun, {"bytes": taken}, task=task, width=TABLE_WIDTH[task])

    def transitions(self) -> Record:
        """Memory for a large set."""
        begun = time.monotonic()
        return self.record("transitions", begun, extras.many_transitions(self.device))

    def precision(self, task: str) -> Record:
        """Updates a second of each precision, and the loss after the same number of updates."""
        begun, case = time.monotonic(), Case("guide", task, 8 if self.device.type == "cuda" else 1)
        updates = 64 if self.quick else extras.PRECISION_UPDATES[self.device.type]
        losses: dict[str, float] = {}
        timed = self.timed(list(extras.precision_contestants(case, self.device, losses, updates=updates)))
        results = {"rates": {name: found.to_dict() for name, found in timed.items()}, "losses": losses}
        return self.record(
            "precision", begun, results, case=asdict(case), updates=updates, width=TABLE_WIDTH[case.task]
        )

    def conditioning(self, task: str) -> Record:
        """What a diffusion model loses by knowing its step by sines instead of by tables."""
        begun, case = time.monotonic(), Case("guide", task, 8 if self.device.type == "cuda" else 2)
        updates = 64 if self.quick else extras.CONDITIONING_UPDATES
        losses = extras.conditioning_losses(case, self.device, updates=updates)
        return self.record(
            "conditioning", begun, {"losses": losses}, case=asdict(case), updates=updates, width=TABLE_WIDTH[task]
        )

    def variants(self) -> Record:
        """What each of DBC's options costs, beside plain DBC and BC."""
        begun, members = time.monotonic(), 8 if self.device.type == "cuda" else 1
        timed = self.timed(list(extras.variant_contestants(self.device, members)))
        results = {
            "rates": {name: found.to_dict() for name, found in timed.items()},
            "cost_to_dbc": {name: timed["DBC"].rate / found.rate for name, found in timed.items()},
            "cost_to_bc": {name: timed["BC"].rate / found.rate for name, found in timed.items()},
        }
        return self.record("variants", begun, results, task="maze", members=members)

    def compiler(self, case: Case) -> Record:
        """What compiling would gain on a CPU, where the loop does without."""
        begun = time.monotonic()
        timed = self.timed(list(extras.compiler_contestants(case, self.device)))
        results = {
            "rates": {name: found.to_dict() for name, found in timed.items()},
            "gain": timed["compiled"].rate / timed["plain"].rate,
        }
        return self.record("compiler", begun, results, case=asdict(case), width=TABLE_WIDTH[case.task])

    def profile(self, case: Case) -> Record:
        """Where the time of an update goes."""
        begun, playing = time.monotonic(), list(breakdown.contestants(case, self.device))
        for runner in playing:
            runner.run(2 * runner.block)  # compiles, before it has the machine for itself
        with self.alone():
            rounds = 1 if self.quick else 8
            found = {runner.name: breakdown.profiled(runner, self.device, rounds) for runner in playing}
        return self.record("profile", begun, found, case=asdict(case), width=TABLE_WIDTH[case.task])
