"""The `render` command."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from diffclone.cli.console import bars, print_message
from diffclone.cli.hints import next_after_rendering
from diffclone.cli.sources import Place, PolicySource, choose_place, find_place, find_policy, is_bundled, named_place
from diffclone.deploy.pretrained import pretrained
from diffclone.errors import InvalidSettings
from diffclone.evaluation import find_task
from diffclone.files import refuse_existing
from diffclone.policy import Policy
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import Image
from diffclone.tasks.beside import COLUMNS, GRID_WIDTH, LABEL, join_episodes, join_grid, resize
from diffclone.tasks.options import parse_options
from diffclone.tasks.rendering import (
    FRAMES_PER_SECOND,
    RenderedEpisode,
    check_suffix,
    render_episode,
    render_long_episode,
    write_frames,
)

EXPERT, PRETRAINED = "expert", "pretrained"
MIN_PANEL = 60
"""Pixels that a start needs in a grid, for its words."""
MANY = 300
"""Images that take long enough to write for a message."""


@dataclass(frozen=True)
class Render:
    """Record an episode of a policy or of the expert: a video (.mp4, .gif, .webp), or a strip of images (.png).

    diffclone render maze --out maze.gif                                 the expert of a task
    diffclone render runs/maze --out maze.gif                            the policy of a run
    diffclone render runs/mine --env Pendulum-v1 --out pendulum.gif      in a Gymnasium environment
    diffclone render runs/bc --beside runs/dbc --out both.webp           two policies from the same start
    diffclone render runs/bc --beside runs/dbc --starts 6 --out all.webp from the first six starts
    """

    out: Path
    """File to write. An existing file is not overwritten."""
    subject: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="TASK|RUN")] = None
    """Name of a task or a task setting, for its expert or for --policy; or the folder of a run or a policy."""
    policy: str | None = None
    """Folder of a run or a policy, `pretrained` for the bundled policy of the task, or `expert`."""
    beside: Path | None = None
    """Folder of a second run or policy, which is shown beside the first, from the same start."""
    task: str | None = None
    """Task or task setting; by default the one that the run was trained for."""
    env: str | None = None
    """Render in this Gymnasium environment instead; `module:id` imports the module first."""
    member: int = 0
    """Index of the member of the run."""
    start: int | None = None
    """Index of the evaluation start; by default the first from which an episode is not over at once."""
    steps: int | None = None
    """Show only this many steps. The episode is run to its end."""
    every: int = 1
    """Show every n-th step, for a smaller file."""
    width: int | None = None
    """Width of the picture in pixels; by default that of the environment, twice with --beside, 960 with --starts."""
    starts: int = 1
    """With --beside: show this many starts at once, in a grid: start 0, 1, 2, … or from --start on."""
    options: tuple[str, ...] = ()
    """Options of the environment, e.g. start_noise=2."""

    def run(self) -> None:
        """Run the episode and write the frames."""
        check_suffix(self.out)
        refuse_existing(self.out)
        for flag, value, least in (
            ("steps", self.steps, 1),
            ("start", self.start, 0),
            ("every", self.every, 1),
            ("width", self.width, 16),
            ("starts", self.starts, 1),
        ):
            if value is not None and value < least:
                raise InvalidSettings(f"--{flag} must be at least {least}; it is {value}.")
        if self.starts > 1:
            if self.beside is None:
                raise InvalidSettings(f"--starts {self.starts} shows two policies; name the second with --beside RUN.")
            if (self.width or GRID_WIDTH) < (least := LABEL + MIN_PANEL * min(self.starts, COLUMNS)):
                raise InvalidSettings(
                    f"--width is {self.width or GRID_WIDTH}; {self.starts} starts need at least {least}."
                )
        place, policy, source = self.find()
        image = {} if place.name in TASKS else {"render_mode": "rgb_array"}
        options = {**image, **place.options, **parse_options(self.options)}
        task = find_task(place.name, options)
        options = task.check_options(options)
        if self.beside is not None:
            self.render_both(task, policy, (source, find_policy(self.beside)), options)
            return
        session = None if policy is None else policy[self.member].session
        with bars() as show:

            def on_frame(done: int, most: int) -> None:
                show.update("render: images", done, most)

            if self.start is None:
                start, episode = render_long_episode(task, session, shown=self.steps, on_frame=on_frame, **options)
                where = f" from start {start}" if start else ""
            else:
                actor = None if session is None else session()
                episode = render_episode(task, actor, start=self.start, shown=self.steps, on_frame=on_frame, **options)
                where = ""
        self.write(episode.frames)
        solved = f", {'solved' if episode.success else 'not solved'}" if task.metric == "success" else ""
        about = f"{episode.steps} steps{where}, return {episode.returns:.1f}{solved}"
        print_message(f"wrote {self.out}: {about}")
        if policy is not None and source is not None and source.run is not None:
            print_message(next_after_rendering(source.run, policy, place))

    def render_both(
        self,
        task: Task,
        policy: Policy | None,
        sources: tuple[PolicySource | None, PolicySource],
        options: dict[str, Any],
    ) -> None:
        """Write episodes of two policies side by side, or in a grid."""
        if policy is None:
            raise InvalidSettings("--beside shows two policies; name the folder of a run first.")
        policies = [policy[self.member], sources[1].load()[self.member]]
        names = [type(policy.method).__name__ for policy in policies]
        names = [str(self.policy or self.subject), str(self.beside)] if names[0] == names[1] else names
        starts = range(self.start or 0, (self.start or 0) + self.starts)
        rows: list[list[RenderedEpisode]] = [[], []]
        with bars() as show:
            for count, start in enumerate(starts, 1):
                for row, actor in zip(rows, policies, strict=True):
                    row.append(render_episode(task, actor.session(), start=start, **options))
                show.update("render: starts", count, len(starts))
        by_success = task.metric == "success"
        if len(starts) == 1:
            self.write(self.cut(join_episodes(names, [row[0] for row in rows], with_outcome=by_success)))
        else:
            updates = [
                actor.method.training.updates if source is None or source.snapshot is None else source.snapshot
                for source, actor in zip(sources, policies, strict=True)
            ]
            sides = [(name, f"{count:,} updates") for name, count in zip(names, updates, strict=True)]
            self.write(
                self.cut(join_grid(sides, rows, starts, with_outcome=by_success, width=self.width or GRID_WIDTH))
            )
        solved = [sum(episode.success for episode in row) for row in rows]
        counts = ", ".join(f"{name} solved {count} of {self.starts}" for name, count in zip(names, solved, strict=True))
        print_message(f"wrote {self.out}: {counts if by_success else ' and '.join(names)}")

    def cut(self, frames: list[Image]) -> list[Image]:
        """Return the frames of the steps to show."""
        return frames[: None if self.steps is None else self.steps + 1]

    def write(self, frames: Sequence[Image]) -> None:
        """Write some of the frames, so that the video has the speed of all."""
        chosen = frames[:: self.every]
        if self.width is not None and chosen[0].shape[1] != self.width:
            chosen = [resize(frame, self.width) for frame in chosen]
        if len(chosen) > MANY:
            print_message(f"writing {len(chosen)} images to {self.out}")
        write_frames(self.out, chosen, FRAMES_PER_SECOND / self.every)

    def find(self) -> tuple[Place, Policy | None, PolicySource | None]:
        """Return where to act, the policy (None for the expert), and its folder if it has one."""
        place, folder = named_place(self.task, self.env), self.policy
        named = self.subject is not None and not is_bundled(self.subject)
        if self.subject is not None and named and (Path(self.subject).is_dir() or "/" in self.subject):
            if self.policy is not None:
                raise InvalidSettings(f"{self.subject} is a folder; leave out --policy {self.policy}.")
            folder = self.subject
        elif self.subject is not None:
            if place is not None:
                raise InvalidSettings(f"{self.subject} names the task; leave out --task and --env.")
            place = find_place(self.subject)
        if folder not in (None, EXPERT, PRETRAINED):
            source = find_policy(Path(folder))
            policy = source.load()
            return place or choose_place(source, policy, None, None), policy, source
        if place is None:
            raise InvalidSettings("name a task, or the folder of a run: diffclone render TASK|RUN --out FILE.")
        if place.name not in TASKS:
            raise InvalidSettings(f"{place.name} has no expert; name the folder of a run.")
        return place, pretrained(place.name) if folder == PRETRAINED else None, None
