"""Cases of training that are timed: the released settings of a task, trained as the library trains them.

Weights are fresh ones, also of the guide of a DBC policy: how long an update takes does not depend on them. The loop
believes in a long training, and so takes the path of one; a short one is timed beside it where its path is another.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, final

import torch
from torch import nn

from benchmarks.speed.timing import Contestant
from diffclone.errors import InvalidSettings
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
"""Updates that the loop is told of."""

SINES, LESS_PRECISE = "ours, by sines", "ours, less precise"
"""Names of contestants."""

LESS: Mapping[str, Precision] = {"cuda": "tf32", "cpu": "bfloat16"}
"""The faster products of each device."""

RIVALS = ("released", "vmapped")
"""Files of benchmarks/ that train the same in other ways."""


@final
@dataclass(frozen=True)
class Case:
    """What is trained."""

    model: Literal["guide", "bc", "dbc"]
    task: str
    members: int

    @property
    def label(self) -> str:
        """In words."""
        return f"{self.model}, {self.task}, {self.members} member{'s' if self.members > 1 else ''}"

    def settings(self) -> Model[Any]:
        """The released ones, for a long training."""
        return lasting(self.settings_of_method() if self.model != "guide" else self.guide(), LONG_RUN)

    def settings_of_method(self) -> Method[Any]:
        """Of the policy."""
        return PRESETS[f"{self.task}/{'bc' if self.model == 'bc' else 'dbc'}/release"].method

    def guide(self) -> Model[Any]:
        """The diffusion model of the task."""
        method = PRESETS[f"{self.task}/dbc/release"].method
        assert isinstance(method, DBC)
        return method.guide


@final
@dataclass(frozen=True, eq=False)
class Ground:
    """What all contestants of a case are given."""

    case: Case
    model: Model[Any]
    session: Session
    """With the normalised pairs."""
    fixed: dict[str, nn.Module]
    """The weights of a guide, which are not trained here."""

    def start(self) -> nn.Module:
        """Fresh weights, the same for all, on the CPU."""
        rng = Rng(range(self.case.members), dtype=self.session.dtype, path=self.case.model)
        return self.model.init(self.session.dims, rng["init"])


def lasting(model: Model[Any], updates: int) -> Model[Any]:
    """The same, trained for so long."""
    return replace(model, training=replace(model.training, updates=updates))


def ground(case: Case, device: torch.device, dtype: torch.dtype = torch.float32) -> Ground:
    """Demonstrations of the task on the device, and what is needed besides."""
    model, method = case.settings(), case.settings_of_method()
    _, session = prepare_session(TASKS[case.task].demonstrations(), method.normalisation, device, dtype)
    fixed: dict[str, nn.Module] = {}
    for name, part in model.needs().items():
        net = part.init(session.dims, Rng([0], dtype=dtype, path=name)["init"]).to(device)
        fixed[name] = net.requires_grad_(requires_grad=False)
    return Ground(case, model, session, fixed)


def updates_of(
    given: Ground,
    model: Model[Any] | None = None,
    precision: Precision = "float32",
    *,
    compiled: bool | None = None,
) -> Shares:
    """What the loop makes of a stage, ready to run; compiled where the loop would, or as said."""
    session, seeds = given.session, tuple(range(given.case.members))
    rng = Rng(seeds, device=session.device, dtype=session.dtype, path=given.case.model)
    stack = Stack(seeds, {})
    made = model or given.model
    return Shares(made, stack, given.fixed, session.data, session.dims, rng, precision, compiled=compiled)


def ours(given: Ground) -> Contestant:
    """The library's own loop, on its path for long trainings."""
    return contestant("ours", given.case.members, updates_of(given))


def ours_short(given: Ground) -> Contestant:
    """Its path for short ones."""
    return contestant("ours, short run", given.case.members, updates_of(given, lasting(given.model, SHORT_RUN)))


def by_sines(model: Model[Any]) -> DiffusionGuide | None:
    """The same diffusion model, if it is one, told its step by sines."""
    return replace(model, conditioning="sinusoidal") if isinstance(model, DiffusionGuide) else None


def ours_by_sines(given: Ground) -> Iterator[Contestant]:
    """A diffusion model that knows its step by sines, as is the library's default, instead of by learned tables."""
    if (model := by_sines(given.model)) is not None:
        yield contestant(SINES, given.case.members, updates_of(given, model))


def ours_less_precise(given: Ground) -> Contestant:
    """With faster products of matrices; a diffusion model also by sines."""
    made = updates_of(given, by_sines(given.model), LESS[given.session.device.type])
    return contestant(LESS_PRECISE, given.case.members, made)


def contestant(name: str, members: int, updates: Shares) -> Contestant:
    """A stage that takes turns."""

    def run(count: int) -> None:
        updates.run(count)

    return Contestant(name, members, run, block=BLOCK, sets_threads=True)


def cases(device: torch.device, tasks: tuple[str, ...], *, quick: bool) -> Iterator[Case]:
    """What the targets speak of comes first: a run that is cut short has it."""
    if quick:
        yield from (Case("guide", tasks[0], 1), Case("dbc", tasks[0], 2))
        return
    accelerated = device.type == "cuda"
    yield from (Case("guide", tasks[0], 1), Case("guide", tasks[0], 24))
    yield from (Case("dbc", tasks[0], 24), Case("dbc", tasks[0], 1))
    for task in tasks[1:]:
        wide = TABLE_WIDTH[task] > 1024
        sizes = (1, 8) if accelerated or not wide else (1,)
        yield from (Case("guide", task, members) for members in sizes)
    yield from (Case("guide", tasks[0], members) for members in ((64, 8, 3) if accelerated else (8, 3)))
    yield from (Case("bc", tasks[0], members) for members in (24, 1))
    if accelerated:
        yield from (Case("guide", task, 24) for task in tasks[1:] if TABLE_WIDTH[task] <= 1024)


def find_rivals(folder: Path | None) -> dict[str, ModuleType]:
    """The other ways to train, from benchmarks/ of a checkout: of the folder given, or beside this package."""
    where = folder or Path(__file__).parents[3] / "benchmarks"
    if not all((where / f"{name}.py").exists() for name in RIVALS):
        if folder is not None:
            raise InvalidSettings(
                f"{folder} has no {' and no '.join(f'{name}.py' for name in RIVALS)}; give benchmarks/."
            )
        return {}
    if str(where) not in sys.path:
        sys.path.insert(0, str(where))  # they import each other
    return {name: importlib.import_module(name) for name in RIVALS}


TABLE_WIDTH = {
    name.partition("/")[0]: preset.method.guide.width  # pyright: ignore[reportAttributeAccessIssue]
    for name, preset in PRESETS.items()
    if name.endswith("/dbc/release")
}
"""Of the diffusion model of each task."""
