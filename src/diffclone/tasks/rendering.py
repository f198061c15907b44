"""An episode as pictures, and pictures as a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings, MissingPackage
from diffclone.evaluation import START_SEEDS
from diffclone.policy import Policy
from diffclone.tasks import Task
from diffclone.tasks.batch import BatchEnv, Picture
from diffclone.tasks.expert import Expert, play

FRAMES_A_SECOND = 25
STRIP = 4
"""Pictures of a strip, from the first to the last."""


@final
@dataclass(frozen=True, eq=False)
class Film:
    """What was seen, and how it ended."""

    pictures: list[Picture]
    returns: float
    success: bool


@final
class PolicyAsExpert(Expert):
    """Lets a policy play where an expert plays."""

    def __init__(self, policy: Policy, horizon: int):
        self.policy, self.horizon, self.env_options = policy, horizon, dict[str, Any]()

    def begin(self, obs: npt.NDArray[np.float64], rng: np.random.Generator) -> None:
        """Nothing is remembered."""

    def act(self, obs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """The policy's answer."""
        return np.asarray(self.policy(obs.astype(np.float32)), dtype=np.float64)

    def keeps(self, steps: int, *, success: bool) -> bool:
        """Everything."""
        return True


def film(task: Task, policy: Policy | None, *, start: int = 0, **options: Any) -> Film:
    """One episode of a policy, or of the expert where there is none, from one of the evaluation starts."""
    actor = task.expert() if policy is None else PolicyAsExpert(policy, task.horizon)
    env = task.make(1, **options)
    actor.attach(env)
    pictures: list[Picture] = []

    def watch(seen: BatchEnv) -> None:
        pictures.append(seen.render(0))

    try:
        episode = play(env, actor, np.random.default_rng(START_SEEDS["evaluation"] + start), task.horizon, watch)
    finally:
        env.close()
    return Film(pictures, episode.returns, episode.success)


def check_suffix(path: Path) -> None:
    """Whether pictures can be written as such a file."""
    if path.suffix not in (".mp4", ".gif", ".png"):
        raise InvalidSettings(f"pictures are written as .mp4, .gif or .png; {path} ends in {path.suffix or 'nothing'}.")


def write_pictures(path: Path, pictures: Sequence[Picture]) -> None:
    """A film, or a strip of some of them."""
    check_suffix(path)
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise MissingPackage("pictures need the package imageio. Try: pip install 'diffclone[render]'.") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        chosen = np.linspace(0, len(pictures) - 1, STRIP).round().astype(int)
        imageio.imwrite(path, np.concatenate([pictures[k] for k in chosen], axis=1))
        return
    if path.suffix == ".gif":
        imageio.imwrite(path, np.stack(pictures), duration=1000 / FRAMES_A_SECOND, loop=0)
        return
    try:
        imageio.imwrite(path, np.stack(pictures), fps=FRAMES_A_SECOND, macro_block_size=8)
    except (ImportError, ValueError, TypeError) as fault:
        if "ffmpeg" not in str(fault).lower() and "backend" not in str(fault).lower():
            raise
        raise MissingPackage(
            "a film as .mp4 needs the package imageio-ffmpeg. Try: pip install 'diffclone[render]', or write a .gif."
        ) from None
