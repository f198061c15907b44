"""The `export` command."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from diffclone.cli.arguments import Bounds, RunFolder
from diffclone.cli.console import print_json, print_message
from diffclone.data.formats.options import expand_bounds, parse_bounds
from diffclone.deploy.export import CHECKED_OBSERVATIONS, Format, export
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Export:
    """Write one member of a run to a file that runs without torch. The file is compared with torch first."""

    run_folder: RunFolder
    out: Path
    """File to write. An existing file is not overwritten."""
    to: Format = "onnx"
    """onnx, for any ONNX runtime; numpy (.npz), for diffclone.deploy.runtime."""
    member: int = 0
    """Index of the member."""
    action_bounds: Bounds = None
    """Clip actions to these bounds instead of the policy's: -1,1, or with one number per dimension -1,-2:1,2."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Write the file and print the largest difference."""
        policy = Run(self.run_folder).policy()[self.member]
        if self.action_bounds is not None:
            low, high = expand_bounds(parse_bounds(self.action_bounds), policy.dims.act)
            policy = replace(policy, bounds=(torch.tensor(low), torch.tensor(high)))
        difference, count = export(policy, self.out, self.to), CHECKED_OBSERVATIONS
        if self.json:
            print_json({"out": str(self.out), "to": self.to, "observations": count, "difference": difference})
        else:
            print_message(
                f"wrote {self.out}: {policy!r}; differs from torch by {difference:.1e} on {count} observations"
            )
