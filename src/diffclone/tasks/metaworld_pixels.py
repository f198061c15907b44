"""A task of Meta-World seen by a camera: an image of 64 × 64 and what the robot knows of itself.

    observation (12292)   an image, (3, 64, 64) as whole values 0 … 255; position of the hand (3), opening of the
                          gripper (1)
    action, success       as in tasks/metaworld.py

The objects and the goal are seen in the image alone. The camera is Meta-World's `corner2`, moved closer, without
shadows and reflections, which would take most of the time.
The expert is Meta-World's script; it knows the whole state.
"""

from typing import Any, final

import numpy as np

from diffclone.tasks.batch import BatchEnv, Doubles
from diffclone.tasks.experts import Expert
from diffclone.tasks.external import ExternalBatch, ExternalEnv, import_external
from diffclone.tasks.metaworld import HORIZON, MetaWorldEnv, MetaWorldExpert
from diffclone.tasks.mujoco import load_mujoco, make_renderer
from diffclone.tasks.task import Task

SIDE = 64
OWN = 4
"""Numbers at the beginning of Meta-World's observation that the robot knows of itself."""
CAMERA, PLACE = "corner2", (0.75, 0.075, 0.7)
HIDDEN = ("SHADOW", "REFLECTION", "HAZE", "SKYBOX")


@final
class PixelsEnv(ExternalEnv):
    """One of Meta-World's environments with a camera."""

    def __init__(self, name: str):
        """Make the environment and its camera."""
        self.inner = MetaWorldEnv(name)
        self.state = np.zeros(39)
        """Meta-World's own observation, for the expert."""
        mujoco, (model, _, _) = load_mujoco(), self.inner.scene()
        model.camera(CAMERA).pos[:] = PLACE
        model.vis.quality.offsamples = 0
        self.renderer = make_renderer(model, SIDE, SIDE)
        for name in HIDDEN:
            self.renderer.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{name}")] = False

    def reset(self, seed: int) -> Doubles:
        """Draw positions of objects and goal."""
        return self._see(self.inner.reset(seed))

    def step(self, act: Doubles) -> tuple[Doubles, float, bool]:
        """Move the hand."""
        state, reward, solved = self.inner.step(act)
        return self._see(state), reward, solved

    def scene(self) -> tuple[Any, Any, str]:
        """Return what MuJoCo renders."""
        return self.inner.scene()

    def close(self) -> None:
        """Close the camera and the environment."""
        self.renderer.close()
        self.inner.close()

    def _see(self, state: Doubles) -> Doubles:
        self.state = state
        self.renderer.update_scene(self.inner.scene()[1], CAMERA)
        image = np.moveaxis(self.renderer.render(), -1, 0)
        return np.concatenate([image.reshape(-1).astype(np.float64), state[:OWN]])


@final
class PixelsExpert(Expert):
    """Meta-World's script, which sees the state and not the image."""

    horizon = HORIZON
    image = (3, SIDE, SIDE)

    def __init__(self, name: str, noise: float = 0.0):
        """Make the script; `noise` is the standard deviation of Gaussian noise on its actions."""
        self.script = MetaWorldExpert(name, noise)
        self.env: ExternalBatch | None = None

    def set_environment(self, env: BatchEnv) -> None:
        """Keep the environment, which knows the state."""
        assert isinstance(env, ExternalBatch)
        self.env = env

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Set the generator of the noise."""
        self.script.reset(obs, rng)

    def act(self, obs: Doubles) -> Doubles:
        """Return the script's action."""
        assert self.env is not None, "call set_environment first"
        seen = self.env.envs.by_row[0]
        assert isinstance(seen, PixelsEnv)
        return self.script.act(seen.state)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept successful episodes."""
        return success


def pixels_task(name: str, summary: str) -> Task:
    """Return a task of Meta-World with a camera."""
    size = 3 * SIDE * SIDE + OWN

    def make_batch(count: int) -> ExternalBatch:
        import_external("metaworld.env_dict")
        # One process: a process that is forked from one which has used OpenGL waits for its threads forever.
        return ExternalBatch(lambda: PixelsEnv(name), count, size, 4, processes=1)

    def make_expert(noise: float = 0.0) -> PixelsExpert:
        return PixelsExpert(name, noise)

    return Task(
        name=f"metaworld/{name}-pixels",
        summary=summary,
        obs_size=size,
        act_size=4,
        horizon=HORIZON,
        metric="success",
        make_batch=make_batch,
        make_expert=make_expert,
        episodes=50,
        package="metaworld",
        environments_per_member=25,
    )


BUTTON_PIXELS = pixels_task("button-press-topdown", "An arm presses a button from above, seen by a camera.")
