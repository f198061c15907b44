"""The commands that take a policy to where it acts; like the others, each a dataclass whose fields are its flags."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from diffclone.cli.console import answer, say
from diffclone.deploy.export import TRIALS, Format, export
from diffclone.deploy.server import Server, Watch, serve
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.training.runs import Run

RunFolder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]


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
        policy = member_of(self.run_folder, self.member)
        found = export(policy, self.out, self.to)
        if self.json:
            answer({"out": str(self.out), "to": self.to, "observations": TRIALS, "difference": found})
        else:
            say(f"wrote {self.out}: {policy!r}; differs from torch by at most {found:.1e} on {TRIALS} observations")


@dataclass(frozen=True)
class Serve:
    """Answer observations with actions over HTTP, as JSON or npy, until Ctrl-C; with a calibrated run's monitor."""

    run_folder: RunFolder
    """What `diffclone train` made."""
    member: int = 0
    """Which member of the run."""
    host: str = "127.0.0.1"
    """The address to listen on; one that other machines can reach needs a token."""
    port: int = 8765
    """The port; 0 for one that is free."""
    token: str | None = None
    """What clients must send as `Authorization: Bearer TOKEN`; by default $DIFFCLONE_TOKEN, which no list of processes
    shows."""

    def run(self) -> None:
        """Do it."""
        policy = member_of(self.run_folder, self.member)
        token = self.token if self.token is not None else os.environ.get("DIFFCLONE_TOKEN")
        server = Server(policy, watch_of(policy), token=token)
        host = f"[{self.host}]" if ":" in self.host else self.host
        asyncio.run(
            serve(
                server,
                self.host,
                self.port,
                lambda port: say(f"{policy!r} answers on http://{host}:{port}/act; Ctrl-C ends it."),
            )
        )


def member_of(folder: Path, member: int) -> Policy:
    """One member of a run."""
    policy = Run(folder).policy()
    if not 0 <= member < len(policy):
        raise InvalidSettings(f"{folder} has members 0 … {len(policy) - 1}; {member} was asked for.")
    return policy[member]


def watch_of(policy: Policy) -> Watch | None:
    """What the policy's monitor says, where it was calibrated."""
    return None if policy.guard is None else lambda obs, action: policy.monitor(obs, action).to_dict()
