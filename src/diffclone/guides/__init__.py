"""Guides: models of the expert's state-action pairs. One file per guide, registered below."""

from typing import Any

from diffclone.guides.diffusion import DiffusionGuide
from diffclone.guides.energy import EnergyGuide
from diffclone.guides.gan import GANGuide
from diffclone.guides.vae import VAEGuide
from diffclone.model import Guide
from diffclone.registry import Registry

GUIDES: Registry[type[Guide[Any]]] = Registry(
    "guide",
    {"diffusion": DiffusionGuide, "energy": EnergyGuide, "vae": VAEGuide, "gan": GANGuide},
    group="diffclone.guides",
    subclass_of=Guide,
)

__all__ = ["GUIDES", "DiffusionGuide", "EnergyGuide", "GANGuide", "VAEGuide"]
