"""The `collect` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import TaskName, expert_options
from diffclone.cli.console import bars, print_json, print_message
from diffclone.files import refuse_existing
from diffclone.records import versions
from diffclone.tasks import TASKS


@dataclass(frozen=True)
class Collect:
    """Make demonstrations with a task's bundled expert."""

    task: TaskName
    """The task's name."""
    out: Path
    """The file to write (.npz). An existing file is not overwritten."""
    episodes: int | None = None
    """Episodes to keep; by default as many as are bundled."""
    seed: int = 0
    """Of starts and of the expert's noise."""
    options: tuple[str, ...] = ()
    """Of the expert, e.g. noise=0.1."""
    weights: Path | None = None
    """Another expert's file, where the expert is a network."""
    json: bool = False
    """Print JSON when done."""

    def run(self) -> None:
        """Do it."""
        from diffclone.tasks.experts import collect

        task = TASKS[self.task]
        refuse_existing(self.out)
        expert = task.expert(**expert_options(self.options, self.weights))
        episodes = task.episodes if self.episodes is None else self.episodes
        command = f"diffclone collect {self.task} --episodes {episodes} --seed {self.seed}"
        command += f" --options {' '.join(self.options)}" if self.options else ""
        command += f" --weights {self.weights}" if self.weights else ""
        meta = {"task": task.name, "expert": type(expert).__name__, "versions": versions(), "command": command}
        env = task.make(1, **expert.env_options)
        with bars() as show:
            demos = collect(
                env,
                expert,
                episodes,
                seed=self.seed,
                meta=meta,
                progress=lambda done, total: show.update(f"collecting {task.name}", done, total),
            )
        env.close()
        demos.save(self.out)
        if self.json:
            print_json(
                {"out": str(self.out), "episodes": demos.num_episodes, "steps": demos.num_steps}
                | {"fingerprint": demos.fingerprint}
            )
        else:
            print_message(f"wrote {self.out}: {demos!r}")
