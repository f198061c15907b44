"""The `serve` command."""

import os
from dataclasses import dataclass

from diffclone.cli.arguments import RunFolder
from diffclone.cli.console import print_message
from diffclone.cli.sources import find_policy
from diffclone.policy import Policy


@dataclass(frozen=True)
class Serve:
    """Return actions for observations over HTTP, as JSON or npy, until Ctrl-C. A calibrated run also returns alarms."""

    run_folder: RunFolder
    member: int = 0
    """Index of the member."""
    host: str = "127.0.0.1"
    """Address to listen on. An address that other machines can reach needs a token."""
    port: int = 8765
    """Port to listen on; 0 for any free port."""
    token: str | None = None
    """Token that clients must send as `Authorization: Bearer TOKEN`. By default $DIFFCLONE_TOKEN, which does not appear
    in lists of processes."""
    allow_host: tuple[str, ...] = ()
    """Names under which clients may reach the server, beside IP addresses, localhost and --host; * for any."""
    allow_origin: tuple[str, ...] = ()
    """Web pages that may use the server, e.g. https://example.org; * for any."""

    def run(self) -> None:
        """Serve the policy until Ctrl-C or SIGTERM."""
        from diffclone.deploy.server import Server, serve  # needs packages that not every installation has

        policies = find_policy(self.run_folder).load()
        policy = policies[self.member]
        if notice := describe_other_member(policies, self.member):
            print_message(notice)
        token = self.token if self.token is not None else os.environ.get("DIFFCLONE_TOKEN")
        server = Server(policy, token=token, allow_hosts=self.allow_host, allow_origins=self.allow_origin)
        host = f"[{self.host}]" if ":" in self.host else self.host

        def on_start(port: int) -> None:
            print_message(f"{policy!r} serves http://{host}:{port}/act. Press Ctrl-C to stop.")

        serve(server, self.host, self.port, on_start)


def describe_other_member(policy: Policy, member: int) -> str | None:
    """Return what to know if the monitor is calibrated for another member of a policy; None if it is for this one."""
    monitor, chosen = policy.calibrated_monitor, range(len(policy))[member]
    known = None if monitor is None or monitor.calibration is None else monitor.calibration.member
    if known is None or known == chosen or len(policy) == 1:
        return None
    return (
        f"The monitor is calibrated for member {known}, and member {chosen} acts: alpha holds for member {known} only. "
        f"Calibrate again: diffclone calibrate RUN --again --member {chosen}."
    )
