"""Any Gymnasium environment with rows of numbers as observations, for `lerobot-eval --env.type=gymnasium_state`.

LeRobot names environments of its own only. `--env.task` is a Gymnasium id, or `module:id` to import a module first.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig
from lerobot.utils.constants import ACTION, OBS_STATE

from diffclone.errors import InvalidSettings

STATE = "agent_pos"
"""LeRobot's key for observation.state in an environment."""


class StateObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the observation the name, and the success of an episode the key, that LeRobot expects."""

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Dict({STATE: env.observation_space})
        self.task_description = env.spec.id if env.spec is not None else ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. LeRobot's own options are not passed on."""
        obs, info = self.env.reset(seed=seed)
        return {STATE: obs}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do a step."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        success = bool(info.get("is_success", info.get("success", False)))
        return {STATE: obs}, reward, terminated, truncated, {**info, "is_success": success}


@EnvConfig.register_subclass("gymnasium_state")
@dataclass
class GymnasiumStateEnv(EnvConfig):
    """A Gymnasium environment, by its id."""

    task: str | None = "Pendulum-v1"
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of `gymnasium.make`."""

    def __post_init__(self) -> None:
        env = self.make_one()
        spaces = {STATE: env.observation_space[STATE], ACTION: env.action_space}
        env.close()
        for name, space in spaces.items():
            if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1 or space.dtype == np.uint8:
                raise InvalidSettings(
                    f"{self.task}: observations and actions must be rows of numbers; {name} is {space}."
                )
        self.features = {
            STATE: PolicyFeature(type=FeatureType.STATE, shape=spaces[STATE].shape),
            ACTION: PolicyFeature(type=FeatureType.ACTION, shape=spaces[ACTION].shape),
        }
        self.features_map = {STATE: OBS_STATE, ACTION: ACTION}

    @property
    def gym_kwargs(self) -> dict[str, Any]:
        """The arguments of `gymnasium.make`."""
        return {"render_mode": "rgb_array", **self.kwargs}

    def make_one(self) -> StateObservation:
        """Return one environment."""
        return StateObservation(gymnasium.make(self.task or "", **self.gym_kwargs))

    def create_envs(
        self,
        n_envs: int,
        use_async_envs: bool = False,  # noqa: FBT001, FBT002 (LeRobot's signature)
    ) -> dict[str, dict[int, gymnasium.vector.VectorEnv[Any, Any, Any]]]:
        """Return `n_envs` environments as one."""
        makers = [self.make_one] * n_envs
        vector = gymnasium.vector.AsyncVectorEnv if use_async_envs and n_envs > 1 else gymnasium.vector.SyncVectorEnv
        return {self.type: {0: vector(makers, autoreset_mode=AutoresetMode.SAME_STEP)}}
