"""Diffusion Model-Augmented Behavioral Cloning: learn a policy from demonstrations, many seeds at once."""

from diffclone.data import Demonstrations, Normaliser
from diffclone.deploy.pretrained import pretrained
from diffclone.errors import DiffcloneError
from diffclone.evaluation import Scores, evaluate
from diffclone.fit import fit
from diffclone.guides import DiffusionGuide, EnergyGuide, GANGuide, VAEGuide
from diffclone.methods import BC, DBC, IBC, DiffusionPolicy, IBCLangevin
from diffclone.model import Guide, Method, Model, Training
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder
from diffclone.policy import Policy

__all__ = [
    "BC",
    "DBC",
    "IBC",
    "Demonstrations",
    "DiffcloneError",
    "DiffusionGuide",
    "DiffusionPolicy",
    "Encoder",
    "EnergyGuide",
    "GANGuide",
    "Guide",
    "IBCLangevin",
    "Method",
    "Model",
    "Network",
    "Normaliser",
    "Policy",
    "Scores",
    "Training",
    "VAEGuide",
    "evaluate",
    "fit",
    "pretrained",
]
