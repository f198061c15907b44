"""A task of Adroit: a hand with 24 joints turns a pen. Environment and success are those of Gymnasium-Robotics.

    observation (45)   joints of the hand (24); position and velocity of the pen (9); its direction and that of the
                       target (6), and the differences of positions and directions (6)
    action (24)        targets of the joints, in [−1, 1]
    success            the pen is within 7.5 cm of the target, and the cosine between the two is above 0.95; it ends the
                       episode, at most 200 steps long

Each start has its own direction of the target, as in Gymnasium-Robotics.

The expert is a network that was trained by PPO (`python -m scripts.train_expert adroit/pen`), with a reward of ours.
"""

import io
from contextlib import redirect_stderr
from typing import Any, final

import numpy as np

from diffclone.tasks.batch import Doubles
from diffclone.tasks.experts import network_expert
from diffclone.tasks.external import ExternalBatch, ExternalEnv, import_external
from diffclone.tasks.task import Task

OBS_SIZE, ACT_SIZE, HORIZON = 45, 24, 200


@final
class PenEnv(ExternalEnv):
    """Gymnasium-Robotics' environment."""

    def __init__(self) -> None:
        self.env = import_module().AdroitHandPenEnv(reward_type="dense")

    def reset(self, seed: int) -> Doubles:
        """Draw the direction of the target."""
        return self.env.reset(seed=seed)[0]

    def step(self, act: Doubles) -> tuple[Doubles, float, bool]:
        """Move the hand."""
        obs, reward, _, _, info = self.env.step(act)
        return obs, float(np.asarray(reward).item()), bool(info["success"])

    def scene(self) -> tuple[Any, Any, str]:
        """Return what MuJoCo renders."""
        return self.env.model, self.env.data, "fixed"

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def import_module() -> Any:
    """Import the module of the environment, without the remark on other environments that the package prints."""
    with redirect_stderr(io.StringIO()):
        return import_external("gymnasium_robotics.envs.adroit_hand.adroit_pen")


def make_batch(count: int, processes: int | None = None) -> ExternalBatch:
    """Return environments, which share the cores."""
    import_module()
    return ExternalBatch(PenEnv, count, OBS_SIZE, ACT_SIZE, processes)


PEN = Task(
    name="adroit/pen",
    summary="A hand turns a pen to a goal direction.",
    obs_size=OBS_SIZE,
    act_size=ACT_SIZE,
    horizon=HORIZON,
    metric="success",
    make_batch=make_batch,
    make_expert=network_expert("adroit-pen", horizon=HORIZON, noise=0.0, only_successful=True),
    package="gymnasium-robotics",
    environments_per_member=25,
)
