"""Contract checks for a method: every method in `METHODS` passes them, and so should yours.

The checks train with a few dozen updates, whatever the settings say. Narrow networks make them faster.
"""

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar, final
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from diffclone.data import Demonstrations
from diffclone.errors import DiffcloneError, DiffcloneWarning
from diffclone.fit import Diverged, FitOptions, Fitted, fit_with_options
from diffclone.model import Method, Model
from diffclone.policy import Policy
from diffclone.settings import from_dict, to_dict
from diffclone.testing.patches import checked_init, checked_loss, poisoned_init, require
from diffclone.training import Progress

UPDATES, BATCH = 40, 32
"""Updates and batch size of the checks. The loop reports after 32 updates, where a training can be interrupted."""
TOLERANCE = 1e-9
"""A member alone and the same member in a stack may differ by this much of the largest weight, in float64."""

M = TypeVar("M", bound=Model[Any])


def check_method(
    method: Method[Any],
    demos: Demonstrations | None = None,
    vary: Mapping[str, Sequence[float]] | None = None,
) -> None:
    """Raise `AssertionError` if a method breaks a rule that training, saving and evaluation rely on.

    Args:
        method: the method with its settings.
        demos: demonstrations to train on, with action bounds; by default 400 steps of two numbers.
        vary: two values of each stackable field; by default 0.3 and 2 of the first, and others of the next.
    """
    trial = Trial(shorten(method), demos or make_demonstrations(), vary or {})
    for check in CHECKS:
        check(trial)


def make_demonstrations() -> Demonstrations:
    """Return demonstrations of an expert whose action is a function of its observation."""
    obs = np.random.default_rng(0).uniform(-1, 1, (400, 2))
    act = np.stack([np.sin(3 * obs[:, 0]), obs[:, 0] * obs[:, 1]], 1)
    bounds = {"action_bounds": [[-1.0, -1.0], [1.0, 1.0]]}
    return Demonstrations.from_arrays(obs, act, episode_ends=np.arange(50, 401, 50), meta=bounds)


def shorten(model: M) -> M:
    """Return a model with brief trainings of itself and of the models among its fields.

    A large epsilon and no clipping make the weights depend on the scale of a loss, which members must not share.
    """
    updates = min(model.training.updates, UPDATES)
    training = replace(model.training, updates=updates, batch=BATCH, eps=1e-3, clip=None)
    inner = {f.name: getattr(model, f.name) for f in fields(model)}
    parts = {name: shorten(value) for name, value in inner.items() if isinstance(value, Model)}
    return replace(model, training=training, **parts)


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """A method to check, and its trainings so far."""

    method: Method[Any]
    demos: Demonstrations
    vary: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    trained: dict[str, Fitted] = field(default_factory=dict[str, Fitted])

    def stackable(self) -> dict[str, list[float]]:
        """Return two values of each stackable field."""
        names = [f.name for f in fields(self.method) if f.metadata.get("stackable")]
        # Two fields that weight losses must not have proportional values, which Adam does not tell apart.
        return {name: list(self.vary.get(name, (0.3 + 0.2 * k, 2.0 + 5.0 * k))) for k, name in enumerate(names)}

    def train(self, seeds: Sequence[int] = (0, 1), vary: Mapping[str, Sequence[float]] | None = None) -> Fitted:
        """Train in float64, or return an earlier training with the same arguments."""
        key = repr((seeds, vary))
        if key not in self.trained:
            self.trained[key] = train(self.method, self.demos, seeds, vary)
        return self.trained[key]

    def require(self, condition: bool, message: str) -> None:  # noqa: FBT001
        """Raise `AssertionError` with the name of the method."""
        require(condition, self.method, message)


def train(
    method: Method[Any],
    demos: Demonstrations,
    seeds: Sequence[int] = (0, 1),
    vary: Mapping[str, Sequence[float]] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Fitted:
    """Train on one core, so that all members are in one stack, and without a warning about members that diverge."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiffcloneWarning)
            return fit_with_options(method, demos, FitOptions(seeds=seeds, vary=vary, dtype=dtype, device="cpu"))
    finally:
        torch.set_num_threads(threads)


def weights_of(net: nn.Module) -> Tensor:
    """Return all weights as (members, numbers)."""
    return torch.cat([p.detach().flatten(1) for p in net.parameters()], 1)


def all_weights(fitted: Fitted) -> Tensor:
    """Return the weights of the members and of their parts. A part that members share is repeated."""
    matrices = [weights_of(net) for net in (fitted.trained.net, *fitted.trained.parts.values())]
    return torch.cat([matrix.expand(len(fitted.policy), -1) for matrix in matrices], 1)


def models_of(model: Model[Any]) -> Iterator[Model[Any]]:
    """Yield a model and all that it needs."""
    yield model
    for part in model.needs().values():
        yield from models_of(part)


def check_settings(model: Model[Any]) -> None:
    """Settings are a frozen dataclass that survives JSON."""
    require(
        "__dataclass_fields__" in vars(type(model)), model, "the class must be decorated with @dataclass(frozen=True)"
    )
    try:
        values = json.loads(json.dumps(to_dict(model)))
        require(from_dict(type(model), values) == model, model, "settings that were saved and loaded differ")
    except (TypeError, DiffcloneError) as error:
        raise AssertionError(f"{type(model).__name__}: the settings cannot be saved and loaded ({error}).") from error


def check_trial_settings(trial: Trial) -> None:
    """All models of a method have settings that survive JSON."""
    for model in models_of(trial.method):
        check_settings(model)


def check_axes(trial: Trial) -> None:
    """Weights lead with the member axis, a loss is one number per member, and both have the requested precision."""
    brief = replace(trial.method, training=replace(trial.method.training, updates=1))
    with ExitStack() as patches:
        for cls in {type(model) for model in models_of(trial.method)}:
            patches.enter_context(patch.object(cls, "init", checked_init(trial.method, cls)))
            patches.enter_context(patch.object(cls, "loss", checked_loss(trial.method, cls)))
        train(brief, trial.demos, (0, 1, 2))


def check_randomness(trial: Trial) -> None:
    """All randomness comes from `rng`."""
    first, second = trial.train(), train(trial.method, trial.demos)  # a global generator would have moved on
    same = torch.equal(all_weights(first), all_weights(second))
    trial.require(same, "two trainings with the same seeds differ; take all randomness from `rng`")


def check_members(trial: Trial) -> None:
    """A member is the same alone and in a stack, and members differ from each other."""
    values = trial.stackable()
    # Members are all combinations, so the fields that vary are few at a time. Members of one seed share their parts.
    for seeds, varied in (((0, 1), list(values)[:3]), ((3,), list(values)[3:] or list(values))):
        chosen = {name: pair if name in varied else pair[1:] for name, pair in values.items()}
        stacked = trial.train(seeds, chosen)
        rows, members = all_weights(stacked), list(stacked.policy.members)
        for index in sorted({0, len(members) - 1}):
            chosen = {name: value for name, value in members[index].items() if name != "seed"}
            alone = train(replace(trial.method, **chosen), trial.demos, (int(members[index]["seed"]),))
            weights = all_weights(alone)[0]
            difference = float((rows[index] - weights).abs().max() / weights.abs().max())
            trial.require(
                difference < TOLERANCE,
                f"member {members[index]} differs by {difference:.1e} from the same member alone; the members must "
                "not influence each other",
            )
        if len(members) > 1:
            distance = float(torch.pdist(weights_of(stacked.trained.net)).min())
            trial.require(distance > 1e-5, "two members with other seeds or settings have the same weights")


def check_nan(trial: Trial) -> None:
    """A member that becomes NaN changes no bit of the others."""
    values = trial.stackable()
    used = {name: [other] for name, (_, other) in values.items()}  # one field may count only if another is not 0
    twice = {name: 2 * other for name, other in list(used.items())[:1]}  # the same members, whichever field it is
    for name, other in used.items():
        sound, poisoned = trial.train((0, 1), used | twice), trial.train((0, 1), used | {name: [float("nan"), *other]})
        rows = [weights_of(fitted.trained.net)[2:] for fitted in (sound, poisoned)]
        trial.require(torch.equal(*rows), f"a member with {name} NaN changes the weights of other members")
        trial.require(0 in poisoned.policy.diverged, f"a member with {name} NaN has finite weights: {name} is not used")
    sound = all_weights(trial.train())[1]
    for cls in {type(model) for model in models_of(trial.method)}:
        rows = None
        with patch.object(cls, "init", poisoned_init(cls)), suppress(Diverged):
            rows = all_weights(train(trial.method, trial.demos))
        same = rows is not None and torch.equal(rows[1], sound)
        trial.require(same, f"NaN weights of one member's {cls.__name__} change another member")


def check_actions(trial: Trial) -> None:
    """Actions have the right shape, are finite and within bounds, and are the same after saving and loading."""
    policy = train(trial.method, trial.demos, (0, 1, 2), dtype=torch.float32).policy
    obs = np.concatenate([trial.demos.obs[:3], (1e6 * trial.demos.obs[:1]).astype(trial.demos.obs.dtype)])
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy")
        loaded = Policy.load(Path(folder) / "policy")
        same = np.array_equal(call(loaded, obs), call(policy, obs))
        trial.require(same, "a policy acts differently after saving and loading")
        together, single = call(loaded, obs), Policy.load(Path(folder) / "policy")[1]
    size = policy.window_dims.act
    trial.require(together.shape == (3, 4, size), f"actions have shape {together.shape}, not (3, 4, {size})")
    trial.require(bool(np.isfinite(together).all()), "an action is not finite")
    if (bounds := trial.demos.action_bounds) is not None:
        single_actions = together.reshape(*together.shape[:-1], -1, len(bounds[0]))
        inside = bool((single_actions >= bounds[0]).all() and (single_actions <= bounds[1]).all())
        trial.require(inside, "an action is out of bounds")
    call(single, obs)  # a method that samples draws new numbers in each call
    alone = call(single, obs)
    trial.require(alone.shape == (4, size), f"one member's actions have shape {alone.shape}, not (4, {size})")
    one = call(single, obs[0])
    trial.require(one.shape == (size,), f"one action has shape {one.shape}, not ({size},)")
    near = np.allclose(alone, together[1], rtol=1e-4, atol=1e-5)
    trial.require(near, "a member acts differently alone and in a stack")


def call(policy: Policy, obs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return actions for single observations, or chunks for windows that repeat them if the policy has a memory."""
    if not policy.chunks.has_memory:
        return policy(obs)
    x = torch.tensor(np.atleast_2d(obs)).to(policy.normaliser.obs_mean.dtype).repeat(1, policy.chunks.history)
    act = policy.act(x[None], next(policy.calls)).numpy()
    act = act[0] if len(policy) == 1 else act
    return act if obs.ndim == 2 else act[..., 0, :]


def check_chunks(trial: Trial) -> None:
    """The method learns chunks from histories: its networks take their sizes from `dims`, not from the data."""
    if trial.method.chunks.has_memory:
        return
    method = replace(trial.method, horizon=3, execute=2, history=2)
    policy = train(method, trial.demos, (0,), dtype=torch.float32).policy
    session, size = policy.session(), trial.demos.act.shape[1]
    played = np.stack([session(obs) for obs in trial.demos.obs[:4]])
    trial.require(played.shape == (4, size), f"a session plays actions of shape {played.shape[1:]}, not ({size},)")
    trial.require(bool(np.isfinite(played).all()), "an action of a chunk is not finite")


def check_resuming(trial: Trial) -> None:
    """A training that was interrupted ends with the weights of one that was not, bit for bit."""

    class Interruption(Exception):
        pass

    def interrupt(now: Progress) -> None:
        if now.stage == "policy" and now.losses:
            raise Interruption

    straight = train(trial.method, trial.demos, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        options = FitOptions(seeds=(0, 1), device="cpu", checkpoints=folder)
        with suppress(Interruption):
            fit_with_options(trial.method, trial.demos, options, interrupt)
        resumed = fit_with_options(trial.method, trial.demos, options)
    same = torch.equal(weights_of(resumed.trained.net), weights_of(straight.trained.net))
    trial.require(same, "a training that was interrupted and resumed ends with other weights")


CHECKS: tuple[Callable[[Trial], None], ...] = (
    check_trial_settings,
    check_axes,
    check_randomness,
    check_members,
    check_nan,
    check_actions,
    check_chunks,
    check_resuming,
)
