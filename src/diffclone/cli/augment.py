"""The `augment` command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from diffclone.cli.arguments import find_demonstrations, guide_cache
from diffclone.cli.console import bars, print_json, print_message
from diffclone.errors import InvalidSettings
from diffclone.experiments import preset
from diffclone.files import refuse_existing
from diffclone.guides import DiffusionGuide
from diffclone.training import Progress


@dataclass(frozen=True)
class Augment:
    """Add pairs that a diffusion model of the demonstrations generates, and write both as one file to train on."""

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A task's name, for its bundled demonstrations; or a file or folder of demonstrations (see convert)."""
    out: Path
    """The file to write (.npz). An existing file is not overwritten."""
    ratio: float = 1.0
    """Generated pairs for each real one; the paper has 1."""
    task: str | None = None
    """The task that a file's demonstrations are of, for presets; by default what the file says."""
    preset: str | None = None
    """Take the guide that DBC has in these settings of the task: paper, release, brief, demo. Or give --guide flags."""
    guide: DiffusionGuide = DiffusionGuide()
    """The diffusion model."""
    seed: int = 0
    """Of the guide and of the pairs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto is a GPU where there is one."""
    cache: bool = True
    """Keep the trained guide, and use one trained before, in $DIFFCLONE_CACHE or ~/.cache/diffclone/guides."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        from diffclone.training.augmentation import generate

        if self.out.suffix != ".npz":
            raise InvalidSettings(
                f"demonstrations are saved as .npz; {self.out} ends in {self.out.suffix or 'nothing'}."
            )
        refuse_existing(self.out)
        task, demos = find_demonstrations(self.data, self.task)
        guide = self.choose_guide(task)
        if not 0 < self.ratio < float("inf"):
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
            print_message(f"wrote {self.out}: {both!r}. Next: diffclone train {self.out} --out RUN")

    def choose_guide(self, task: str | None) -> DiffusionGuide:
        """The preset's where one is named, else what the flags say."""
        if self.preset is None:
            return self.guide
        if self.guide != DiffusionGuide():
            raise InvalidSettings("a preset brings its own guide; give --preset or --guide flags, not both.")
        if task is None:
            raise InvalidSettings("a preset belongs to a task; say --task NAME.")
        guide = preset(task, "dbc", self.preset).needs()["guide"]
        if not isinstance(guide, DiffusionGuide):
            raise InvalidSettings(
                f"pairs are drawn from a DiffusionGuide; {task}/dbc/{self.preset} has {type(guide).__name__}. "
                "Choose another preset."
            )
        return guide
