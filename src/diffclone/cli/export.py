"""The `export` command."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from diffclone.cli.arguments import Bounds, RunFolder
from diffclone.cli.console import print_json, print_message
from diffclone.cli.hints import next_in_python
from diffclone.cli.sources import PolicySource, find_policy
from diffclone.data.formats.options import expand_bounds, parse_bounds
from diffclone.deploy.export import CHECKED_OBSERVATIONS, Format, export
from diffclone.errors import InvalidSettings

SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "numpy": ".npz"}


@dataclass(frozen=True)
class Export:
    """Write one member of a run to a file that runs without torch. The file is compared with torch first.

    It contains normalisation, the action bounds and the model card.
    """

    run_folder: RunFolder
    out: Path | None = None
    """File to write, by default beside the policy: RUN/policy.onnx or RUN/policy.npz. Nothing is overwritten."""
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
        self.check_suffix()
        source = find_policy(self.run_folder)
        policy = source.load()[self.member]
        if self.action_bounds is not None:
            low, high = expand_bounds(parse_bounds(self.action_bounds), policy.dims.act)
            policy = replace(policy, bounds=(torch.tensor(low), torch.tensor(high)))
        out = self.out or self.default_file(source)
        difference, count = export(policy, out, self.to, source.evaluations()), CHECKED_OBSERVATIONS
        if self.json:
            print_json({"out": str(out), "to": self.to, "observations": count, "difference": difference})
            return
        print_message(f"wrote {out}: {policy!r}; differs from torch by {difference:.1e} on {count} observations")
        print_message(next_in_python(out, self.to, policy))

    def check_suffix(self) -> None:
        """Refuse a file name that says another format."""
        if self.out is None or self.out.suffix == (suffix := SUFFIXES[self.to]):
            return
        other = "".join(f" or --to {to}" for to, ending in SUFFIXES.items() if ending == self.out.suffix)
        raise InvalidSettings(
            f"--to {self.to} writes a file that ends in {suffix}; {self.out} ends in {self.out.suffix or 'nothing'}. "
            f"Choose another --out{other}."
        )

    def default_file(self, source: PolicySource) -> Path:
        """Return a file beside the folder of the policy, whose name tells snapshots and members apart."""
        folder = source.folder / "policy" if source.run is not None else source.folder
        parts = [folder.name, *([] if source.snapshot is None else [str(source.snapshot)])]
        parts += [f"member-{self.member}"] if self.member else []
        return folder.with_name(f"{'-'.join(parts)}{SUFFIXES[self.to]}")
