"""Demonstrations and what is done to their numbers before learning."""

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.normaliser import Normaliser

__all__ = ["Demonstrations", "Normaliser"]
