"""Methods that learn a policy. One file per method, registered below."""

from typing import Any

from diffclone.methods.bc import BC
from diffclone.methods.dbc import DBC
from diffclone.methods.diffusion_policy import DiffusionPolicy
from diffclone.methods.ibc import IBC
from diffclone.methods.ibc_langevin import IBCLangevin
from diffclone.model import Method
from diffclone.registry import Registry

METHODS: Registry[type[Method[Any]]] = Registry(
    "method",
    {"bc": BC, "dbc": DBC, "ibc": IBC, "ibc-langevin": IBCLangevin, "diffusion-policy": DiffusionPolicy},
    group="diffclone.methods",
    subclass_of=Method,
)

__all__ = ["BC", "DBC", "IBC", "METHODS", "DiffusionPolicy", "IBCLangevin"]
