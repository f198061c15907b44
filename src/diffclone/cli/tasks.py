"""The `tasks` command."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from diffclone.cli.console import percent, print_json, print_message, print_table
from diffclone.errors import InvalidSettings
from diffclone.experiments import printed_expert
from diffclone.records import Record
from diffclone.tasks import TASKS, Task
from diffclone.tasks.experts import EXPERT_RECORDS


@dataclass(frozen=True)
class Tasks:
    """List the tasks: sizes, horizon, metric, bundled demonstrations, the expert's score and the paper's expert's."""

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Do it."""
        scores = {record.results["task"]: record.results for record in Record.read_all(EXPERT_RECORDS)}
        rows: list[dict[str, Any]] = []
        for task in TASKS.values():
            rows.append(
                {
                    "task": task.name,
                    "observation": task.obs_size,
                    "action": task.act_size,
                    "steps": task.horizon,
                    "metric": task.metric,
                    "demonstrations": describe_demonstrations(task),
                    "expert": shown(task, scores[task.name]) if task.name in scores else "–",
                    "paper's expert": printed_expert(task.name),
                    "id": task.gymnasium_id,
                    "about": task.summary,
                }
            )
        if self.json:
            print_json(rows)
        else:
            columns = [name for name in rows[0] if name not in ("id", "about")]
            print_table("Tasks", columns, [[str(row[name]) for name in columns] for row in rows])
            for row in rows:
                print_message(f"{row['task']} ({row['id']}): {row['about']}")


def describe_demonstrations(task: Task) -> str:
    """Return the number of episodes and steps; a task of another package may have none."""
    try:
        demos = task.demonstrations()
    except InvalidSettings:
        return "–"
    return f"{demos.num_episodes} episodes, {demos.num_steps} steps"


def shown(task: Task, results: Mapping[str, Any]) -> str:
    """A score as the task reports it."""
    return percent(results["success_rate"]) if task.metric == "success" else f"{results['mean_return']:.0f}"
