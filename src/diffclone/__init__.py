"""Diffusion Model-Augmented Behavioral Cloning: learn a policy from demonstrations, many seeds at once."""

from diffclone.api import fit
from diffclone.data import Demonstrations, Normaliser
from diffclone.errors import DiffcloneError
from diffclone.evaluation import Scores, evaluate
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Guide, Method, Model, Training
from diffclone.nn import Network
from diffclone.policy import Policy

__all__ = [
    "BC",
    "DBC",
    "Demonstrations",
    "DiffcloneError",
    "DiffusionGuide",
    "Guide",
    "Method",
    "Model",
    "Network",
    "Normaliser",
    "Policy",
    "Scores",
    "Training",
    "evaluate",
    "fit",
]
