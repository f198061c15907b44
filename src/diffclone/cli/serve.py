"""The `serve` command."""

import asyncio
import os
from dataclasses import dataclass

from diffclone.cli.arguments import RunFolder, load_member
from diffclone.cli.console import print_message
from diffclone.deploy.server import Server, Watch, serve
from diffclone.policy import Policy


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
        policy = load_member(self.run_folder, self.member)
        token = self.token if self.token is not None else os.environ.get("DIFFCLONE_TOKEN")
        server = Server(policy, watch_of(policy), token=token)
        host = f"[{self.host}]" if ":" in self.host else self.host
        asyncio.run(
            serve(
                server,
                self.host,
                self.port,
                lambda port: print_message(f"{policy!r} answers on http://{host}:{port}/act; Ctrl-C ends it."),
            )
        )


def watch_of(policy: Policy) -> Watch | None:
    """What the policy's monitor says, where it was calibrated."""
    return None if policy.guard is None else lambda obs, action: policy.monitor(obs, action).to_dict()
