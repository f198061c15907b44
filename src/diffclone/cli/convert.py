"""The `convert` command."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from diffclone.cli.arguments import Data, ReadArguments, Reading, find_demonstrations, print_contents
from diffclone.cli.console import print_json, print_message
from diffclone.cli.hints import next_command
from diffclone.data import Demonstrations
from diffclone.errors import InvalidData


@dataclass(frozen=True)
class Convert:
    """Write demonstrations in another format without changing a number. Camera images and rewards are not written."""

    data: Data
    out: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OUT")]
    """File to write: NAME.npz, NAME.hdf5 (robomimic), minari:ID-v0 or lerobot:FOLDER. Nothing is overwritten."""
    read: Reading = ReadArguments()
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Write the demonstrations, and read them again to check the file."""
        _, demos = find_demonstrations(self.data, options=self.read.options())
        print_contents(self.data, demos)
        demos.save(self.out)
        written = Demonstrations.load(self.out)
        if written.fingerprint != demos.fingerprint:
            raise InvalidData(
                f"{self.out} was written as {demos!r} but reads as {written!r}: do not use it. Please report this bug."
            )
        if self.json:
            counts = {"episodes": written.num_episodes, "steps": written.num_steps}
            print_json({"out": self.out, **counts, "fingerprint": written.fingerprint})
        else:
            print_message(f"wrote {self.out}, {written!r}. {next_command('train', self.out, '--out', 'RUN')}")
