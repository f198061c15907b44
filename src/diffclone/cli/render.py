"""The `render` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import TaskName
from diffclone.cli.console import print_message
from diffclone.deploy.memory import Session
from diffclone.deploy.pretrained import pretrained
from diffclone.errors import InvalidSettings
from diffclone.files import refuse_existing
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.tasks.rendering import check_suffix, render_episode, write_frames
from diffclone.training.runs import Run


@dataclass(frozen=True)
class Render:
    """Record an episode of a policy or of the expert: a video (.mp4, .gif), or a strip of images (.png)."""

    task: TaskName
    out: Path
    """File to write. An existing file is not overwritten."""
    policy: str = "expert"
    """Folder of a run, `pretrained` for the bundled policy of the task, or `expert`."""
    member: int = 0
    """Index of the member of the run."""
    start: int = 0
    """Index of the evaluation start."""
    steps: int | None = None
    """Show only this many steps. The episode is run to its end."""
    options: tuple[str, ...] = ()
    """Options of the environment, e.g. start_noise=2."""

    def run(self) -> None:
        """Run the episode and write the frames."""
        task = TASKS[self.task]
        check_suffix(self.out)
        refuse_existing(self.out)
        if self.steps is not None and self.steps < 1:
            raise InvalidSettings(f"--steps must be at least 1; it is {self.steps}.")
        if self.start < 0:
            raise InvalidSettings(f"--start must be at least 0; it is {self.start}.")
        options = task.check_options(parse_options(self.options))
        episode = render_episode(task, self.load_policy(), start=self.start, **options)
        write_frames(self.out, episode.frames[: None if self.steps is None else self.steps + 1])
        solved = f", {'solved' if episode.success else 'not solved'}" if task.metric == "success" else ""
        print_message(f"wrote {self.out}: {len(episode.frames) - 1} steps, return {episode.returns:.1f}{solved}")

    def load_policy(self) -> Session | None:
        """Return the member that acts; None for the expert."""
        if self.policy == "expert":
            return None
        policy = pretrained(self.task) if self.policy == "pretrained" else Run(Path(self.policy)).policy()
        return policy[self.member].session()
