"""The measurements of `python -m benchmarks.speed`: each one makes a Record."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, final

import torch

from benchmarks import released, vmapped
from benchmarks.speed import profiling, variants
from benchmarks.speed.cases import (
    FAST_PRECISION,
    TABLE_WIDTH,
    Case,
    list_cases,
    make_updates,
    ours,
    ours_fast,
    ours_short,
    ours_sinusoidal,
    prepare_setup,
    with_sinusoidal_embedding,
)
from benchmarks.speed.roofline import count_work, measure_peaks
from benchmarks.speed.timing import Candidate, Timing, describe_machine, device_name, time_in_turns
from diffclone.model import Model
from diffclone.records import Record
from diffclone.settings import to_dict


@final
class Job(NamedTuple):
    """A method of `Measurements` and its argument."""

    method: str
    given: Case | str | None = None

    @property
    def label(self) -> str:
        """The argument as text."""
        return self.given.label if isinstance(self.given, Case) else self.given or ""


def jobs(part: str, device: torch.device, tasks: Sequence[str], *, quick: bool) -> list[Job]:
    """Return the jobs of a part; none where the device does not support it."""
    on_gpu = device.type == "cuda"
    some = tasks[: 1 if quick else 2]
    found: dict[str, list[Job]] = {
        "floor": [Job("peaks")],
        "train": [Job("case", case) for case in list_cases(device, tuple(tasks), quick=quick)],
        "memory": [Job("memory", task) for task in some] + ([] if quick else [Job("transitions")]),
        "precision": [Job("precision", task) for task in some],
        "conditioning": [Job("conditioning", task) for task in (some if on_gpu else some[:1])],
        "variants": [Job("variants")],
        "profile": [Job("profile", case) for case in profiling.profiling_cases(device, quick=quick)],
    }
    return [] if part == "memory" and not on_gpu else found[part]


@final
@dataclass(frozen=True)
class Measurements:
    """Runs measurements on one device."""

    device: torch.device
    quick: bool

    def run(self, job: Job) -> Record:
        """Run one job."""
        method: Callable[..., Record] = getattr(self, job.method)
        return method() if job.given is None else method(job.given)

    def record(self, name: str, start: float, results: Mapping[str, Any], **settings: Any) -> Record:
        """Make a Record of results."""
        return Record(
            kind="benchmark",
            settings={"benchmark": name, "machine": describe_machine(), **settings},
            members=[],
            data={},
            results=results,
            device=device_name(self.device),
            seconds=time.monotonic() - start,
            quick=self.quick,
        )

    @property
    def turns(self) -> dict[str, Any]:
        """Length and number of rounds; fewer on a GPU, which is rarely shared and compiles for long."""
        if self.quick:
            return {"window": 0.01, "rounds": 1}
        return {"window": 0.5, "rounds": 3 if self.device.type == "cuda" else 5}

    def time(self, candidates: Sequence[Candidate]) -> dict[str, Timing]:
        """Time candidates in turns."""
        return time_in_turns(candidates, self.device, **self.turns)

    def peaks(self) -> Record:
        """Measure the peak rates of the machine."""
        start = time.monotonic()
        return self.record("floor", start, measure_peaks(self.device, quick=self.quick))

    def case(self, case: Case) -> Record:
        """Time one case: ours, on both of its paths where there are two, and other ways to train."""
        start, setup = time.monotonic(), prepare_setup(case, self.device)
        candidates = [ours(setup)]
        if make_updates(setup).compiled:  # a short training is not compiled
            candidates.append(ours_short(setup))
        candidates += [*ours_sinusoidal(setup), ours_fast(setup)]
        candidates += [released.candidate(setup), vmapped.candidate(setup)]
        rates = {name: found.to_dict() for name, found in self.time(candidates).items()}
        mine = rates["ours"]["member_updates_per_second"]

        def counted(model: Model[Any] | None) -> dict[str, int] | None:
            found = None if model is None else count_work(model, setup.session.dims, case.members)
            return None if found is None else asdict(found)

        results = {
            "rates": rates,
            "ratio": {name: mine / other["member_updates_per_second"] for name, other in rates.items()},
            "work": counted(setup.model),
            "work_by_sines": counted(with_sinusoidal_embedding(setup.model)),
            "matmul_precision": setup.session.precision,
            "less_precise": FAST_PRECISION[self.device.type],
        }
        model = to_dict(setup.model)
        width = TABLE_WIDTH[case.task]
        return self.record("training", start, results, case=asdict(case), model=model, width=width, **self.turns)

    def memory(self, task: str) -> Record:
        """Measure memory by members. The first training in a process also allocates workspaces and is not counted."""
        start, sizes = time.monotonic(), (1, 2) if self.quick else (1, 8, 64)
        variants.peak_memory(self.device, Case("guide", task, sizes[0]))
        taken = {str(members): variants.peak_memory(self.device, Case("guide", task, members)) for members in sizes}
        return self.record("memory", start, {"bytes": taken}, task=task, width=TABLE_WIDTH[task])

    def transitions(self) -> Record:
        """Measure memory for a large data set."""
        start = time.monotonic()
        return self.record("transitions", start, variants.many_transitions(self.device))

    def precision(self, task: str) -> Record:
        """Time each precision, and compare losses after the same number of updates."""
        start, case = time.monotonic(), Case("guide", task, 8 if self.device.type == "cuda" else 1)
        updates = 64 if self.quick else variants.PRECISION_UPDATES[self.device.type]
        losses: dict[str, float] = {}
        timed = self.time(list(variants.precision_candidates(case, self.device, losses, updates=updates)))
        results = {"rates": {name: found.to_dict() for name, found in timed.items()}, "losses": losses}
        return self.record(
            "precision", start, results, case=asdict(case), updates=updates, width=TABLE_WIDTH[case.task]
        )

    def conditioning(self, task: str) -> Record:
        """Compare losses with a sinusoidal step embedding and with learned tables."""
        start, case = time.monotonic(), Case("guide", task, 8 if self.device.type == "cuda" else 2)
        updates = 64 if self.quick else variants.CONDITIONING_UPDATES
        losses = variants.conditioning_losses(case, self.device, updates=updates)
        return self.record(
            "conditioning", start, {"losses": losses}, case=asdict(case), updates=updates, width=TABLE_WIDTH[task]
        )

    def variants(self) -> Record:
        """Time the options of DBC beside plain DBC and BC."""
        start, members = time.monotonic(), 8 if self.device.type == "cuda" else 1
        timed = self.time(list(variants.variant_candidates(self.device, members)))
        results = {
            "rates": {name: found.to_dict() for name, found in timed.items()},
            "cost_to_dbc": {name: timed["DBC"].rate / found.rate for name, found in timed.items()},
            "cost_to_bc": {name: timed["BC"].rate / found.rate for name, found in timed.items()},
        }
        return self.record("variants", start, results, task="maze", members=members)

    def profile(self, case: Case) -> Record:
        """Break down the time of an update."""
        start, found = time.monotonic(), dict[str, Any]()
        for candidate in profiling.candidates(case, self.device):
            candidate.run(2 * candidate.block)  # compiles and captures
            found[candidate.name] = profiling.profile_updates(candidate, self.device, 1 if self.quick else 8)
        return self.record("profile", start, found, case=asdict(case), width=TABLE_WIDTH[case.task])
