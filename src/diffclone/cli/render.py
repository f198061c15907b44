"""The `render` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import TaskName
from diffclone.cli.console import print_message
from diffclone.errors import InvalidSettings
from diffclone.files import refuse_existing
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options


@dataclass(frozen=True)
class Render:
    """Show an episode of a policy or of the expert: a film (.mp4, .gif), or a strip of pictures (.png)."""

    task: TaskName
    """The task's name."""
    out: Path
    """The file to write. An existing file is not overwritten."""
    policy: str = "expert"
    """A run's folder, pretrained for the one that comes with the package, or expert."""
    member: int = 0
    """Which member of the run."""
    start: int = 0
    """Which of the evaluation starts."""
    steps: int | None = None
    """Show the first so many only; the episode is played to its end."""
    options: tuple[str, ...] = ()
    """Of the task's environment, e.g. start_noise=2."""

    def run(self) -> None:
        """Do it."""
        from diffclone.deploy.pretrained import pretrained
        from diffclone.tasks.rendering import check_suffix, render_episode, write_frames
        from diffclone.training.runs import Run

        task = TASKS[self.task]
        check_suffix(self.out)
        refuse_existing(self.out)
        if self.policy == "pretrained":
            policy = pretrained(self.task)
        else:
            policy = None if self.policy == "expert" else Run(Path(self.policy)).policy()
        if policy is not None and not 0 <= self.member < len(policy):
            raise InvalidSettings(f"{self.policy} has members 0 … {len(policy) - 1}; {self.member} was asked for.")
        options = task.check_options(parse_options(self.options))
        shot = render_episode(
            task,
            None if policy is None else policy[self.member],
            start=self.start,
            **options,
        )
        if self.steps is not None and self.steps < 1:
            raise InvalidSettings(f"at least one step must be shown; {self.steps} were asked for.")
        write_frames(self.out, shot.frames[: None if self.steps is None else self.steps + 1])
        solved = f", {'solved' if shot.success else 'not solved'}" if task.metric == "success" else ""
        print_message(f"wrote {self.out}: {len(shot.frames) - 1} steps, return {shot.returns:.1f}{solved}")
