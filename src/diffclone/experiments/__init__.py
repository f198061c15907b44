"""The paper as data: settings with their sources, and the numbers it prints."""

from diffclone.experiments.paper import paper, printed_expert
from diffclone.experiments.presets import PRESETS, Preset, preset

__all__ = ["PRESETS", "Preset", "paper", "preset", "printed_expert"]
