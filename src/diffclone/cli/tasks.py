"""The `tasks` command."""

from dataclasses import dataclass
from typing import Any

from diffclone.cli.console import print_json, print_message, print_table
from diffclone.errors import InvalidSettings
from diffclone.experiments import printed_expert
from diffclone.experiments.task_settings import WITH_HEADROOM, TaskSetting
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, percent
from diffclone.tasks import TASKS, Task
from diffclone.tasks.experts import EXPERT_RECORDS


@dataclass(frozen=True)
class Tasks:
    """List the tasks: sizes, horizon, metric, demonstrations, and the scores of the expert and the paper's expert.

    A second table has the settings in which the expert is well above BC.
    """

    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> None:
        """Print the list."""
        results = {record.results["task"]: record.results for record in Record.read_all(EXPERT_RECORDS)}
        rows: list[dict[str, Any]] = [
            {
                "task": task.name,
                "observation": task.obs_size,
                "action": task.act_size,
                "steps": task.horizon,
                "metric": task.metric,
                "demonstrations": count_demonstrations(task),
                "expert": expert_score(task, results.get(task.name)),
                "paper's expert": printed_expert(task.name),
                "id": task.gymnasium_id,
                "about": task.summary,
                "settings": [describe_setting(setting) for setting in WITH_HEADROOM if setting.task == task.name],
            }
            for task in TASKS.values()
        ]
        if self.json:
            print_json(rows)
            return
        columns = [name for name in rows[0] if name not in ("id", "about", "settings")]
        print_table("Tasks", columns, [[str(row[name]) for name in columns] for row in rows])
        for row in rows:
            print_message(f"{row['task']} ({row['id']}): {row['about']}")
        settings = [describe_setting(setting) for setting in WITH_HEADROOM]
        names = ("setting", "task", "demonstrations", "options", "about")
        print_table("Settings with headroom", names, [[setting[name] for name in names] for setting in settings])


def describe_setting(setting: TaskSetting) -> dict[str, str]:
    """Return a row of the table of settings."""
    demos = setting.load_demonstrations()
    options = " ".join(f"{name}={value}" for name, value in setting.options.items())
    return {
        "setting": setting.name,
        "task": setting.task,
        "demonstrations": f"{demos.num_episodes} episodes, {demos.num_steps} steps",
        "options": options or MISSING,
        "about": setting.about,
    }


def count_demonstrations(task: Task) -> str:
    """Return the numbers of episodes and steps; the tasks of other packages may have no demonstrations."""
    try:
        demos = task.demonstrations()
    except InvalidSettings:
        return MISSING
    return f"{demos.num_episodes} episodes, {demos.num_steps} steps"


def expert_score(task: Task, results: Any) -> str:
    """Return the metric of the expert's Record, if there is one."""
    if results is None:
        return MISSING
    return percent(results["success_rate"]) if task.metric == "success" else f"{results['mean_return']:.0f}"
