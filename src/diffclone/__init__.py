"""Diffusion Model-Augmented Behavioral Cloning: learn a policy from demonstrations, many seeds at once.

Names are imported when they are first used, so that parts of the package that need no torch work without it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diffclone.data import Demonstrations, Normaliser
    from diffclone.deploy.pretrained import pretrained
    from diffclone.errors import DiffcloneError
    from diffclone.evaluation import Scores, evaluate
    from diffclone.fit import fit
    from diffclone.guides import DiffusionGuide, EnergyGuide, GANGuide, VAEGuide
    from diffclone.methods import BC, BCGMM, DBC, IBC, MIP, DiffusionPolicy, FlowMatching, IBCLangevin
    from diffclone.model import Guide, Method, Model, Training
    from diffclone.nn import Network
    from diffclone.nn.encoder import Encoder
    from diffclone.policy import Policy
    from diffclone.tasks.recording import RecordDemonstrations
    from diffclone.training.search import SearchResult, search

__all__ = [
    "BC",
    "BCGMM",
    "DBC",
    "IBC",
    "MIP",
    "Demonstrations",
    "DiffcloneError",
    "DiffusionGuide",
    "DiffusionPolicy",
    "Encoder",
    "EnergyGuide",
    "FlowMatching",
    "GANGuide",
    "Guide",
    "IBCLangevin",
    "Method",
    "Model",
    "Network",
    "Normaliser",
    "Policy",
    "RecordDemonstrations",
    "Scores",
    "SearchResult",
    "Training",
    "VAEGuide",
    "evaluate",
    "fit",
    "pretrained",
    "search",
]

_MODULES = {
    "data": ("Demonstrations", "Normaliser"),
    "deploy.pretrained": ("pretrained",),
    "errors": ("DiffcloneError",),
    "evaluation": ("Scores", "evaluate"),
    "fit": ("fit",),
    "guides": ("DiffusionGuide", "EnergyGuide", "GANGuide", "VAEGuide"),
    "methods": ("BC", "BCGMM", "DBC", "IBC", "MIP", "DiffusionPolicy", "FlowMatching", "IBCLangevin"),
    "model": ("Guide", "Method", "Model", "Training"),
    "nn": ("Network",),
    "nn.encoder": ("Encoder",),
    "policy": ("Policy",),
    "tasks.recording": ("RecordDemonstrations",),
    "training.search": ("SearchResult", "search"),
}
"""The module that defines each name: the imports above, for the running program."""


def __getattr__(name: str) -> Any:
    """Import a public name or a submodule on first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"diffclone.{module}"), name)
    if not name.startswith("_"):
        try:
            return import_module(f"diffclone.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"diffclone.{name}":  # a package that the submodule needs
                raise
    raise AttributeError(f"module 'diffclone' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names beside the attributes of the module."""
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps `diffclone.fit` the function: the import of the module `diffclone.fit` would replace it by the module."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value.fit if name == "fit" and isinstance(value, ModuleType) else value)


sys.modules[__name__].__class__ = _Package
