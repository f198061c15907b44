"""Tasks of OGBench 1.2.2: a UR5e arm with a gripper moves a cube. Environments, experts and success are OGBench's own.

    observation        OGBench's: joints (12), effector and gripper (7), position and orientation of each cube (9); then
                       which cube to move (one number per cube, if there are several), the cosine and sine of the
                       target's yaw (2), and the position of the target (3), scaled as that of the cubes
    action (5)         movement of the effector (3), its yaw, and the gripper, relative to the present ones, in [−1, 1]
    success            the cube is within 4 cm of the target; it ends the episode, at most 200 steps long

Each start has its own positions of arm, cubes and target, as in the collection of OGBench's data sets (mode
"data_collection"); OGBench's evaluation has five starts instead. With two cubes the target may be on top of the other.

The expert is OGBench's closed-loop script for cubes, without the noise that OGBench's data sets have. It knows the
state of the simulation and the target, which are all in the observation.
"""

from typing import Any, final

import numpy as np

from diffclone.tasks.batch import BatchEnv, Doubles
from diffclone.tasks.experts import Expert
from diffclone.tasks.external import ExternalBatch, ExternalEnv, import_external
from diffclone.tasks.options import check_not_negative
from diffclone.tasks.task import Task

HORIZON = 200
CENTRE, SCALE = np.array([0.425, 0.0, 0.0]), 10.0
"""OGBench's observations have positions as (position − CENTRE) · SCALE."""
NEAR = 0.04
"""OGBench's largest distance of a cube from its target, in metres."""
CUBES = {"single": 1, "double": 2}


@final
class CubeEnv(ExternalEnv):
    """One of OGBench's cube environments, with a new target at each start."""

    def __init__(self, kind: str):
        """Make the environment with "single" or "double" cubes."""
        module = import_external("ogbench.manipspace.envs.cube_env")
        self.env = module.CubeEnv(kind, mode="data_collection", visualize_info=False, width=480, height=360)
        self.cubes = CUBES[kind]
        self.info: dict[str, Any] = {}
        """What OGBench reports beside the observation; its script reads it."""

    def reset(self, seed: int) -> Doubles:
        """Draw positions of arm, cubes and target; a target at which the cube is already is drawn again."""
        obs, self.info = self.env.reset(seed=seed)
        while self._distance() <= NEAR:
            obs, self.info = self.env.set_new_target()
        return self._with_target(obs)

    def step(self, act: Doubles) -> tuple[Doubles, float, bool]:
        """Move the arm."""
        obs, reward, _, _, self.info = self.env.step(act)
        return self._with_target(obs), float(reward), bool(self.info["success"])

    def scene(self) -> tuple[Any, Any, str]:
        """Return what MuJoCo renders."""
        return self.env.model, self.env.data, "front"

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _distance(self) -> float:
        cube = self.info[f"privileged/block_{self.info['privileged/target_block']}_pos"]
        return float(np.linalg.norm(cube - self.info["privileged/target_block_pos"]))

    def _with_target(self, obs: Doubles) -> Doubles:
        which = np.eye(self.cubes)[int(self.info["privileged/target_block"])] if self.cubes > 1 else np.zeros(0)
        yaw = self.info["privileged/target_block_yaw"]
        position = (self.info["privileged/target_block_pos"] - CENTRE) * SCALE
        return np.concatenate([obs, which, np.cos(yaw), np.sin(yaw), position])


@final
class CubeExpert(Expert):
    """OGBench's script for cubes. A policy sees all that the script uses."""

    horizon = HORIZON

    def __init__(self, noise: float = 0.0):
        """Make the script; `noise` is the standard deviation of Gaussian noise on its actions."""
        check_not_negative(noise=noise)
        self.oracle = import_external("ogbench.manipspace.oracles.markov.cube_markov").CubeMarkovOracle
        self.noise, self.rng = noise, np.random.default_rng(0)
        self.batch: ExternalBatch | None = None

    def set_environment(self, env: BatchEnv) -> None:
        """Keep the environment, whose row 0 the script reads."""
        assert isinstance(env, ExternalBatch)
        self.batch = env

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Start the script."""
        self.rng = rng
        self.script = self.oracle(env=self._env.env)
        self.script.reset(obs, self._env.info)

    def act(self, obs: Doubles) -> Doubles:
        """Return the script's action."""
        act = np.asarray(self.script.select_action(obs, self._env.info), dtype=np.float64)
        noise = self.noise * self.rng.standard_normal(len(act)) if self.noise else 0.0
        return np.clip(act + noise, -1, 1)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes."""
        return success

    @property
    def _env(self) -> CubeEnv:
        assert self.batch is not None, "call set_environment first"
        env = self.batch.envs.by_row[0]
        assert isinstance(env, CubeEnv)
        return env


def cube_task(kind: str, summary: str) -> Task:
    """Return a task of OGBench with "single" or "double" cubes."""
    cubes = CUBES[kind]
    obs_size = 19 + 9 * cubes + (cubes if cubes > 1 else 0) + 5

    def make_batch(count: int, processes: int | None = None) -> ExternalBatch:
        import_external("ogbench.manipspace.envs.cube_env")
        return ExternalBatch(lambda: CubeEnv(kind), count, obs_size, 5, processes)

    return Task(
        name=f"ogbench/cube-{kind}",
        summary=summary,
        obs_size=obs_size,
        act_size=5,
        horizon=HORIZON,
        metric="success",
        make_batch=make_batch,
        make_expert=CubeExpert,
        package="ogbench",
        environments_per_member=4,  # each takes about 240 MB
    )


OGBENCH = (
    cube_task("single", "An arm moves a cube to a target on the table."),
    cube_task("double", "An arm moves one of two cubes to a target, on the table or on the other cube."),
)
