"""Generative models of the expert's pairs. One file each, one line here."""

from typing import Any

from diffclone.guides.diffusion import DiffusionGuide
from diffclone.model import Guide
from diffclone.registry import Registry

GUIDES: Registry[type[Guide[Any]]] = Registry("guide", {"diffusion": DiffusionGuide})

__all__ = ["GUIDES", "DiffusionGuide"]
