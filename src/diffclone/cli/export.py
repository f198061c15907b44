"""The `export` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import RunFolder, load_member
from diffclone.cli.console import print_json, print_message
from diffclone.deploy.export import TRIALS, Format, export


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
        policy = load_member(self.run_folder, self.member)
        found = export(policy, self.out, self.to)
        if self.json:
            print_json({"out": str(self.out), "to": self.to, "observations": TRIALS, "difference": found})
        else:
            print_message(
                f"wrote {self.out}: {policy!r}; differs from torch by at most {found:.1e} on {TRIALS} observations"
            )
