"""The commands that could follow, as lines to paste into a shell, and the lines of Python after an export."""

import json
import shlex
from pathlib import Path

from diffclone.cli.sources import Place, PolicySource
from diffclone.deploy.export import Format
from diffclone.methods import FlowMatching
from diffclone.nn.images import ConvNet
from diffclone.nn.layers import MLP
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.training.runs import Run

ENOUGH = 19
"""Held-out episodes that the default of `diffclone calibrate`, alpha 0.05, needs."""


def next_command(command: str, *arguments: str | Path, about: str = "") -> str:
    """Return "Next:" with a command and its arguments, quoted for a shell, at the end of the line."""
    words = shlex.join(["diffclone", command, *map(str, arguments)])
    return f"Next, {about}: {words}" if about else f"Next: {words}"


def next_after_rendering(run: Run, policy: Policy, place: Place) -> str:
    """Return the command that calibrates a monitor, where that needs no further choice; else the export or server."""
    if policy.guide is not None and policy.calibrated_monitor is None:
        known = run.episodes
        if known is not None and known.source is not None and len(known.held_out) >= ENOUGH:
            return next_command("calibrate", run.folder)
        # It calibrates on successful episodes. Those of policies with chunks cannot be scored.
        if place.name in TASKS and TASKS[place.name].metric == "success" and not policy.chunks.has_memory:
            options = [f"{name}={json.dumps(value)}" for name, value in place.options.items()]
            return next_command(
                "calibrate", run.folder, "--env", place.name, *(["--options", *options] * bool(options))
            )
    # Methods that act by one call of a network, and flow matching.
    exported = isinstance(policy.net, MLP | ConvNet) or isinstance(policy.method, FlowMatching)
    return next_command("export" if exported else "serve", run.folder)


def next_evaluation(folder: Path, policy: Policy) -> str:
    """Return the command that evaluates a trained run; with --env ID if its data do not say where it acts."""
    if PolicySource(folder, Run(folder)).place(policy) is not None:
        return next_command("evaluate", folder)
    return next_command("evaluate", folder, "--env", "ID", about="with the ID of a Gymnasium environment")


def next_in_python(file: Path, to: Format, policy: Policy) -> str:
    """Return the lines of Python that act with an exported policy, on one line."""
    if to == "numpy":
        call = ".session()" if policy.chunks.has_memory else "(observation)"
        return f"Next, in Python: from diffclone.deploy import runtime; runtime.load({str(file)!r}){call}"
    inputs = (
        "{'observation': rows, 'noise': noise}" if isinstance(policy.method, FlowMatching) else "{'observation': rows}"
    )
    run = f"InferenceSession({str(file)!r}).run(['action'], {inputs})"
    return f"Next, in Python: import onnxruntime; onnxruntime.{run}"
