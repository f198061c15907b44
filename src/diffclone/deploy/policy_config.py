"""The config.json of a saved policy: reading it, and checking its keys and types."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

from diffclone.errors import DiffcloneError, InvalidFile, InvalidSettings
from diffclone.files import read_json
from diffclone.methods import METHODS
from diffclone.model import Method
from diffclone.settings import from_dict
from diffclone.training.members import Member

FORMAT = 1
"""Version of the folder that `Policy.save` writes."""


@final
@dataclass(frozen=True)
class PolicyConfig:
    """The keys of config.json that loading a policy needs."""

    method: Method[Any]
    members: tuple[Member, ...]
    observation_size: int
    action_size: int
    data: Mapping[str, Any]
    diverged: tuple[int, ...] = ()
    """Members with weights that are not finite."""
    sha256: str | None = None
    """The hash of model.safetensors."""

    def __post_init__(self) -> None:
        if min(self.observation_size, self.action_size, len(self.members)) < 1:
            raise InvalidSettings("observation_size, action_size and the number of members must be at least 1.")
        for k, member in enumerate(self.members):
            if not isinstance(member.get("seed"), int):
                raise InvalidSettings(f"members[{k}].seed must be a whole number; it is {member.get('seed')!r}.")

    @classmethod
    def read(cls, path: Path) -> "PolicyConfig":
        """Read and check a file. An error names the file and the key."""
        values = read_json(path)
        if not isinstance(values, dict) or "format" not in values:
            raise InvalidFile(f"{path} is not the config.json of a policy: it has no format.")
        found = cast(dict[str, Any], values)
        if found["format"] != FORMAT:
            raise InvalidFile(
                f"{path.parent} has format {found['format']}; this version of diffclone reads format {FORMAT}."
            )
        known = {f.name: found[f.name] for f in dataclasses.fields(cls) if f.name in found}
        try:
            method = from_dict(METHODS, found.get("method"), "method")
            return from_dict(cls, known | {"method": method})
        except DiffcloneError as error:
            raise InvalidFile(f"{path}: {error}") from None
