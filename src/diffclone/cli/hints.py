"""The commands that could follow, as lines to paste into a shell."""

import shlex
from pathlib import Path

from diffclone.cli.sources import PolicySource
from diffclone.policy import Policy
from diffclone.training.runs import Run


def next_command(command: str, *arguments: str | Path, about: str = "") -> str:
    """Return "Next:" with a command and its arguments, quoted for a shell, at the end of the line."""
    words = shlex.join(["diffclone", command, *map(str, arguments)])
    return f"Next, {about}: {words}" if about else f"Next: {words}"


def next_evaluation(folder: Path, policy: Policy) -> str:
    """Return the command that evaluates a trained run; with --env ID if its data do not say where it acts."""
    if PolicySource(folder, Run(folder)).place(policy) is not None:
        return next_command("evaluate", folder)
    return next_command("evaluate", folder, "--env", "ID", about="with the ID of a Gymnasium environment")
