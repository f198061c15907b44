"""Measurements other than scores. Each kind of `Measurement` is one function in MEASURES.

majority ratio    states and actions are clustered separately, raw, by k-means with k = 10
                  n_ij   = pairs with the state in cluster i and the action in cluster j
                  ratio  = Σ_i max_j n_ij / Σ_ij n_ij        1: one kind of action per kind of state;  1/k: any
gradient field    E (x̂ − x)_position = −(√(1 − ᾱ_t) / √ᾱ_t) E ε̂(√ᾱ_t x, t)_position       x: the position p, and
at position p     the other features of an expert's pair

The paper leaves open how its clusters are weighted and whether features are standardised. Raw features, weighted by
cluster size, reproduce its ratios on the authors' own files.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.evaluation import evaluate
from diffclone.experiments.measure_samples import (
    measure_reconstruction,
    measure_reconstruction_curve,
    measure_samples,
)
from diffclone.experiments.measurement import MeasureInput, MeasureOutput, round_values
from diffclone.files import read_lines
from diffclone.policy import Policy
from diffclone.registry import Registry

CLUSTERS, CLUSTER_SEEDS = 10, 5
MAX_PATHS = 40
"""Episodes whose trajectories are stored."""
MAX_POINTS = 200
"""Points of a loss curve."""
TIMED_EPISODES, QUICK_TIMED_EPISODES = 10, 1
TIMED_CALLS, TIMED_SECONDS = 5, 1.0
"""A latency is the median of at least this many calls, and of calls that take this long together."""
FIELD_PAIRS, FIELD_PER_CELL = 32, 5
"""Expert pairs that an arrow averages over, and arrows along the side of a cell."""


def measure_multimodality(given: MeasureInput) -> MeasureOutput:
    """Measure the majority ratio of the demonstrations: mean, least and most over seeds of k-means."""
    seeds = range(1 if given.quick else CLUSTER_SEEDS)
    ratios: list[float] = []
    for seed in seeds:
        labels = (cluster(np.asarray(values, dtype=np.float64), seed) for values in (given.demos.obs, given.demos.act))
        ratios.append(majority_ratio(*labels))
        given.progress(len(ratios), len(seeds))
    results = {"ratio": float(np.mean(ratios)), "least": min(ratios), "most": max(ratios)}
    settings = {"clusters": CLUSTERS, "features": "raw", "weights": "size", "seeds": len(seeds)}
    return MeasureOutput(results, settings, "cpu")


def majority_ratio(states: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]) -> float:
    """Return the majority ratio, given the state cluster and the action cluster of each pair."""
    counts = np.zeros((states.max() + 1, actions.max() + 1))
    np.add.at(counts, (states, actions), 1)
    return float(counts.max(1).sum() / counts.sum())


def cluster(values: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.int64]:
    """Return the k-means cluster of each row."""
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingPackage(f"k-means needs scikit-learn. Try: {install_command('report')}.") from None
    means: Any = KMeans(CLUSTERS, random_state=seed)
    return means.set_params(n_init=10).fit_predict(values).astype(np.int64)


def measure_inference(given: MeasureInput) -> MeasureOutput:
    """Measure episodes per second and milliseconds per action of the first member, on one CPU thread."""
    policy = given.policy[0].to("cpu").acting(**given.settings.get("acting", {}))
    count = QUICK_TIMED_EPISODES if given.quick else TIMED_EPISODES
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds: list[float] = []
        while sum(rounds) < TIMED_SECONDS:  # the first round of a fast policy is mostly warm-up
            rounds.append(evaluate(policy, given.task, episodes=count, progress=given.progress).seconds)
        milliseconds = measure_latency(policy, given.clean_demos.observe(slice(None)))
    finally:
        torch.set_num_threads(threads)
    results = {
        "episodes_per_second": count / float(np.median(rounds)),
        "milliseconds": milliseconds,
        "episodes": count,
        "rounds": len(rounds),
    }
    return MeasureOutput(results, {"threads": 1}, "cpu")


def measure_latency(policy: Policy, observations: npt.NDArray[np.generic]) -> float:
    """Return the median milliseconds of a call with one observation or window, NumPy in and NumPy out."""
    seconds: list[float] = []
    call = policy.plan if policy.chunks.has_memory else policy
    if policy.chunks.has_memory:
        observations = observations[:, None, None].repeat(policy.chunks.history, 2)
    call(observations[0])  # warm-up
    for obs in observations:
        begun = time.perf_counter()
        call(obs)
        seconds.append(time.perf_counter() - begun)
        if len(seconds) >= TIMED_CALLS and sum(seconds) > TIMED_SECONDS:
            break
    return 1000 * float(np.median(seconds))


def measure_trajectories(given: MeasureInput) -> MeasureOutput:
    """Store the positions of the first member's first episodes, or of the expert's if nothing was trained."""
    if given.selected is None:
        expert = [round_values(obs[:, :2], 3) for obs, _ in given.demos.episodes()][:MAX_PATHS]
        return MeasureOutput({"paths": expert, "success": [True] * len(expert)}, {}, "cpu")
    count = 2 if given.quick else MAX_PATHS
    paths: list[list[npt.NDArray[np.float64]]] = [[] for _ in range(count)]

    def store(rows: npt.NDArray[np.int64], obs: npt.NDArray[np.float64], act: npt.NDArray[Any]) -> None:
        for row, position in zip(rows, obs[:, :2].copy(), strict=True):
            paths[row].append(position)

    options = given.settings.get("options", {})
    scores = evaluate(given.policy[0], given.task, episodes=count, on_step=store, progress=given.progress, **options)
    return MeasureOutput({"paths": [round_values(path, 3) for path in paths], "success": scores.success[0].tolist()})


def measure_curves(given: MeasureInput) -> MeasureOutput:
    """Store both losses of the policy during training, one value per member."""
    if given.metrics is None:
        raise InvalidSettings(f"this measurement on {given.task} needs a training; it has no variant.")
    lines = [line for line in read_lines(given.metrics) if line["stage"] == "policy"]
    kept = [lines[k] for k in np.unique(np.linspace(0, len(lines) - 1, min(MAX_POINTS, len(lines))).astype(np.int64))]
    losses = {
        name: [round_values([line[name][m] for m in given.members], 6) for line in kept] for name in ("L_BC", "L_DM")
    }
    return MeasureOutput({"updates": [line["update"] for line in kept], "losses": losses})


@torch.no_grad()
def measure_field(given: MeasureInput) -> MeasureOutput:
    """Compute the gradient field over the free cells of the maze with the first member's diffusion model."""
    from diffclone.tasks.maze import CELLS, SHIFT, WALLS

    demos, normaliser, model = given.demos, given.policy.normaliser, given.diffusion_model(0)
    offsets = (np.arange(FIELD_PER_CELL) + 0.5) / FIELD_PER_CELL - 0.5
    # In world coordinates the centre of cell (i, j) is (i + 1, j + 1).
    points = np.array([(i + 1 - SHIFT + dx, j + 1 - SHIFT + dy) for i, j in CELLS for dx in offsets for dy in offsets])
    chosen = np.random.default_rng(0).choice(demos.num_steps, FIELD_PAIRS, replace=False)
    obs, act, positions = (
        torch.tensor(values, device=given.policy.device).to(normaliser.obs_mean.dtype)
        for values in (demos.obs[chosen], demos.act[chosen], points)
    )
    obs, act = obs.repeat(len(points), 1), act.repeat(len(points), 1)
    obs[:, :2] = positions.repeat_interleave(FIELD_PAIRS, 0)
    x = torch.cat([normaliser.normalise_obs(obs), normaliser.normalise_act(act)], -1)[None]
    step = len(model.beta) // 10
    t = torch.full(x.shape[:2], step, device=x.device)
    moved = -(model.noise[step] / model.signal[step]) * model.denoiser(model.signal[step] * x, t)[0, :, :2]
    arrows = (moved * normaliser.obs_std[:2]).unflatten(0, (len(points), FIELD_PAIRS)).mean(1)
    shown = np.linspace(0, demos.num_steps - 1, min(2000, demos.num_steps)).astype(np.int64)
    results = {
        "positions": round_values(points, 3),
        "directions": round_values(arrows.cpu().numpy()),
        "expert": round_values(demos.obs[shown, :2], 3),
        "walls": [list(wall) for wall in WALLS],
    }
    return MeasureOutput(results, {"step": step, "expert_pairs": FIELD_PAIRS, "rest": "expert pairs drawn at random"})


MEASURES: Registry[Callable[[MeasureInput], MeasureOutput]] = Registry(
    "measurement",
    {
        "multimodality": measure_multimodality,
        "inference": measure_inference,
        "trajectories": measure_trajectories,
        "samples": measure_samples,
        "reconstruction": measure_reconstruction,
        "reconstruction-curve": measure_reconstruction_curve,
        "curves": measure_curves,
        "field": measure_field,
    },
)
