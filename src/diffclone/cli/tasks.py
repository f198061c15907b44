"""The `tasks` command."""

from dataclasses import dataclass
from typing import Any

from diffclone.cli.console import print_json, print_message, print_table
from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.experiments import printed_expert
from diffclone.experiments.task_settings import WITH_HEADROOM, TaskSetting
from diffclone.records import Record
from diffclone.reports.numbers import MISSING, percent
from diffclone.tasks import TASKS, Task
from diffclone.tasks.experts import EXPERT_RECORDS
from diffclone.tasks.external import how_to_install, is_installed


@dataclass(frozen=True)
class Tasks:
    """List the tasks: sizes, horizon, metric, demonstrations, and the scores of the expert and the paper's expert.

    A second table has tasks of other packages, a third the settings in which the expert is well above BC.
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
                "episodes": task.episodes,
                "expert": expert_score(task, results.get(task.name)),
                "paper's expert": printed_expert(task.name),
                "id": task.gymnasium_id,
                "package": task.package,
                "about": task.summary,
                "settings": [describe_setting(setting) for setting in WITH_HEADROOM if setting.task == task.name],
            }
            for task in TASKS.values()
        ]
        if self.json:
            print_json(rows)
            return
        for title, external in (("Tasks", False), ("Tasks of other packages, collected on first use", True)):
            shown = [row for row in rows if (row["package"] is not None) == external]
            columns = ("task", "observation", "action", "steps", "metric", "episodes", "expert", "paper's expert")
            columns = columns[:6] if external else columns
            heads = [{"observation": "obs", "action": "act"}.get(name, name) for name in columns]
            about = [f"{row['about']} ({row['id'] or row['package']})" for row in shown]
            print_table(title, heads, [[str(row[name]) for name in columns] for row in shown], about)
        settings = [describe_setting(setting) for setting in WITH_HEADROOM]
        names = ("setting", "task", "demonstrations", "options")
        about = [setting["about"] for setting in settings]
        print_table("Settings with headroom", names, [[setting[name] for name in names] for setting in settings], about)
        needed = sorted({str(row["package"]) for row in rows if row["package"] is not None})
        missing = [package for package in needed if not is_installed(package)]
        for way in dict.fromkeys(map(how_to_install, missing)):
            print_message(f"Not installed: {', '.join(name for name in missing if how_to_install(name) == way)}. {way}")


def describe_setting(setting: TaskSetting) -> dict[str, str]:
    """Return a row of the table of settings."""
    demos = setting.load_demonstrations()
    options = " ".join(f"{name}={value}" for name, value in setting.options.items())
    return {
        "setting": setting.name,
        "task": setting.task,
        "demonstrations": count_rows(demos),
        "options": options or MISSING,
        "about": setting.about,
    }


def count_demonstrations(task: Task) -> str:
    """Return the numbers of episodes and steps; registered tasks may have no demonstrations."""
    if task.collected_on_first_use:
        return f"{task.episodes} episodes, collected on first use"
    try:
        demos = task.demonstrations()
    except InvalidSettings:
        return MISSING
    return count_rows(demos)


def count_rows(demos: Demonstrations) -> str:
    """Return "27 episodes, 983 steps"."""
    return f"{demos.num_episodes} episode{'s' * (demos.num_episodes != 1)}, {demos.num_steps} steps"


def expert_score(task: Task, results: Any) -> str:
    """Return the metric of the expert's Record, if there is one."""
    if results is None:
        return MISSING
    return percent(results["success_rate"]) if task.metric == "success" else f"{results['mean_return']:.0f}"
