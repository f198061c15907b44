"""The `augment` command."""

import math
from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import Data, Device, ReadArguments, Reading, find_demonstrations, guide_cache
from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.hints import next_command
from diffclone.errors import InvalidSettings
from diffclone.experiments import preset
from diffclone.files import refuse_existing
from diffclone.guides import DiffusionGuide
from diffclone.training import Progress
from diffclone.training.augmentation import generate


@dataclass(frozen=True)
class Augment:
    """Train a diffusion model on demonstrations, and save them together with pairs that it generates."""

    data: Data
    out: Path
    """File to write (.npz). An existing file is not overwritten."""
    read: Reading = ReadArguments()
    ratio: float = 1.0
    """Number of generated pairs per real pair; 1 in the paper."""
    task: str | None = None
    """Task of the demonstrations in a file, for presets. By default the task that the file names."""
    preset: str | None = None
    """Use the guide of this preset of DBC: paper, release, brief, demo. Not together with --guide flags."""
    guide: DiffusionGuide = DiffusionGuide()
    """The diffusion model."""
    seed: int = 0
    """Seed of the guide and of the generated pairs."""
    device: Device = "auto"
    cache: bool = True
    """Keep the trained guide and use one that is there, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Train the guide, generate pairs and save everything as one file."""
        if self.out.suffix != ".npz":
            raise InvalidSettings(
                f"demonstrations are saved as .npz; {self.out} ends in {self.out.suffix or 'nothing'}."
            )
        refuse_existing(self.out)
        task, demos = find_demonstrations(self.data, self.task, self.read.options())
        guide = self.choose_guide(task)
        if not 0 < self.ratio < math.inf:
            raise InvalidSettings(f"ratio must be finite and above 0; it is {self.ratio:g}.")
        with bars() as show:

            def progress(now: Progress) -> None:
                if now.losses:
                    show.training("augment", now)
                else:
                    show.update(f"augment: {now.stage}", now.update, now.updates)

            generated = generate(
                guide,
                demos,
                round(self.ratio * demos.num_steps),
                seed=self.seed,
                device=self.device,
                cache=guide_cache() if self.cache else None,
                progress=progress,
            )
        both = demos.joined(generated)
        both.save(self.out)
        if self.json:
            counts = {"real": demos.num_steps, "generated": generated.num_steps}
            print_json({"out": str(self.out), **counts, "fingerprint": both.fingerprint})
        else:
            print_message(f"wrote {self.out}: {both!r}. {next_command('train', self.out, '--out', 'RUN')}")

    def choose_guide(self, task: str | None) -> DiffusionGuide:
        """Return the guide of the preset or of the flags."""
        if self.preset is None:
            return self.guide
        if self.guide != DiffusionGuide():
            raise InvalidSettings("a preset has its own guide; use --preset or --guide flags, not both.")
        guide = preset(task, "dbc", self.preset).needs()["guide"]
        if not isinstance(guide, DiffusionGuide):
            raise InvalidSettings(
                f"only a DiffusionGuide generates pairs; {task}/dbc/{self.preset} has {type(guide).__name__}. "
                "Choose another preset."
            )
        return guide
