"""With and without the expert's own cost, which the guide's loss subtracts."""

from diffclone.experiments.main_table import TITLES
from diffclone.experiments.spec import Arm, Cell, Experiment

EXPERT_TERM = Experiment(
    name="expert-term",
    title="The expert's term",
    about="Does it help to subtract the expert's own cost from that of the policy's actions?",
    cells=tuple(
        Cell(
            title,
            heading,
            Arm(task, "dbc", preset="brief", change={"subtract_expert": subtract}),
            printed=f"expert-term.{task}.{key}",
        )
        for title, key, subtract in (
            ("L_agent alone", "unnormalised", False),
            ("L_DM", "normalised", True),
        )
        for task, heading in TITLES.items()
    ),
    chosen={"loss": "The paper's λ of each task with our brief schedule, and no look beside the expert's states."},
)
