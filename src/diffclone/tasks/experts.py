"""Experts: how they act, how their demonstrations are collected, and those that are networks.

A network expert was trained by reinforcement learning (`python -m scripts.train_expert`) and is stored as matrices:

    μ(s) = W₂ elu(W₁ elu(W₀ ŝ + b₀) + b₁) + b₂        ŝ = clip((s − mean) / std, ±10)
    a    = μ(s) + noise · σ ε                          σ: standard deviation at the end of training
    a    = tanh(μ(s) + noise · σ ε)                    if the file says so
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidFile, InvalidSettings
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles
from diffclone.tasks.options import check_not_negative

if TYPE_CHECKING:
    import diffclone.data.demonstrations

EXPERT_RECORDS = Path(str(resources.files("diffclone.assets") / "experts.jsonl"))
"""One Record per bundled expert: its score on the evaluation starts."""
DISTURBANCE_SEED = 5_000_000
MAX_TRIES = 100
"""`collect` gives up after this many episodes per accepted one."""
OBS_LIMIT = 10.0
"""Observations of a network expert are clipped to ± this many standard deviations."""


class Expert(ABC):
    """Acts in one episode at a time."""

    horizon: int
    """Number of steps after which it stops."""
    env_options: Mapping[str, Any] = {}
    """Options of the environments in which it demonstrates."""
    obs_dtype: npt.DTypeLike = np.float32
    """Type of the recorded observations; bytes for images."""
    image: tuple[int, int, int] | None = None
    """Channels, height and width of the image that an observation begins with, if numbers follow it."""

    def set_environment(self, env: BatchEnv) -> None:  # noqa: B027 (most experts do not need it)
        """Receive the environment, of which row 0 is used, for experts that know more than the observation."""

    @abstractmethod
    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Start an episode at this observation."""

    @abstractmethod
    def act(self, obs: Doubles) -> Doubles | None:
        """Return an action, or None to end the episode."""

    @abstractmethod
    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Return whether the episode that has just ended becomes a demonstration."""


@final
@dataclass(frozen=True, eq=False)
class Episode:
    """Observations and actions of one episode, and its outcome."""

    obs: list[Doubles]
    act: list[Doubles]
    returns: float
    success: bool


def run_episode(
    env: BatchEnv,
    expert: Expert,
    rng: np.random.Generator,
    steps: int,
    on_step: Callable[[BatchEnv], None] = lambda env: None,
    disturb: Callable[[Doubles], Doubles] = lambda act: act,
    *,
    seed: int | None = None,
) -> Episode:
    """Run one episode of at most `steps` steps in row 0; call `on_step` before each step and after the last.

    The environment executes `disturb(act)`; the episode has the expert's own action. The start is drawn from `rng`, or
    is that of the seed, as in `evaluate`.
    """
    row = np.zeros(1, dtype=np.int64)
    if seed is None:
        env.reset(row, [rng])
    else:
        env.reset_from_seeds(row, [seed])
    expert.reset(env.observe(row)[0], rng)
    episode_obs: list[Doubles] = []
    episode_act: list[Doubles] = []
    returns, success, ended = 0.0, False, False
    while len(episode_act) < steps and not ended:
        on_step(env)
        obs = env.observe(row)[0]
        act = expert.act(obs)
        if act is None:
            break
        act = act.astype(np.float32).astype(np.float64)  # demonstrations are stored in single precision
        episode_obs.append(obs)
        episode_act.append(act)
        outcome = env.step(row, disturb(act)[None])
        returns += float(outcome.reward[0])
        success, ended = bool(outcome.success[0]), bool(outcome.ended[0])
    on_step(env)
    return Episode(episode_obs, episode_act, returns, success)


def collect(
    env: BatchEnv,
    expert: Expert,
    episodes: int,
    *,
    seed: int = 0,
    disturbance: float = 0.0,
    meta: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    tries: Iterator[Episode | None] | None = None,
) -> "diffclone.data.demonstrations.Demonstrations":
    """Run the expert until it has accepted `episodes` episodes, and return those.

    Args:
        env: environments, of which row 0 is used.
        expert: the expert.
        episodes: number of accepted episodes.
        seed: chooses the starts and the noise.
        disturbance: standard deviation of Gaussian noise on the executed actions. The recorded actions do not have it,
            so the demonstrations show how the expert returns from states that it would not reach (as in DART).
        meta: what the file says about itself.
        progress: called with the number of accepted episodes and the total.
        tries: results of `try_episode` for 0, 1, …, if they are not made here.
    """
    from diffclone.data import Demonstrations

    check_not_negative(disturbance=disturbance)
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be collected; {episodes} were requested.")
    accepted: list[tuple[Any, list[Doubles]]] = []
    tried = 0
    expert.set_environment(env)
    while len(accepted) < episodes:
        if tried >= MAX_TRIES * (len(accepted) + 1):
            raise InvalidSettings(
                f"the expert accepted {len(accepted)} of {tried} episodes; {episodes} were requested. "
                "Its options make the task too hard for it."
            )
        episode = try_episode(env, expert, tried, seed, disturbance) if tries is None else next(tries)
        tried += 1
        if episode is not None:
            accepted.append((_to_parts(expert, episode.obs), episode.act))
            progress(len(accepted), episodes)
    bounds = [env.act_low.tolist(), env.act_high.tolist()]
    parts = {name: np.concatenate([obs[name] for obs, _ in accepted]) for name in accepted[0][0]}
    return Demonstrations.from_arrays(
        parts if expert.image is not None else parts["obs"],
        np.array([act for _, acts in accepted for act in acts]),
        episode_ends=np.cumsum([len(acts) for _, acts in accepted]),
        meta={**(meta or {}), "episodes_tried": tried, "seed": seed, "action_bounds": bounds},
    )


def _to_parts(expert: Expert, obs: list[Doubles]) -> dict[str, npt.NDArray[Any]]:
    """Return the observations of an episode as they are stored: an image and numbers, or one array."""
    if expert.image is None:
        return {"obs": np.array(obs, dtype=expert.obs_dtype)}
    rows, pixels = np.array(obs, dtype=np.float32), math.prod(expert.image)
    image = rows[:, :pixels].astype(np.uint8).reshape(-1, *expert.image)
    return {"image": image, "state": rows[:, pixels:]}


def try_episode(env: BatchEnv, expert: Expert, tried: int, seed: int, disturbance: float) -> Episode | None:
    """Return the expert's episode number `tried`, from 0 on; None if the expert does not accept it."""
    rng = np.random.default_rng([START_SEEDS["demonstrations"], seed, tried])
    disturb = gaussian_disturbance(disturbance, [seed, tried + 1])
    episode = run_episode(env, expert, rng, expert.horizon, disturb=disturb)
    return episode if expert.accept_episode(len(episode.act), success=episode.success) else None


def gaussian_disturbance(level: float, seed: list[int]) -> Callable[[Doubles], Doubles]:
    """Return a function that adds noise of standard deviation `level` to actions."""
    if not level:
        return lambda act: act
    rng = np.random.default_rng([DISTURBANCE_SEED, *seed])  # its own, so that the expert's noise stays the same
    return lambda act: act + level * rng.standard_normal(act.shape)


@final
@dataclass(frozen=True, eq=False)
class ExpertWeights:
    """The contents of an expert's file."""

    layers: list[tuple[Doubles, Doubles]]
    """Weight (in, out) and bias of each layer."""
    obs_mean: Doubles
    obs_std: Doubles
    act_std: Doubles
    """σ"""
    squash: bool
    """Whether tanh is applied to actions."""


@final
class NetworkExpert(Expert):
    """A small network that sees what a policy sees."""

    def __init__(
        self, weights: Path, *, horizon: int, noise: float, only_successful: bool, env_options: Mapping[str, Any]
    ):
        """Read the weights.

        Args:
            weights: file (.safetensors).
            horizon: number of steps in an episode.
            noise: scales the standard deviation σ of the Gaussian action noise.
            only_successful: accept successful episodes; otherwise those that reach the horizon.
            env_options: options of the environments in which it demonstrates.
        """
        self.horizon, self.env_options, self.noise, self.only_successful = horizon, env_options, noise, only_successful
        self.weights = read_weights(weights)
        self.rng = np.random.default_rng(0)

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Set the generator of the action noise."""
        self.rng = rng

    def act(self, obs: Doubles) -> Doubles | None:
        """Return μ(s) plus noise, or its tanh."""
        read = self.weights
        x = ((obs - read.obs_mean) / read.obs_std).clip(-OBS_LIMIT, OBS_LIMIT)
        for weight, bias in read.layers[:-1]:
            x = x @ weight + bias
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
        weight, bias = read.layers[-1]
        noise = self.noise * read.act_std * self.rng.standard_normal(len(bias)) if self.noise else 0.0
        act = x @ weight + bias + noise
        return np.tanh(act) if read.squash else act

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes, or those that reach the horizon."""
        return success if self.only_successful else steps == self.horizon


def network_expert(
    task: str, *, horizon: int, noise: float, only_successful: bool, env_options: Mapping[str, Any] | None = None
) -> Callable[..., NetworkExpert]:
    """Return the `make_expert` of a task whose expert is a network."""
    default_noise = noise

    def make_expert(noise: float = default_noise, weights: Path | None = None) -> NetworkExpert:
        path = weights or Path(str(resources.files("diffclone.assets") / "experts" / f"{task}.safetensors"))
        return NetworkExpert(
            path, horizon=horizon, noise=noise, only_successful=only_successful, env_options=env_options or {}
        )

    return make_expert


def read_weights(path: Path) -> ExpertWeights:
    """Read an expert's file."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.exists():
        raise InvalidFile(f"no such file: {path}. To train an expert: python -m scripts.train_expert.")
    try:
        arrays = {name: array.astype(np.float64) for name, array in load_file(path).items()}
        count = sum(name.startswith("bias.") for name in arrays)
        layers = [(arrays[f"weight.{k}"], arrays[f"bias.{k}"]) for k in range(count)]
        return ExpertWeights(layers, arrays["obs_mean"], arrays["obs_std"], arrays["act_std"], "squash" in arrays)
    except (SafetensorError, KeyError) as error:
        raise InvalidFile(f"{path} does not hold an expert's weights ({error}).") from None
