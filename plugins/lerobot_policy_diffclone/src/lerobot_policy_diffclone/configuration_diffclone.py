"""The settings of a diffclone policy in LeRobot, and the learning rates of its two stages."""

from dataclasses import dataclass, field
from typing import Any

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
from lerobot.optim.optimizers import AdamWConfig
from lerobot.optim.schedulers import LRSchedulerConfig
from lerobot.utils.constants import OBS_ENV_STATE, OBS_STATE
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from diffclone.data.normaliser import LIMIT
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidSettings
from diffclone.methods import BC, DBC, METHODS
from diffclone.model import Dims, Guide, Training
from diffclone.settings import from_dict

NO_CLIPPING = 1e9
"""LeRobot's optimisers have no setting for gradients that are not clipped."""


@LRSchedulerConfig.register_subclass("diffclone")
@dataclass
class StagesSchedulerConfig(LRSchedulerConfig):
    """A linear decay to zero in each stage: the guide's in the first `guide_steps` steps, then the policy's."""

    num_warmup_steps: int | None = 0
    guide_steps: int = 0

    def build(self, optimizer: Optimizer, num_training_steps: int) -> LambdaLR:
        """Return the schedule of each group of parameters; the group says which stage it belongs to."""
        if self.guide_steps >= num_training_steps:
            raise InvalidSettings(
                f"the guide takes the first {self.guide_steps} steps, and --steps is {num_training_steps}: none is "
                "left for the policy. Pass a larger --steps or a smaller --policy.guide_steps."
            )
        stages = {"guide": (0, self.guide_steps), "policy": (self.guide_steps, num_training_steps - self.guide_steps)}
        return LambdaLR(optimizer, [Decay(*stages[group["stage"]]) for group in optimizer.param_groups])


@dataclass
class Decay:
    """The share of the learning rate that remains, as a function of the step."""

    first: int
    length: int

    def __call__(self, step: int) -> float:
        """Return 1 before the stage, 0 after it."""
        return 1 - min(max(step - self.first, 0) / max(self.length, 1), 1)


@PreTrainedConfig.register_subclass("diffclone")
@dataclass
class DiffcloneConfig(PreTrainedConfig):
    """A method of diffclone on states: `bc`, or `dbc` with a guide that is trained before the policy."""

    method: dict[str, Any] = field(default_factory=lambda: {"type": "dbc"})
    """The settings of the method, as diffclone writes them into JSON; those left out have their defaults. They include
    `horizon`, `execute` and `history`: the actions that a call returns, those that are played before the next call, and
    the observations that a call sees. LeRobot sets the number of steps and the batch size, so `training.updates` and
    `training.batch` are not used."""
    guide_steps: int = 10_000
    """G, the number of steps at the beginning that train the guide. The others train the policy."""
    observation_limit: float | None = LIMIT
    """Normalised observations are clipped to ± this; None for no limit."""
    action_bounds: list[list[float]] | None = None
    """Lowest and highest action, to which the postprocessor clips; None for no bounds."""
    normalization_mapping: dict[str, NormalizationMode] = field(
        default_factory=lambda: dict.fromkeys(("STATE", "ENV", "ACTION"), NormalizationMode.MEAN_STD)
    )
    push_to_hub: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guide_steps < 0:
            raise InvalidSettings(f"guide_steps must not be negative; it is {self.guide_steps}.")
        self.n_obs_steps = self.chunks.history

    def make_method(self) -> BC | DBC:
        """Return the settings as diffclone's own object."""
        method = from_dict(METHODS, self.method, "policy.method")
        if not isinstance(method, BC | DBC):
            raise InvalidSettings(f"policy.method.type must be bc or dbc; it is {self.method.get('type')!r}.")
        parts = method.needs()
        if set(parts) - {"guide"} or any(part.trained != "before" or part.needs() for part in parts.values()):
            raise InvalidSettings(
                "policy.method: LeRobot's loop can train a guide before the policy; this method has an encoder, or a "
                f"guide that is trained alongside the policy: {', '.join(parts)}."
            )
        return method

    @property
    def chunks(self) -> Chunks:
        """How many observations a call sees, and how many actions it returns."""
        chunks = self.make_method().chunks
        if chunks.ensemble is not None:
            raise InvalidSettings("policy.method.ensemble must be null: the policy plays one chunk after the other.")
        return chunks

    @property
    def n_action_steps(self) -> int:
        """LeRobot's name for `execute`."""
        return self.chunks.execute

    @property
    def chunk_size(self) -> int:
        """LeRobot's name for `horizon`."""
        return self.chunks.horizon

    @property
    def guide(self) -> Guide[Any] | None:
        """The settings of the guide; None for BC."""
        guide = self.make_method().needs().get("guide")
        return guide if isinstance(guide, Guide) else None

    @property
    def first_policy_step(self) -> int:
        """G, or 0 without a guide."""
        return 0 if self.guide is None else self.guide_steps

    def trainings(self) -> dict[str, Training]:
        """Return how the guide and the policy are trained. Settings that LeRobot's loop cannot follow are refused."""
        method, guide = self.make_method(), self.guide
        found = {"policy": method.training} if guide is None else {"guide": guide.training, "policy": method.training}
        for stage, training in found.items():
            if training.decay != "linear" or training.ema is not None or training.clip != method.training.clip:
                raise InvalidSettings(
                    f"policy.method: the training of the {stage} must have decay linear, no ema, and the same clip as "
                    f"the policy in LeRobot; it has {training.decay}, {training.ema} and {training.clip}."
                )
        return found

    @property
    def observation_features(self) -> dict[str, PolicyFeature]:
        """The features that make up an observation, joined in the order in which diffclone reads a LeRobot dataset."""
        found = self.input_features or {}
        order = [key for key in (OBS_STATE, OBS_ENV_STATE) if key in found]
        return {key: found[key] for key in [*order, *sorted(set(found) - set(order))]}

    @property
    def dims(self) -> Dims:
        """Sizes of an observation and of an action."""
        action = self.action_feature
        assert action is not None
        return Dims(sum(feature.shape[0] for feature in self.observation_features.values()), action.shape[0])

    def validate_features(self) -> None:
        """Refuse datasets with images or without states."""
        features = self.observation_features
        images = [key for key, feature in features.items() if feature.type is FeatureType.VISUAL]
        if images:
            raise InvalidSettings(
                f"diffclone's policy takes states, and the dataset has images: {', '.join(images)}. Name the features "
                """to use: --policy.input_features='{"observation.state": {"type": "STATE", "shape": [SIZE]}}'."""
            )
        if wrong := {key: f.shape for key, f in features.items() if len(f.shape) != 1}:
            raise InvalidSettings(f"observations must be rows of numbers; these have other shapes: {wrong}.")
        if not features or self.action_feature is None or len(self.action_feature.shape) != 1:
            raise InvalidSettings(
                f"the dataset needs observation.state and action, rows of numbers; it has {', '.join(features)} and "
                f"{', '.join(self.output_features or {})}."
            )

    def get_optimizer_preset(self) -> AdamWConfig:
        """Return AdamW, which is Adam without weight decay; `get_optim_params` has the values of each stage."""
        training = self.trainings()["policy"]
        clip = NO_CLIPPING if training.clip is None else training.clip
        return AdamWConfig(
            lr=float(training.lr), eps=training.eps, weight_decay=float(training.weight_decay), grad_clip_norm=clip
        )

    def get_scheduler_preset(self) -> StagesSchedulerConfig:
        """Return the learning rates of both stages."""
        return StagesSchedulerConfig(guide_steps=self.first_policy_step)

    @property
    def observation_delta_indices(self) -> list[int] | None:
        """The current observation and those before it. LeRobot reads single steps ten times faster without a list."""
        history = self.chunks.history
        return None if history == 1 else list(range(1 - history, 1))

    @property
    def action_delta_indices(self) -> list[int] | None:
        """The current action and those after it."""
        horizon = self.chunks.horizon
        return None if horizon == 1 else list(range(horizon))

    @property
    def reward_delta_indices(self) -> None:
        """No rewards."""
        return
