"""Ways to learn a policy. One file each, one line here."""

from typing import Any

from diffclone.methods.bc import BC
from diffclone.methods.dbc import DBC
from diffclone.model import Method
from diffclone.registry import Registry

METHODS: Registry[type[Method[Any]]] = Registry("method", {"bc": BC, "dbc": DBC})

__all__ = ["BC", "DBC", "METHODS"]
