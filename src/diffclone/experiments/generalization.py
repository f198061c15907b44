"""FetchPick with wider regions than the demonstrations': the main table's policies, played elsewhere."""

from diffclone.experiments.main_table import METHODS
from diffclone.experiments.spec import Arm, Cell, Derived, Experiment

TASK_OWN = 1.25
"""The scale that the task has by itself, and the main table with it."""
LEVELS = (1.0, TASK_OWN, 1.5, 1.75, 2.0)
DROP = "drop from 1 to 2"

GENERALIZATION = Experiment(
    name="generalization",
    title="Generalisation",
    about="How much worse does a policy get when block and goal of FetchPick are drawn from larger regions?",
    cells=tuple(
        Cell(
            title,
            f"{level:g}",
            Arm("fetch-pick", method),
            options={} if level == TASK_OWN else {"start_noise": level, "goal_noise": level},
            printed=f"generalization.{key}.{round(100 * level)}",
        )
        for method, (title, key) in METHODS.items()
        for level in LEVELS
    ),
    derived=tuple(
        Derived(title, DROP, "drop", (title, "1"), (title, "2"), printed=f"generalization.drop.{key}")
        for title, key in METHODS.values()
    ),
    chosen={
        "policies": "Those of the main table. The paper has λ = 0.1 for DBC here and 0.5 there, yet one number.",
    },
)
