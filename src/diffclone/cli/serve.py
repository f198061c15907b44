"""The `serve` command."""

import asyncio
import os
from dataclasses import dataclass

from diffclone.cli.arguments import RunFolder
from diffclone.cli.console import print_message
from diffclone.deploy.server import Server, serve
from diffclone.training.runs import Run


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
        policy = Run(self.run_folder).policy()[self.member]
        token = self.token if self.token is not None else os.environ.get("DIFFCLONE_TOKEN")
        server = Server(policy, token=token)
        host = f"[{self.host}]" if ":" in self.host else self.host
        asyncio.run(
            serve(
                server,
                self.host,
                self.port,
                lambda port: print_message(f"{policy!r} serves http://{host}:{port}/act. Press Ctrl-C to stop."),
            )
        )
