"""Both losses while one, the other, or both are minimised, on Maze."""

from diffclone.experiments.guides import arm
from diffclone.experiments.spec import Arm, Experiment, Measure

BOTH = arm("maze", "diffusion")

LOSS_CURVES = Experiment(
    name="loss-curves",
    title="Loss curves",
    about="Do L_BC and L_DM fall together, whichever of them is minimised?",
    measures=(
        Measure("curves", "BC", Arm("maze", "dbc", preset="brief", change={"coefficient": 0.0})),
        Measure("curves", "DM", BOTH, where={"imitation": 0.0}),
        Measure("curves", "DBC", BOTH, where={"imitation": 1.0}),
    ),
    chosen={"loss": "The paper's: it does not look beside the expert's states."},
)
