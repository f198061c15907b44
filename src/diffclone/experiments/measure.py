"""Measurements other than scores. Each kind of `Measurement` is one function in MEASURES.

majority ratio    states and actions are clustered separately, raw, by k-means with k = 10
                  n_ij   = pairs with the state in cluster i and the action in cluster j
                  ratio  = Σ_i max_j n_ij / Σ_ij n_ij        1: one kind of action per kind of state;  1/k: any
sampled action    x_T ~ N(0, I), then ancestral steps to x_0; before each step the state part of x_t is replaced by
at state s        √ᾱ_t s + √(1 − ᾱ_t) ε, so that the action part is sampled given the state
gradient field    E (x̂ − x)_position = −(√(1 − ᾱ_t) / √ᾱ_t) E ε̂(√ᾱ_t x, t)_position       x: the position p, and
at position p     the other features of an expert's pair

The paper leaves open how its clusters are weighted and whether features are standardised. Raw features, weighted by
cluster size, reproduce its ratios on the authors' own files.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.evaluation import evaluate
from diffclone.files import read_lines
from diffclone.nn.diffusion import Diffusion
from diffclone.policy import Policy
from diffclone.registry import Registry
from diffclone.rng import Rng

CLUSTERS, CLUSTER_SEEDS = 10, 5
MAX_PATHS = 40
"""Episodes whose trajectories are stored."""
MAX_POINTS = 200
"""Points of a loss curve."""
TIMED_EPISODES, QUICK_TIMED_EPISODES = 10, 1
TIMED_CALLS, TIMED_SECONDS = 5, 1.0
"""A latency is the median of at least this many calls, and of calls that take this long together."""
STATES, QUICK_STATES = 400, 20
"""Expert states at which actions are sampled."""
FIELD_PAIRS, FIELD_PER_CELL = 32, 5
"""Expert pairs that an arrow averages over, and arrows along the side of a cell."""


@final
@dataclass(frozen=True, eq=False)
class MeasureInput:
    """What a measurement can use."""

    task: str
    settings: Mapping[str, Any]
    """Settings of the measurement."""
    demos: Demonstrations
    """The training data, or the task's demonstrations."""
    clean_demos: Demonstrations
    """The same without action noise and generated pairs."""
    selected: Policy | None = None
    """The selected members of the trained policy, if there is one."""
    metrics: Path | None = None
    """The file with the losses of all members during training."""
    members: Sequence[int] = ()
    """The indices of the selected members in that file."""
    quick: bool = False
    progress: Callable[[int, int], None] = lambda done, total: None

    @property
    def policy(self) -> Policy:
        """The selected members; an error if nothing was trained."""
        if self.selected is None:
            raise InvalidSettings(f"this measurement on {self.task} needs a trained policy; it has no variant.")
        return self.selected

    def diffusion_model(self, member: int) -> Diffusion:
        """Return the trained diffusion model of a member, or raise an error if there is none."""
        guide = self.policy[member].guide
        if guide is None or not isinstance(guide.weights, Diffusion):
            method = type(self.policy.method).__name__
            raise InvalidSettings(f"this measurement needs a diffusion model; {method} was trained without one.")
        return guide.weights


@final
@dataclass(frozen=True)
class MeasureOutput:
    """What a measurement adds to its Record."""

    results: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Details of the measurement that are not in its specification."""
    device: str | None = None
    """The device, if it is not the policy's."""


def round_values(values: npt.ArrayLike, digits: int = 4) -> list[Any]:
    """Return rounded values as lists."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


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
        raise MissingPackage("k-means needs scikit-learn. Try: pip install 'diffclone[report]'.") from None
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
        milliseconds = measure_latency(policy, given.clean_demos.obs)
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
    """Return the median milliseconds of a call with one observation, NumPy in and NumPy out."""
    seconds: list[float] = []
    policy(observations[0])  # warm-up
    for obs in observations:
        begun = time.perf_counter()
        policy(obs)
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
def sample_actions(model: Diffusion, states: Tensor, act_size: int, rng: Rng) -> Tensor:
    """Sample actions at normalised states of shape (1, rows, size)."""
    rows, size = states.shape[-2:]
    x = rng["start"].normal(rows, size + act_size)
    steps = list(reversed(range(len(model.beta))))
    embedded = model.denoiser.embed(torch.tensor(steps, device=x.device)[None])
    for k, t in enumerate(steps):
        noisy = model.signal[t] * states + model.noise[t] * rng[f"state {t}"].normal(rows, size)
        x = torch.cat([noisy, x[..., size:]], -1)
        _, eps_hat = model.predict(x, t, [e[..., k : k + 1, :] for e in embedded], None, within_box=False)
        z = rng[f"noise {t}"].normal(rows, size + act_size) if t else None
        x = model.ancestral_step(x, t, eps_hat, z)
    return x[..., size:]


def sample_at_expert_states(given: MeasureInput, member: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return evenly spaced rows of the demonstrations, and the actions sampled there in raw units."""
    policy, count = given.policy, QUICK_STATES if given.quick else STATES
    rows = np.unique(np.linspace(0, given.demos.num_steps - 1, count).astype(np.int64))
    device, dtype = policy.device, policy.normaliser.obs_mean.dtype
    states = policy.normaliser.normalise_obs(torch.tensor(given.demos.obs[rows], device=device).to(dtype))
    rng = Rng([int(policy.members[member]["seed"])], device=device, dtype=dtype, path="measure")
    act = sample_actions(given.diffusion_model(member), states[None], policy.dims.act, rng)
    return rows, policy.normaliser.restore_act(act[0]).double().cpu().numpy()


def measure_samples(given: MeasureInput) -> MeasureOutput:
    """Store actions that the first member's diffusion model samples at expert states."""
    rows, act = sample_at_expert_states(given, 0)
    results = {
        "states": round_values(given.demos.obs[rows, :2]),
        "expert": round_values(given.demos.act[rows]),
        "sampled": round_values(act),
    }
    return MeasureOutput(results, {"states": len(rows), "sampler": "ancestral, held to the state"})


def measure_reconstruction(given: MeasureInput) -> MeasureOutput:
    """Measure the mean squared error of sampled actions to clean expert actions, one value per member."""
    errors: list[float] = []
    for member in range(len(given.policy)):
        rows, act = sample_at_expert_states(given, member)
        errors.append(float(np.square(act - given.clean_demos.act[rows]).mean()))
        given.progress(member + 1, len(given.policy))
    noise = given.demos.meta.get("action_noise") or [{"level": 0.0}]
    results = {"action_noise": noise[-1]["level"], "mse": round_values(errors, 6)}
    return MeasureOutput(results, {"sampler": "ancestral, held to the state"})


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
        "curves": measure_curves,
        "field": measure_field,
    },
)
