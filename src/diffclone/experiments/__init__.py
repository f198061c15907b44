"""The paper as data: its experiments, its settings (presets) and the numbers it prints.

Importing this package does not import torch; the presets do when they are first used.
"""

from typing import TYPE_CHECKING, Any

from diffclone.experiments.catalogue import EXPERIMENTS
from diffclone.experiments.paper import paper, printed_expert
from diffclone.experiments.specification import Experiment

if TYPE_CHECKING:
    from diffclone.experiments.presets import PRESETS, Preset, preset

__all__ = ["EXPERIMENTS", "PRESETS", "Experiment", "Preset", "paper", "preset", "printed_expert"]


def __getattr__(name: str) -> Any:
    if name not in ("PRESETS", "Preset", "preset"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from diffclone.experiments import presets

    return getattr(presets, name)
