"""Render an episode as images, and write images to a file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles, Image
from diffclone.tasks.experts import Expert, run_episode
from diffclone.tasks.task import Task

FRAMES_PER_SECOND = 25
STRIP_FRAMES = 4
"""Number of frames in a .png, from the first to the last."""
LONG_ENOUGH, SHARE_OF_HORIZON, TRIES = 25, 0.2, 10
"""Steps of an episode that shows something, unless the horizon is short; and starts that are tried to find one."""

ActFunction = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
OnFrame = Callable[[int, int], None]
"""Called after each frame with the number of frames and the largest number that there can be."""


@final
@dataclass(frozen=True, eq=False)
class RenderedEpisode:
    """The frames of an episode, one before each step and one after the last, and its outcome."""

    frames: list[Image]
    """All of them, or the first ones."""
    returns: float
    success: bool
    steps: int
    """Steps of the whole episode."""


@final
class PolicyExpert(Expert):
    """Lets a policy act where an expert is expected."""

    def __init__(self, policy: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], horizon: int):
        self.policy, self.horizon = policy, horizon

    def reset(self, obs: Doubles, rng: np.random.Generator) -> None:
        """Do nothing: an episode is rendered with a new policy or session."""

    def act(self, obs: Doubles) -> Doubles | None:
        """Return the policy's action."""
        return np.asarray(self.policy(obs.astype(np.float32)), dtype=np.float64)

    def accept_episode(self, steps: int, *, success: bool) -> bool:
        """Accept every episode."""
        return True


def render_episode(
    task: Task,
    policy: ActFunction | None,
    *,
    start: int = 0,
    shown: int | None = None,
    on_frame: OnFrame | None = None,
    **options: Any,
) -> RenderedEpisode:
    """Render one episode of a policy, or of the expert if it is None, from one of the evaluation starts.

    With `shown`, only so many steps are rendered, which takes most of the time; the episode is run to its end.
    """
    expert = task.expert() if policy is None else PolicyExpert(policy, task.horizon)
    env = task.make(1, **options)
    expert.set_environment(env)
    frames: list[Image] = []
    most = 1 + (task.horizon if shown is None else min(shown, task.horizon))

    def on_step(env: BatchEnv) -> None:
        if len(frames) == most:
            return
        frames.append(env.render(0))
        if on_frame is not None:
            on_frame(len(frames), most)

    try:
        seed = START_SEEDS["evaluation"] + start
        # The start of a Gymnasium environment is a function of the seed; an expert shares a generator with its start.
        own = None if policy is None else seed
        episode = run_episode(env, expert, np.random.default_rng(seed), task.horizon, on_step, seed=own)
    finally:
        env.close()
    return RenderedEpisode(frames, episode.returns, episode.success, len(episode.act))


def render_long_episode(
    task: Task, make_policy: Callable[[], ActFunction] | None, **options: Any
) -> tuple[int, RenderedEpisode]:
    """Render the first start from which an episode is not over at once, or the longest of the first ten.

    `make_policy` is called for every episode; None stands for the expert. `options` are those of `render_episode`. The
    index of the start is returned as well.
    """
    wanted, longest = min(LONG_ENOUGH, int(SHARE_OF_HORIZON * task.horizon)), (0, RenderedEpisode([], 0.0, False, -1))
    for start in range(TRIES):
        policy = None if make_policy is None else make_policy()
        episode = render_episode(task, policy, start=start, **options)
        if episode.steps > longest[1].steps:
            longest = start, episode
        if episode.steps >= wanted:
            break
    return longest


def check_suffix(path: Path) -> None:
    """Refuse a file name whose format cannot be written."""
    if path.suffix not in (".mp4", ".gif", ".webp", ".png"):
        ends = path.suffix or "nothing"
        raise InvalidSettings(f"images are written as .mp4, .gif, .webp or .png; {path} ends in {ends}.")


def write_frames(path: Path, frames: Sequence[Image], fps: float = FRAMES_PER_SECOND) -> None:
    """Write a video (.mp4, .gif, .webp), or a strip of some frames (.png)."""
    check_suffix(path)
    try:
        import imageio.v3 as imageio
    except ImportError:
        raise MissingPackage(f"writing images needs imageio. Try: {install_command('render')}.") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        chosen = np.linspace(0, len(frames) - 1, STRIP_FRAMES).round().astype(int)
        imageio.imwrite(path, np.concatenate([frames[k] for k in chosen], axis=1))
        return
    if path.suffix == ".gif":
        imageio.imwrite(path, np.stack(frames), duration=1000 / fps, loop=0)
        return
    if path.suffix == ".webp":
        imageio.imwrite(path, np.stack(frames), duration=1000 / fps, loop=0, quality=40, method=6)
        return
    try:
        imageio.imwrite(path, np.stack(frames), fps=fps, macro_block_size=8)
    except (ImportError, ValueError, TypeError) as error:
        if "ffmpeg" not in str(error).lower() and "backend" not in str(error).lower():
            raise
        raise MissingPackage(
            f"writing .mp4 needs imageio-ffmpeg. Try: {install_command('render')}, or write a .gif."
        ) from None
