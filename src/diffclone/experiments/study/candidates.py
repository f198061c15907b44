"""The methods of the study, and the configurations that each may try.

A *try* is a configuration at one snapshot of its training. Every method has the same number of tries.

Training. The learning rate is constant and the weights are averaged with a decay that grows over the first updates, so
nothing in an update depends on the planned length: the snapshot at update n is exactly the policy that a training of n
updates would give. The average spans about the last tenth of the training up to update 9,000, and 1,000 updates later;
it does the work that a decay of the learning rate does in a training of known length.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from diffclone.experiments.presets import PRESETS
from diffclone.model import Method
from diffclone.registry import Registry
from diffclone.training.members import replace_fields

SNAPSHOTS = (500, 1_000, 2_000, 4_000, 8_000, 16_000)
EMA = 0.999
TUNING_SEEDS = tuple(range(5))
FRESH_SEEDS = tuple(range(100, 116))
"""Seeds of reported policies. No choice was made with them."""

RATES = {"training.lr": (1e-3, 3e-4)}
DECAYS = {"training.weight_decay": (0.0, 0.1)}
COEFFICIENTS = {"coefficient": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)}
"""λ; the paper's are between 0.2 and 30."""
CHUNKS = {"horizon": 8, "execute": 4}
"""Actions that a method with chunks predicts, and how many of them it plays before the next call."""


@final
@dataclass(frozen=True)
class TunedMethod:
    """A method with the values that tuning chooses from."""

    name: str
    """Name in tables."""
    preset: str
    """The method's name in the `brief` presets, which define its network, its guide and its normalisation."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that differ from the preset, with dots in the names of nested ones."""
    vary: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Values that members of one stack differ in."""
    apart: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """Values that need a stack of their own."""
    lengths: tuple[int, ...] = SNAPSHOTS
    """Numbers of updates to try."""
    longer: int = 1
    """Factor of the numbers of updates: a diffusion policy learns more slowly."""
    acts_fast: bool = True
    """Whether an action is one pass through a network, so that episodes are run on the CPU."""

    @property
    def snapshots(self) -> tuple[int, ...]:
        """The updates at which policies are tried."""
        return tuple(self.longer * update for update in self.lengths)

    @property
    def stacks(self) -> list[dict[str, Any]]:
        """The values of `apart` of each stack."""
        return [dict(zip(self.apart, values, strict=True)) for values in itertools.product(*self.apart.values())]

    @property
    def tries(self) -> int:
        """The number of configurations, times the number of snapshots."""
        per_stack = len(list(itertools.product(*self.vary.values())))
        return len(self.stacks) * per_stack * len(self.snapshots)

    def with_chunks(self) -> "TunedMethod":
        """Return the method with chunks of actions, and the same tries."""
        return replace(self, name=f"{self.name}, chunks", fields={**self.fields, **CHUNKS})


SINGLE_ACTIONS: dict[str, TunedMethod] = {
    "bc": TunedMethod("BC", "bc", vary={**RATES, "state_noise": (0.0, 0.05, 0.1), **DECAYS}),
    "dbc-paper": TunedMethod("DBC (paper)", "dbc", {"away": 0.0}, vary={**RATES, **COEFFICIENTS}),
    "dbc-ours": TunedMethod("DBC (ours)", "dbc", {"away": 1.0}, vary={**RATES, **COEFFICIENTS}),
    "diffusion-policy": TunedMethod(
        "Diffusion Policy",
        "diffusion-policy",
        {"sampler": "ddim", "calls": 10},
        vary={**RATES, **DECAYS},
        apart={"width": (256, 512, 1024)},
        longer=2,
        acts_fast=False,
    ),
    "diffusion-velocity": TunedMethod(
        "Diffusion Policy, velocity",
        "diffusion-policy",
        {"sampler": "ddim", "calls": 10, "predicts": "velocity"},
        vary={**RATES, **DECAYS},
        apart={"width": (256, 512, 1024)},
        longer=2,
        acts_fast=False,
    ),
    "ibc": TunedMethod(
        "IBC", "ibc", vary={**RATES, **DECAYS}, apart={"counter_examples": (16, 64, 256)}, acts_fast=False
    ),
    "flow-matching": TunedMethod(
        "Flow matching", "flow-matching", vary={**RATES, **DECAYS}, apart={"width": (256, 512, 1024)}, longer=2
    ),
    "shortcut": TunedMethod(
        "One-step flow",
        "flow-matching",
        {"shortcut": 0.25, "calls": 1},
        vary={**RATES, **DECAYS},
        apart={"width": (256, 512, 1024)},
        longer=2,
    ),
    "mip": TunedMethod("MIP", "mip", vary={**RATES, "noise": (0.05, 0.1, 0.2), **DECAYS}),
    "bc-gmm": TunedMethod("BC-GMM", "bc-gmm", vary={**RATES, "state_noise": (0.0, 0.05, 0.1), **DECAYS}),
}
"""`DBC (paper)` has the paper's loss, with the hinge of the released code; `DBC (ours)` adds L_away (κ = 1).
`Diffusion Policy` predicts the noise, as the method that the paper compares with."""
TUNED_METHODS: Registry[TunedMethod] = Registry(
    "method of the study",
    {**SINGLE_ACTIONS, **{f"{key}-chunks": method.with_chunks() for key, method in SINGLE_ACTIONS.items()}},
)
"""Every method, with single actions and with chunks."""
DEFAULT_METHODS = ("bc", "dbc-paper", "dbc-ours", "diffusion-policy", "ibc")
"""The methods of the paper. Later ones are run if they are named: `diffclone reproduce tuning --only mip,maze-25`."""

UNTUNED: dict[str, TunedMethod] = {
    "bc": TunedMethod("BC, untuned", "bc"),
    "dbc-paper": TunedMethod("DBC (paper), untuned", "dbc"),
}
"""The `brief` presets with this schedule (lr 1e-3, the paper's λ, κ = 0), for success along training."""


@final
@dataclass(frozen=True)
class Control:
    """A row beside DBC that shows what the guide contributes."""

    method: str
    """The untuned method that it starts from."""
    fields: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that differ."""
    disturbance: float = 0.0
    """Noise on the executed actions of the expert; its demonstrations are collected again."""


DISTURBED = "BC, disturbed expert"
CONTROLS: dict[str, Control] = {
    "BC without EMA": Control("bc", {"training.ema": None}),
    "BC, noise on states": Control("bc", {"state_noise": 0.1}),
    "BC, weight decay": Control("bc", {"training.weight_decay": 0.1}),
    "BC, dropout": Control("bc", {"network.dropout": 0.1}),
    "BC, smoothness alone": Control("bc", {"smoothness": 1.0}),
    "DBC, untrained guide": Control("dbc-paper", {"guide.training.updates": 1, "guide.training.lr": 1e-12}),
    "DBC, shuffled pairs": Control("dbc-paper", {"guide.shuffle_pairs": True}),
    DISTURBED: Control("bc", disturbance=0.2),
}
"""Controls start from the untuned methods: a tuned λ may be so small that no guide has an effect."""


def build_method(task: str, preset: str, snapshots: Sequence[int], fields: Mapping[str, Any]) -> Method[Any]:
    """Return a method for a task: its `brief` preset with a constant learning rate and averaged weights."""
    schedule = {"training.updates": max(snapshots), "training.decay": "constant", "training.ema": EMA}
    return replace_fields(PRESETS[f"{task}/{preset}/brief"].method, {**schedule, **fields})
