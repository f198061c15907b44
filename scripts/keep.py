"""What a training of an expert writes while it runs: the best policy so far, or policies of given success rates."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from diffclone.files import write_tensors
from diffclone.tasks import Task
from diffclone.tasks.batch import Doubles
from scripts import ppo, sac
from scripts.play import play

SNAPSHOT_EPISODES = 300
TRAINING_LAG = 0.05
"""The success rate of the last training episodes lags behind that of the policy by at least this much."""


def keep_best(
    training: Iterator[tuple[sac.SACReport, sac.Learner]], path: Path, about: dict[str, Any]
) -> Iterator[tuple[sac.SACReport, float]]:
    """Write the member with the best return so far, by its evaluations; yield each report and that return."""
    best = -float("inf")
    for report, learner in training:
        member = max(range(len(report.returns)), key=report.returns.__getitem__)
        if report.returns[member] > best:
            best = report.returns[member]
            write_tensors(path, learner.tensors(member), {**about, "member": member, **asdict(report)})
        yield report, best


def keep_snapshots(
    training: Iterator[tuple[ppo.Report, ppo.Learner]],
    task: Task,
    levels: Sequence[float],
    path: Path,
    about: dict[str, Any],
) -> Iterator[tuple[ppo.Report, ppo.Learner]]:
    """Write the policy when its success rate first reaches each level; end after the highest.

    The success rate is that of sampled actions on validation starts. It is measured when the episodes of the training
    suggest that the level is reached. A snapshot of level 0.59 is written to NAME-59.safetensors beside `path`.
    """
    left = sorted(levels)
    for report, learner in training:
        if left and report.success >= left[0] - TRAINING_LAG:
            scores = play(task, partial(sample, learner), 1, SNAPSHOT_EPISODES, learner.options.options)
            success = float(scores.success.mean())
            found = {"measured_success": success, "measured_length": float(scores.length.mean())}
            while left and success >= left[0]:
                level = left.pop(0)
                name = f"{path.stem}-{round(100 * level)}{path.suffix}"
                write_tensors(path.with_name(name), learner.tensors(), {**about, **asdict(report), **found})
        yield report, learner
        if levels and not left:
            return


@torch.no_grad()
def sample(learner: ppo.Learner, obs: Doubles) -> Doubles:
    """Return actions sampled from the policy for observations (1, rows, size)."""
    mean = learner.policy(learner.normalise(obs[0]))
    return (mean + learner.log_std.exp() * torch.randn_like(mean)).cpu().numpy()[None]
