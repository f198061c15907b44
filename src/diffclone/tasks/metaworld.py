"""Tasks of Meta-World 3.1.1: a Sawyer arm moves objects. Environments, experts and success are Meta-World's own.

    observation (39)   position of the hand (3), opening of the gripper (1), position and orientation of up to two
                       objects (14); the same of the previous step (18); position of the goal (3)
    action (4)         movement of the hand (3) and of the fingers (1), in [−1, 1]
    success            Meta-World's; it ends the episode, at most 500 steps long

Each start has its own positions of the objects and of the goal, drawn from the whole range of the environment, and the
goal is observed. (Meta-World's benchmarks draw 50 positions for each task.) The goal of bin-picking and of sweep-into
is always the same in Meta-World.

The expert is Meta-World's script for the task. Its actions are clipped to [−1, 1], as the environment does.
"""

import warnings
from typing import Any, final

import numpy as np

from diffclone.tasks.batch import Doubles
from diffclone.tasks.experts import Expert
from diffclone.tasks.external import ExternalBatch, ExternalEnv, import_external
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

HORIZON = 500


@final
class MetaWorldEnv(ExternalEnv):
    """One of Meta-World's environments, with starts chosen by a seed."""

    def __init__(self, name: str):
        """Make the environment of the task `name`, e.g. "stick-pull"."""
        env = self.env = import_external("metaworld.env_dict").ALL_V3_ENVIRONMENTS[f"{name}-v3"]()
        # As `metaworld.MT1` does for its tasks, but with the goal in the observation and new positions at each reset.
        env._partially_observable, env._freeze_rand_vec, env._set_task_called = False, False, True
        env.seeded_rand_vec = True
        del env.sawyer_observation_space  # computed without the goal, to which step() would clip it

    def reset(self, seed: int) -> Doubles:
        """Draw positions of objects and goal."""
        self.env.seed(seed)
        return self.env.reset()[0]

    def step(self, act: Doubles) -> tuple[Doubles, float, bool]:
        """Move the hand."""
        obs, reward, _, _, info = self.env.step(act.astype(np.float32))
        return obs, float(reward), bool(info["success"])

    def scene(self) -> tuple[Any, Any, str]:
        """Return what MuJoCo renders."""
        return self.env.model, self.env.data, "corner2"

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


@final
class MetaWorldExpert(Expert):
    """Meta-World's script for a task. It sees what a policy sees."""

    horizon = HORIZON

    def __init__(self, name: str, noise: float = 0.0):
        """Make the script of the task `name`; `noise` is the standard deviation of Gaussian noise on its actions."""
        check_not_negative(noise=noise)
        self.script = import_external("metaworld.policies").ENV_POLICY_MAP[f"{name}-v3"]()
        self.noise, self.rng = noise, np.random.default_rng(0)

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Set the generator of the noise."""
        self.rng = rng

    def act(self, obs: Doubles) -> Doubles:
        """Return the script's action."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the scripts warn that their actions will be clipped
            act = np.asarray(self.script.get_action(obs), dtype=np.float64)
        noise = self.noise * self.rng.standard_normal(len(act)) if self.noise else 0.0
        return np.clip(np.clip(act, -1, 1) + noise, -1, 1)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes."""
        return success


def metaworld_task(name: str, summary: str) -> Task:
    """Return a task of Meta-World."""

    def make_batch(count: int, processes: int | None = None) -> ExternalBatch:
        import_external("metaworld.env_dict")
        return ExternalBatch(lambda: MetaWorldEnv(name), count, 39, 4, processes)

    def make_expert(noise: float = 0.0) -> MetaWorldExpert:
        return MetaWorldExpert(name, noise)

    return Task(
        name=f"metaworld/{name}",
        summary=summary,
        obs_size=39,
        act_size=4,
        horizon=HORIZON,
        metric="success",
        make_batch=make_batch,
        make_expert=make_expert,
        package="metaworld",
        environments_per_member=25,
    )


METAWORLD = (
    metaworld_task("stick-pull", "An arm pulls a container by a stick through its handle."),
    metaworld_task("pick-place-wall", "An arm carries a puck over a wall to a goal."),
    metaworld_task("coffee-pull", "An arm pulls a mug away from a coffee machine."),
    metaworld_task("shelf-place", "An arm puts a block onto a shelf."),
    metaworld_task("disassemble", "An arm lifts a nut off a peg."),
    metaworld_task("basketball", "An arm drops a ball into a basket."),
    metaworld_task("hand-insert", "An arm puts a block into a hole."),
    metaworld_task("push-wall", "An arm pushes a puck around a wall to a goal."),
    metaworld_task("box-close", "An arm puts the lid onto a box."),
    metaworld_task("bin-picking", "An arm moves a block from one bin into another."),
    metaworld_task("soccer", "An arm pushes a ball into a goal."),
    metaworld_task("peg-insert-side", "An arm inserts a peg sideways into a hole."),
    metaworld_task("lever-pull", "An arm pulls a lever up."),
    metaworld_task("sweep-into", "An arm sweeps a block into a hole of the table."),
)
