"""What experiments measure beside scores. A kind of `Measurement` each; one line in the registry."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from diffclone.evaluation import evaluate
from diffclone.experiments.diffusion_measures import field, reconstruction, samples
from diffclone.experiments.majority import CLUSTERS, SEEDS, majority_ratios
from diffclone.experiments.subject import Measured, Subject, rounded
from diffclone.files import read_lines
from diffclone.policy import Policy
from diffclone.registry import Registry

PATHS = 40
"""Episodes whose paths are kept."""
POINTS = 200
"""Of a curve, at the most."""
TIMED_EPISODES, QUICK_TIMED_EPISODES = 10, 1
TIMED_CALLS, TIMED_SECONDS = 5, 1.0
"""Calls at the least, and seconds of calls about, that a latency is the median of."""


def multimodality(subject: Subject) -> Measured:
    """The majority ratio of demonstrations."""
    seeds = range(1 if subject.quick else SEEDS)
    ratios = majority_ratios(subject.demos, seeds, subject.progress)
    return Measured(ratios, {"clusters": CLUSTERS, "features": "raw", "weights": "size", "seeds": len(seeds)}, "cpu")


def inference(subject: Subject) -> Measured:
    """Episodes a second and milliseconds an action of the first member, on one thread of the CPU."""
    run, _ = subject.trained()
    policy = run.policy("cpu")[subject.members[0]].acting(**subject.settings.get("acting", {}))
    count = QUICK_TIMED_EPISODES if subject.quick else TIMED_EPISODES
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds: list[float] = []
        while sum(rounds) < TIMED_SECONDS:  # the first round of a fast policy is mostly warming up
            rounds.append(evaluate(policy, subject.task, episodes=count, progress=subject.progress).seconds)
        milliseconds = latency(policy, subject.clean.obs)
    finally:
        torch.set_num_threads(threads)
    results = {
        "episodes_per_second": count / float(np.median(rounds)),
        "milliseconds": milliseconds,
        "episodes": count,
        "rounds": len(rounds),
    }
    return Measured(results, {"threads": 1}, "cpu")


def latency(policy: Policy, observations: npt.NDArray[np.generic]) -> float:
    """The median, an observation at a time, NumPy in and NumPy out."""
    taken: list[float] = []
    policy(observations[0])  # the first call warms up
    for obs in observations:
        begun = time.perf_counter()
        policy(obs)
        taken.append(time.perf_counter() - begun)
        if len(taken) >= TIMED_CALLS and sum(taken) > TIMED_SECONDS:
            break
    return 1000 * float(np.median(taken))


def trajectories(subject: Subject) -> Measured:
    """Positions of the first member's first episodes; of the expert's where nothing was trained."""
    if subject.policy is None:
        paths = [obs[:, :2] for obs, _ in subject.demos.episodes()][:PATHS]
        return Measured({"paths": [rounded(path, 3) for path in paths], "success": [True] * len(paths)}, {}, "cpu")
    count = 2 if subject.quick else PATHS
    seen: list[list[npt.NDArray[np.float64]]] = [[] for _ in range(count)]

    def on_step(rows: npt.NDArray[np.int64], obs: npt.NDArray[np.float64], act: npt.NDArray[Any]) -> None:
        for row, now in zip(rows, obs, strict=True):
            seen[row].append(now[:2].copy())

    member = subject.policy[subject.members[0]]
    options = subject.settings.get("options", {})
    scores = evaluate(member, subject.task, episodes=count, on_step=on_step, progress=subject.progress, **options)
    return Measured({"paths": [rounded(path, 3) for path in seen], "success": scores.success[0].tolist()})


def curves(subject: Subject) -> Measured:
    """Both losses of the policy while it was trained, a number a member."""
    run, _ = subject.trained()
    lines = read_lines(run.metrics)
    lines = [line for line in lines if line["stage"] == "policy"]
    kept = [lines[k] for k in np.unique(np.linspace(0, len(lines) - 1, min(POINTS, len(lines))).astype(np.int64))]
    losses = {
        name: [rounded([line[name][m] for m in subject.members], 6) for line in kept] for name in ("L_BC", "L_DM")
    }
    return Measured({"updates": [line["update"] for line in kept], "losses": losses})


MEASURES: Registry[Callable[[Subject], Measured]] = Registry(
    "measure",
    {
        "multimodality": multimodality,
        "inference": inference,
        "trajectories": trajectories,
        "samples": samples,
        "reconstruction": reconstruction,
        "curves": curves,
        "field": field,
    },
)
