"""Where a diffusion model of Maze's pairs would move a position."""

from diffclone.experiments.spec import Arm, Experiment, Measure

GRADIENT_FIELD = Experiment(
    name="gradient-field",
    title="Gradient field",
    about="Does the diffusion model move positions to where the expert goes, and out of the walls?",
    measures=(Measure("field", "Maze", Arm("maze", "dbc")),),
    chosen={
        "other numbers": "Velocity, goal and action are of expert pairs drawn at random; arrows are means over them.",
        "step": "An early one, a tenth of all: little noise.",
    },
)
