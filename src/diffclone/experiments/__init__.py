"""The paper as data: settings with their sources."""

from diffclone.experiments.presets import PRESETS, Preset, preset

__all__ = ["PRESETS", "Preset", "preset"]
