"""The fingerprints of a run's episodes, stored in its episodes.json, so that other code can recognise training data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

from diffclone.data import Demonstrations
from diffclone.errors import InvalidFile
from diffclone.files import read_json, write_json

FORMAT = 1
"""Version of the file."""
FILE = "episodes.json"


@final
@dataclass(frozen=True)
class RunEpisodes:
    """Fingerprints of the episodes that a run was trained on, and of those that it held out."""

    trained: tuple[str, ...]
    held_out: tuple[str, ...] = ()
    source: str | None = None
    """The file or task that the episodes were loaded from, if known."""
    read: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options with which the file was read (`ReadOptions.to_dict`)."""

    @classmethod
    def from_split(
        cls, whole: Demonstrations, training: Demonstrations, original: Demonstrations, source: str | None = None
    ) -> "RunEpisodes":
        """Return the fingerprints of a run that is trained on `training`, a part of `whole`.

        `original` has the episodes of `whole` before noise was added or steps were removed. An original counts as
        trained on if its changed episode is.
        """
        now, before, known = (
            whole.episode_fingerprints,
            original.episode_fingerprints,
            set(training.episode_fingerprints),
        )
        if len(before) != len(now):  # some episodes have lost all their steps, so originals have no counterpart
            return cls((*before, *known), (), source)
        pairs = list(zip(before, now, strict=True))
        trained = dict.fromkeys(fingerprint for pair in pairs if pair[1] in known for fingerprint in pair)
        return cls(tuple(trained), tuple(b for b, n in pairs if n not in known and b not in trained), source)

    def save(self, folder: Path) -> None:
        """Write the file into a run's folder."""
        values = {"format": FORMAT, **asdict(self)}
        if not self.read:
            del values["read"]
        write_json(folder / FILE, values)

    @classmethod
    def load(cls, folder: Path) -> "RunEpisodes | None":
        """Read the file of a run's folder; None if there is none, as in runs of older versions."""
        if not (folder / FILE).exists():
            return None
        values = read_json(folder / FILE)
        try:
            return cls(tuple(values["trained"]), tuple(values["held_out"]), values["source"], values.get("read", {}))
        except (KeyError, TypeError):
            raise InvalidFile(f"{folder / FILE} is damaged: it must have trained, held_out and source.") from None
