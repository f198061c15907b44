"""The `convert` command."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from diffclone.cli.console import print_json, print_message
from diffclone.data import Demonstrations
from diffclone.data.formats import describe
from diffclone.errors import InvalidData
from diffclone.tasks import TASKS


@dataclass(frozen=True)
class Convert:
    """Write demonstrations in another format, number for number; pictures and rewards stay behind."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A task's name; a file (.npz, .pt, .hdf5 of robomimic or D4RL, .zarr.zip); a folder of Minari, LeRobot or zarr;
    minari:ID or lerobot:FOLDER."""
    out: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OUT")]
    """What to write: NAME.npz, NAME.hdf5 (robomimic), minari:ID-v0 or lerobot:FOLDER. Nothing is overwritten."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it, and read it back."""
        demos = TASKS[self.data].demonstrations() if self.data in TASKS else Demonstrations.load(self.data)
        print_message(f"{self.data} is {describe(demos)}")
        demos.save(self.out)
        again = Demonstrations.load(self.out)
        if again.fingerprint != demos.fingerprint:
            raise InvalidData(
                f"{self.out} reads back as {again!r}, not as {demos!r}: do not use it. Please report this as a fault."
            )
        if self.json:
            counts = {"episodes": again.num_episodes, "steps": again.num_steps}
            print_json({"out": self.out, **counts, "fingerprint": again.fingerprint})
        else:
            print_message(f"wrote {self.out}, {again!r}. Next: diffclone train {self.out} --out RUN")
