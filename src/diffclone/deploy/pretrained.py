"""The trained policies in the package: for each task, the first member of a preset, with weights in half precision.

The model card of each policy names its data and scores; docs/reproduction.md has the scores of all members.
"""

from importlib import resources
from pathlib import Path

import torch

from diffclone.errors import InvalidSettings
from diffclone.policy import Policy

FOLDER = Path(str(resources.files("diffclone.assets"))) / "pretrained"
DEFAULT_METHOD = "dbc"


def pretrained_names() -> list[str]:
    """Return the names TASK/METHOD of all policies in the package."""
    return sorted(f"{method.parent.name}/{method.name}" for method in FOLDER.glob("*/*") if method.is_dir())


def pretrained(name: str, *, device: torch.device | str = "cpu") -> Policy:
    """Load a trained policy of the package.

    Args:
        name: a task, e.g. "maze", or TASK/METHOD, e.g. "maze/bc". Without a method it is DBC's.
        device: a device by torch's name.
    """
    full, known = name if "/" in name else f"{name}/{DEFAULT_METHOD}", pretrained_names()
    if full not in known:
        raise InvalidSettings(f"the package has no policy named {name!r}; it has {', '.join(known)}.")
    return Policy.load(FOLDER / full, device=device)
