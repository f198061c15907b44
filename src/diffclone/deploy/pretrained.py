"""Policies that come with the package: one member of a preset each, the first, its weights in half precision.

The card beside each says what it was trained on and how it scored; docs/reproduction.md has all members' scores.
"""

from importlib import resources
from pathlib import Path

import torch

from diffclone.errors import InvalidSettings
from diffclone.policy import Policy

FOLDER = Path(str(resources.files("diffclone.assets"))) / "pretrained"
METHOD = "dbc"
"""Where none is said."""


def names() -> list[str]:
    """TASK/METHOD of all that there are."""
    return sorted(f"{method.parent.name}/{method.name}" for method in FOLDER.glob("*/*") if method.is_dir())


def pretrained(name: str, *, device: torch.device | str = "cpu") -> Policy:
    """A policy by its task, or by TASK/METHOD."""
    full = name if "/" in name else f"{name}/{METHOD}"
    if full not in names():
        raise InvalidSettings(f"no policy named {name!r} comes with the package; there are {', '.join(names())}.")
    return Policy.load(FOLDER / full, device=device)
