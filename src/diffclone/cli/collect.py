"""The `collect` command."""

from dataclasses import dataclass
from pathlib import Path

from diffclone.cli.arguments import TaskName, expert_options
from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.jobs import announce_jobs
from diffclone.experiments.executors.choose import LOCAL, open_executor, parse_needs
from diffclone.experiments.executors.interface import Callbacks
from diffclone.experiments.playing_jobs import ExpertTries, run_tries
from diffclone.files import refuse_existing
from diffclone.records import versions
from diffclone.tasks import TASKS
from diffclone.tasks.experts import collect


@dataclass(frozen=True)
class Collect:
    """Record demonstrations of a task's expert."""

    task: TaskName
    out: Path
    """File to write (.npz). An existing file is not overwritten."""
    episodes: int | None = None
    """Number of successful episodes to record; by default as many as are bundled."""
    seed: int = 0
    """Seed of the starts and of the expert's noise."""
    options: tuple[str, ...] = ()
    """Options of the expert, e.g. noise=0.1."""
    disturbance: float = 0.0
    """Standard deviation of noise on the executed actions, which the recorded ones do not have."""
    weights: Path | None = None
    """Weights of another expert (.safetensors), if the task's expert is a network."""
    workers: int = 1
    """Processes that run episodes in parallel."""
    on: str = LOCAL
    """Where episodes run: local (--workers), ray or ray://HOST:10001."""
    needs: str = ""
    """What a job of five episodes occupies on a Ray cluster, e.g. cpus=2."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Run the expert and save its episodes."""
        task = TASKS[self.task]
        refuse_existing(self.out)
        expert = task.expert(**expert_options(self.options, self.weights))
        episodes = task.episodes if self.episodes is None else self.episodes
        command = f"diffclone collect {self.task} --episodes {episodes} --seed {self.seed}"
        command += f" --options {' '.join(self.options)}" if self.options else ""
        command += f" --disturbance {self.disturbance:g}" if self.disturbance else ""
        command += f" --weights {self.weights}" if self.weights else ""
        meta = {"task": task.name, "expert": type(expert).__name__, "versions": versions(), "command": command}
        env = task.make(1, **expert.env_options)
        with open_executor(self.on, self.workers) as executor, bars() as show:
            own = ExpertTries(task.name, expert_options(self.options, self.weights), self.seed, self.disturbance)
            needs, nothing = parse_needs(self.needs, "cpu"), Callbacks(lambda record: None, on_jobs=announce_jobs())
            tries = None if executor is None else run_tries(executor, own, episodes, nothing, needs)
            demos = collect(
                env,
                expert,
                episodes,
                seed=self.seed,
                disturbance=self.disturbance,
                meta=meta,
                tries=tries,
                progress=lambda done, total: show.update(f"collecting {task.name}", done, total),
            )
        env.close()
        demos.save(self.out)
        if self.json:
            counts = {"episodes": demos.num_episodes, "steps": demos.num_steps}
            print_json({"out": str(self.out), **counts, "fingerprint": demos.fingerprint})
        else:
            print_message(f"wrote {self.out}: {demos!r}")
