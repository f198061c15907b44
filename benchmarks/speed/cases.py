"""The trainings that are timed: released settings of a task, run as the library runs them.

Weights are random, also those of the guide of a DBC policy: the time of an update does not depend on them. The loop is
told that the training is long, and so takes the path of a long training; a short one is timed beside it where its path
differs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import torch
from torch import nn

from benchmarks.speed.timing import Candidate
from diffclone.experiments import PRESETS
from diffclone.guides import DiffusionGuide
from diffclone.methods import DBC
from diffclone.model import Method, Model
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from diffclone.training import Precision, Stack
from diffclone.training.session import Session, prepare_session
from diffclone.training.shares import Shares
from diffclone.training.step import BLOCK

LONG_RUN, SHORT_RUN = 1_000_000, 10_000
"""Lengths of training that the loop is told."""

SINUSOIDAL, FAST = "ours, by sines", "ours, less precise"
"""Names of candidates in Records: a sinusoidal step embedding, and the same with faster matrix products."""

FAST_PRECISION: Mapping[str, Precision] = {"cuda": "tf32", "cpu": "bfloat16"}
"""The faster matrix products of each device."""


@final
@dataclass(frozen=True)
class Case:
    """A model, a task and a number of members."""

    model: Literal["guide", "bc", "dbc"]
    task: str
    members: int

    @property
    def label(self) -> str:
        """The case as text."""
        return f"{self.model}, {self.task}, {self.members} member{'s' if self.members > 1 else ''}"

    def settings(self) -> Model[Any]:
        """Return the released settings, with a long training."""
        return with_updates(self.method() if self.model != "guide" else self.guide(), LONG_RUN)

    def method(self) -> Method[Any]:
        """Return the released settings of the policy."""
        return PRESETS[f"{self.task}/{'bc' if self.model == 'bc' else 'dbc'}/release"].method

    def guide(self) -> Model[Any]:
        """Return the released settings of the diffusion model."""
        method = PRESETS[f"{self.task}/dbc/release"].method
        assert isinstance(method, DBC)
        return method.guide


@final
@dataclass(frozen=True, eq=False)
class TrainingSetup:
    """What all candidates of a case share."""

    case: Case
    model: Model[Any]
    session: Session
    """With the normalised demonstrations on the device."""
    fixed: dict[str, nn.Module]
    """Weights of the guide, which are not trained here."""

    def start(self) -> nn.Module:
        """Return the initial weights, the same for all candidates, on the CPU."""
        rng = Rng(range(self.case.members), dtype=self.session.dtype, path=self.case.model)
        return self.model.init(self.session.dims, rng["init"])


def with_updates(model: Model[Any], updates: int) -> Model[Any]:
    """Return the model with another length of training."""
    return replace(model, training=replace(model.training, updates=updates))


def prepare_setup(case: Case, device: torch.device, dtype: torch.dtype = torch.float32) -> TrainingSetup:
    """Load the demonstrations onto the device and initialise the guide."""
    model = case.settings()
    demos = TASKS[case.task].demonstrations()
    _, session = prepare_session(demos, case.method().normalisation, device, dtype)
    return TrainingSetup(case, model, session, initial_parts(model, session))


def initial_parts(model: Model[Any], session: Session) -> dict[str, nn.Module]:
    """Return random weights of the parts that a model needs."""
    parts: dict[str, nn.Module] = {}
    for name, part in model.needs().items():
        net = part.init(session.dims, Rng([0], dtype=session.dtype, path=name)["init"]).to(session.device)
        parts[name] = net.requires_grad_(requires_grad=False)
    return parts


def make_updates(setup: TrainingSetup, model: Model[Any] | None = None, precision: Precision = "float32") -> Shares:
    """Return the library's training loop for one stage, ready to run."""
    session, seeds = setup.session, tuple(range(setup.case.members))
    rng = Rng(seeds, device=session.device, dtype=session.dtype, path=setup.case.model)
    made = model or setup.model
    return Shares(made, Stack(seeds, {}), setup.fixed, session.data, session.dims, rng, precision)


def ours(setup: TrainingSetup) -> Candidate:
    """Return the library's loop, on its path for long trainings."""
    return candidate("ours", setup.case.members, make_updates(setup))


def ours_short(setup: TrainingSetup) -> Candidate:
    """Return the library's loop, on its path for short trainings."""
    updates = make_updates(setup, with_updates(setup.model, SHORT_RUN))
    return candidate("ours, short run", setup.case.members, updates)


def with_sinusoidal_embedding(model: Model[Any]) -> DiffusionGuide | None:
    """Return a diffusion model with a sinusoidal step embedding; None for another kind of model."""
    return replace(model, conditioning="sinusoidal") if isinstance(model, DiffusionGuide) else None


def ours_sinusoidal(setup: TrainingSetup) -> Iterator[Candidate]:
    """Yield a diffusion model with a sinusoidal step embedding, the library's default, instead of learned tables."""
    if (model := with_sinusoidal_embedding(setup.model)) is not None:
        yield candidate(SINUSOIDAL, setup.case.members, make_updates(setup, model))


def ours_fast(setup: TrainingSetup) -> Candidate:
    """Return the loop with faster matrix products; a diffusion model also has a sinusoidal step embedding."""
    precision = FAST_PRECISION[setup.session.device.type]
    updates = make_updates(setup, with_sinusoidal_embedding(setup.model), precision)
    return candidate(FAST, setup.case.members, updates)


def candidate(name: str, members: int, updates: Shares) -> Candidate:
    """Wrap a training loop as a candidate."""

    def run(count: int) -> None:
        updates.run(count)

    return Candidate(name, members, run, block=BLOCK, sets_threads=True)


def list_cases(device: torch.device, tasks: tuple[str, ...], *, quick: bool) -> Iterator[Case]:
    """Yield the cases to time, those with a target first, so that an interrupted run has them."""
    if quick:
        yield from (Case("guide", tasks[0], 1), Case("dbc", tasks[0], 2))
        return
    on_gpu = device.type == "cuda"
    yield from (Case("guide", tasks[0], 1), Case("guide", tasks[0], 24))
    yield from (Case("dbc", tasks[0], 24), Case("dbc", tasks[0], 1))
    for task in tasks[1:]:
        wide = TABLE_WIDTH[task] > 1024
        sizes = (1, 8) if on_gpu or not wide else (1,)
        yield from (Case("guide", task, members) for members in sizes)
    yield from (Case("guide", tasks[0], members) for members in ((64, 8, 3) if on_gpu else (8, 3)))
    yield from (Case("bc", tasks[0], members) for members in (24, 1))
    if on_gpu:
        yield from (Case("guide", task, 24) for task in tasks[1:] if TABLE_WIDTH[task] <= 1024)


TABLE_WIDTH = {
    name.partition("/")[0]: preset.method.guide.width  # pyright: ignore[reportAttributeAccessIssue]
    for name, preset in PRESETS.items()
    if name.endswith("/dbc/release")
}
"""Width of the diffusion model of each task."""
