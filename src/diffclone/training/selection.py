"""Metrics of policies on held-out episodes, to choose a policy without an environment. Lower is better.

Actions and states are in units of their standard deviations in the training demonstrations. δ is Gaussian noise.

    error_*          π(s) against the expert's action on held-out states: absolute, squared, trimmed, median
    train_absolute   the absolute error on training states
    near_absolute    π(s + δ) against the action of the nearest demonstration state
    sensitivity      ‖π(s + δ) − π(s)‖ / ‖δ‖
    disagreement     distance of π(s) from the mean of the other seeds with the same settings; near_ at s + δ
    cost, near_cost  the guide's cost of (s, π(s)), less that of the expert's pair, and of (s + δ, π(s + δ))
    track_K          distance from the demonstration after K steps in the learned dynamics, from held-out states
    stray_K          distance from the nearest demonstration state after K steps
    follow_K         π at the state after K steps against the action of the nearest demonstration state
    lag_K            steps that the nearest demonstration state is behind the demonstration after K steps, divided by K
    recover_K        as track_K, from s + δ;  return_K: as stray_K, from s + δ
    model_K          as track_K with the expert's own actions: the error of the dynamics, equal for all members

A metric that cannot be computed is NaN: costs without a guide, disagreement with one seed, and everything that needs
distances between states if observations are images.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from diffclone.data import Demonstrations
from diffclone.model import Dims, bind_cost
from diffclone.policy import Policy
from diffclone.rng import Rng
from diffclone.training.dynamics import MODELS, Dynamics, DynamicsModel, Scale, learn_dynamics

PAIRS = 1024
"""Held-out pairs, and training pairs, that errors are computed on."""
REFERENCE = 4096
"""Demonstration states among which nearest neighbours are searched."""
WINDOWS = 16 * MODELS
"""Starts of rollouts."""
HORIZONS = (5, 10, 20, 50)
NOISE = 0.1
"""Standard deviation of δ."""
FARTHEST = 3.0
"""Distances between states are clipped to this, so that a few failures do not hide all else."""
ROWS = 8_192
"""Rows of a distance matrix that are computed at once."""

NAMES = (
    *("error_absolute", "error_squared", "error_trimmed", "error_median", "train_absolute", "near_absolute"),
    *("sensitivity", "disagreement", "near_disagreement", "cost", "near_cost"),
    *(f"{name}_{k}" for name in ("track", "stray", "follow", "lag", "recover", "return", "model") for k in HORIZONS),
)


@final
@dataclass(frozen=True, eq=False)
class SelectionContext:
    """What all policies of one data set share: held-out pairs, neighbours, windows and the learned dynamics."""

    scale: Scale
    held_out: tuple[Tensor, Tensor]
    """Raw states and actions."""
    train: tuple[Tensor, Tensor]
    noise: Tensor
    """δ of each held-out state, in scaled units."""
    reference: tuple[Tensor, Tensor, Tensor] | None
    """Scaled states and actions of demonstrations, and the steps left in their episodes; None for images."""
    dynamics: Dynamics | None
    windows: Tensor | None
    """Scaled states from which rollouts start and those that follow, (WINDOWS, longest horizon + 1, size); NaN after
    the end of the episode."""
    model_error: dict[str, float]
    """model_K of each horizon."""

    @classmethod
    def prepare(
        cls,
        train: Demonstrations,
        held_out: Demonstrations,
        device: torch.device | str = "cpu",
        dynamics: DynamicsModel | None = None,
        *,
        closed_loop: bool = True,
    ) -> "SelectionContext":
        """Learn the dynamics from `train` and arrange the data; do this once per data set.

        Without `closed_loop` only errors of single actions and disagreement are computed, in a fraction of the time.
        """
        device = torch.device(device)
        images = train.obs.dtype == np.uint8
        scale = Scale.from_demonstrations(train, device)
        rng = np.random.default_rng(0)
        pairs, seen = (_some_pairs(demos, PAIRS, rng, device)[:2] for demos in (held_out, train))
        noise = torch.tensor(rng.standard_normal(pairs[0].shape), dtype=torch.float32, device=device) * NOISE
        if images or not closed_loop:
            return cls(scale, pairs, seen, noise, None, None, None, {})
        both = [_some_pairs(demos, REFERENCE, rng, device) for demos in (held_out, train)]
        states, actions, left = (torch.cat(parts)[:REFERENCE] for parts in zip(*both, strict=True))
        reference = (scale.scale_obs(states), scale.scale_act(actions), left)
        model, windows = learn_dynamics(train, device, dynamics), _windows(held_out, scale, device)
        model = None if windows is None else model
        error = {} if model is None or windows is None else _model_error(model, *windows)
        return cls(scale, pairs, seen, noise, reference, model, None if windows is None else windows[0], error)

    def nearest(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the distance of scaled states to the nearest demonstration state, its action and its steps left."""
        assert self.reference is not None
        states, actions, left = self.reference
        rows = z.reshape(-1, z.shape[-1])
        found = [torch.cdist(part, states).min(-1) for part in rows.split(ROWS)]
        distance, index = torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])
        root = z.shape[-1] ** 0.5
        shape = z.shape[:-1]
        return distance.reshape(shape) / root, actions[index].reshape(*shape, -1), left[index].reshape(shape)


@torch.no_grad()
def selection_metrics(policy: Policy, context: SelectionContext) -> dict[str, list[float]]:
    """Return each metric with one value per member. The context must be on the policy's device."""
    scale, (s, a) = context.scale, context.held_out
    found: dict[str, Tensor] = {}
    π = scale.scale_act(policy.act(s[None], 0))
    difference = π - scale.scale_act(a)
    absolute = difference.abs().mean(-1)
    squared = difference.square().mean(-1)
    found["error_absolute"], found["error_squared"] = absolute.mean(-1), squared.mean(-1)
    found["error_trimmed"] = squared.sort(-1).values[:, : max(1, round(0.9 * squared.shape[-1]))].mean(-1)
    found["error_median"] = absolute.median(-1).values
    found["disagreement"] = _disagreement(policy, π)
    seen = scale.scale_act(policy.act(context.train[0][None], 1)) - scale.scale_act(context.train[1])
    found["train_absolute"] = seen.abs().mean((-2, -1))
    if context.reference is not None:
        z_near = scale.scale_obs(s) + context.noise
        s_near = scale.restore_obs(z_near)
        π_near = scale.scale_act(policy.act(s_near[None], 0))
        _, expert, _ = context.nearest(z_near)
        found["near_absolute"] = (π_near - expert).abs().mean((-2, -1))
        lengths = context.noise.norm(dim=-1)
        found["sensitivity"] = ((π_near - π).norm(dim=-1) / lengths).square().mean(-1).sqrt()
        found["near_disagreement"] = _disagreement(policy, π_near)
        if policy.guide is not None:
            own = _guide_cost(policy, s, policy.act(s[None], 0)) - _guide_cost(policy, s, a[None])
            found["cost"], found["near_cost"] = own, _guide_cost(policy, s_near, policy.act(s_near[None], 0))
    if context.dynamics is not None and context.windows is not None:
        found |= _roll_out(policy, context, context.dynamics, context.windows)
    missing = torch.full((len(policy),), torch.nan)
    constant = {name: torch.full((len(policy),), value) for name, value in context.model_error.items()}
    return {name: {**found, **constant}.get(name, missing).double().cpu().tolist() for name in NAMES}


def _roll_out(policy: Policy, context: SelectionContext, dynamics: Dynamics, windows: Tensor) -> dict[str, Tensor]:
    """Return the closed-loop metrics. Half of the rollouts start at demonstration states, half beside them."""
    starts = windows[:, 0]
    noise = context.noise[torch.arange(len(starts), device=starts.device) % len(context.noise)]
    both = torch.cat([starts, starts + noise]).expand(len(policy), -1, -1)
    longest = windows.shape[1] - 1
    states = dynamics.roll_out(lambda obs, k: policy.act(obs, k), both, longest)
    found: dict[str, Tensor] = {}
    for k in HORIZONS:
        if k > longest:
            continue
        z, expert = states[k - 1], windows[:, k]
        known = ~expert[:, 0].isnan()
        if not bool(known.any()):
            continue
        clean, pushed = z[:, : len(starts)][:, known], z[:, len(starts) :][:, known]
        (near, act, left), (pushed_near, _, _) = context.nearest(clean), context.nearest(pushed)
        _, _, expert_left = context.nearest(expert[known])
        π = context.scale.scale_act(policy.act(context.scale.restore_obs(clean), k))
        found[f"track_{k}"] = _clipped_mean(_distance(clean, expert[known]))
        found[f"stray_{k}"] = _clipped_mean(near)
        found[f"follow_{k}"] = (π - act).abs().mean((-2, -1))
        found[f"lag_{k}"] = (left - expert_left).clamp(0, k).mean(-1) / k
        found[f"recover_{k}"] = _clipped_mean(_distance(pushed, expert[known]))
        found[f"return_{k}"] = _clipped_mean(pushed_near)
    return found


def _distance(z: Tensor, other: Tensor) -> Tensor:
    return (z - other).square().mean(-1).sqrt()


def _clipped_mean(distance: Tensor) -> Tensor:
    return distance.clamp(max=FARTHEST).mean(-1)


def _disagreement(policy: Policy, act: Tensor) -> Tensor:
    """Return the root mean square distance to the mean of the other seeds; NaN for a member without others."""
    found = torch.full((len(policy),), torch.nan, device=act.device)
    for group in same_settings(policy.members):
        if len(group) > 1:
            own = act[group]
            others = (own.sum(0, keepdim=True) - own) / (len(group) - 1)
            found[group] = (own - others).square().mean((-2, -1)).sqrt()
    return found


def same_settings(members: Sequence[dict[str, int | float]]) -> list[list[int]]:
    """Return groups of members that differ only in their seeds."""
    groups: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for m, member in enumerate(members):
        key = tuple(sorted((name, float(value)) for name, value in member.items() if name != "seed"))
        groups.setdefault(key, []).append(m)
    return list(groups.values())


def _guide_cost(policy: Policy, obs: Tensor, act: Tensor) -> Tensor:
    """Return the mean cost of raw pairs, obs (rows, size) and act (members or 1, rows, size), for each member."""
    assert policy.guide is not None
    guide, normaliser = policy.guide, policy.normaliser
    f = guide.observe(normaliser.normalise_obs(obs).expand(len(guide), -1, -1))
    a = normaliser.normalise_act(act)
    rng = Rng([0], device=obs.device, dtype=f.dtype, path="selection")
    draw = guide.guide.draw(f.shape[-2], Dims(f.shape[-1], a.shape[-1]), rng)
    members = max(len(guide), len(a))
    cost = bind_cost(guide.guide, "guide", guide.parts)
    return cost(f.expand(members, -1, -1), a.expand(members, -1, -1), draw).mean(-1)


def _some_pairs(
    demos: Demonstrations, count: int, rng: np.random.Generator, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return raw states and actions of random steps, and the steps left in their episodes."""
    rows = np.sort(rng.permutation(demos.num_steps)[:count])
    left = np.repeat(demos.episode_ends, demos.lengths) - 1 - np.arange(demos.num_steps)
    obs, act = torch.tensor(demos.observe(rows)).float(), torch.tensor(demos.act[rows])
    return obs.to(device), act.to(device), torch.tensor(left[rows], dtype=torch.float32, device=device)


def _windows(demos: Demonstrations, scale: Scale, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Return scaled states and raw actions from evenly spaced steps on, (WINDOWS, longest horizon + 1, size)."""
    longest = max(HORIZONS)
    starts = [
        (end - length + t, end)
        for end, length in zip(demos.episode_ends.tolist(), demos.lengths.tolist(), strict=True)
        for t in range(max(length - longest, length // 2))
    ]
    if not starts:
        return None
    chosen = [starts[k] for k in np.linspace(0, len(starts) - 1, WINDOWS).round().astype(int)]
    obs = np.full((WINDOWS, longest + 1, demos.obs.shape[1]), np.nan, dtype=np.float32)
    act = np.zeros((WINDOWS, longest + 1, demos.act.shape[1]), dtype=np.float32)
    for k, (start, end) in enumerate(chosen):
        stop = min(end, start + longest + 1)
        obs[k, : stop - start], act[k, : stop - start] = demos.obs[start:stop], demos.act[start:stop]
    return scale.scale_obs(torch.tensor(obs, device=device)), torch.tensor(act, device=device)


def _model_error(dynamics: Dynamics, windows: Tensor, actions: Tensor) -> dict[str, float]:
    """Return the distance from the demonstrations after K steps with the expert's actions."""
    replay: Callable[[Tensor, int], Tensor] = lambda obs, k: actions[None, :, k]  # noqa: E731
    states = dynamics.roll_out(replay, windows[None, :, 0], windows.shape[1] - 1)
    found: dict[str, float] = {}
    for k in HORIZONS:
        known = ~windows[:, k, 0].isnan()
        if bool(known.any()):
            found[f"model_{k}"] = float(_clipped_mean(_distance(states[k - 1][0][known], windows[known, k])))
    return found
