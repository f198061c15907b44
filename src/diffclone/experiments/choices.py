"""What an arm is with somebody's settings: the method that is trained."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from diffclone.experiments.presets import PRESETS
from diffclone.experiments.specification import SettingsSource, Variant
from diffclone.methods import DBC, IBC, DiffusionPolicy
from diffclone.model import Method

ORDER: dict[SettingsSource, tuple[str, ...]] = {
    "ours": ("best", "brief"),
    "paper": ("paper", "brief"),
    "release": ("release", "paper", "brief"),
}
"""Presets to look for. Where the paper gives no settings for a task, ours are taken."""

QUICK_UPDATES, QUICK_SEEDS, QUICK_EPISODES = 64, 2, 2


@final
@dataclass(frozen=True)
class Options:
    """How experiments are run."""

    source: SettingsSource = "ours"
    seeds: int = 5
    episodes: int | None = None
    """A member; none for `episodes_of` the task."""
    quick: bool = False
    """Hardly any training: shows that everything works, and is never compared."""
    only: tuple[str, ...] = ()
    """Tasks and methods; none for all."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Demonstrations by task, where they are not the bundled ones."""


def preset_of(arm: Variant, source: SettingsSource) -> str:
    """The name of the settings in PRESETS."""
    wanted = (arm.preset,) if arm.preset and source == "ours" else ORDER[source]
    suffix = f"-{arm.guide}" if arm.guide else ""
    names = [f"{arm.task}/{arm.method}/{name}{suffix}" for name in wanted]
    return next((name for name in names if name in PRESETS), names[-1])


def method_of(arm: Variant, source: SettingsSource, *, quick: bool = False) -> Method[Any]:
    """Its settings."""
    method = replace(PRESETS[preset_of(arm, source)].method, **arm.overrides)
    return shortened(method) if quick else method


def shortened(method: Method[Any]) -> Method[Any]:
    """The same method with hardly any training, and a hasty choice of actions."""

    def brief(model: Any) -> Any:
        return replace(model, training=replace(model.training, updates=QUICK_UPDATES))

    short = brief(method)
    if isinstance(short, DBC):
        encoder = None if short.encoder is None else brief(short.encoder)
        return replace(short, guide=brief(short.guide), encoder=encoder)
    if isinstance(short, IBC):
        return replace(short, counter_examples=8, samples=64)
    return replace(short, sampler="ddim", calls=2) if isinstance(short, DiffusionPolicy) else short
