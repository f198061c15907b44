"""The `export` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import RunFolder
from diffclone.cli.console import print_json, print_message
from diffclone.deploy.export import CHECKED_OBSERVATIONS, Format, export
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Export:
    """Write one member of a run to a file that needs no torch, checked against torch first."""

    run_folder: RunFolder
    """What `diffclone train` made, with bc or dbc."""
    out: Path
    """The file to write. An existing file is not overwritten."""
    to: Format = "onnx"
    """onnx, for any ONNX runtime; numpy (.npz), for diffclone.deploy.runtime."""
    member: int = 0
    """Which member of the run."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        policy = Run(self.run_folder).policy()[self.member]
        difference, count = export(policy, self.out, self.to), CHECKED_OBSERVATIONS
        if self.json:
            print_json({"out": str(self.out), "to": self.to, "observations": count, "difference": difference})
        else:
            print_message(
                f"wrote {self.out}: {policy!r}; differs from torch by {difference:.1e} on {count} observations"
            )
