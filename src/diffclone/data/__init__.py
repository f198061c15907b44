"""Demonstrations and what is done to their numbers before learning."""

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.normaliser import Normaliser
from diffclone.data.streamed import AnyDemonstrations, Streamed

__all__ = ["AnyDemonstrations", "Demonstrations", "Normaliser", "Streamed"]
