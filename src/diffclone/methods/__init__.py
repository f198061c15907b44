"""Methods that learn a policy. One file per method, registered below."""

from typing import Any

from diffclone.methods.bc import BC
from diffclone.methods.bc_gmm import BCGMM
from diffclone.methods.dbc import DBC
from diffclone.methods.diffusion_policy import DiffusionPolicy
from diffclone.methods.flow_matching import FlowMatching
from diffclone.methods.ibc import IBC
from diffclone.methods.ibc_langevin import IBCLangevin
from diffclone.methods.mip import MIP
from diffclone.model import Method
from diffclone.registry import Registry

METHODS: Registry[type[Method[Any]]] = Registry(
    "method",
    {
        "bc": BC,
        "dbc": DBC,
        "ibc": IBC,
        "ibc-langevin": IBCLangevin,
        "diffusion-policy": DiffusionPolicy,
        "flow-matching": FlowMatching,
        "mip": MIP,
        "bc-gmm": BCGMM,
    },
    group="diffclone.methods",
    subclass_of=Method,
)

__all__ = ["BC", "BCGMM", "DBC", "IBC", "METHODS", "MIP", "DiffusionPolicy", "FlowMatching", "IBCLangevin"]
