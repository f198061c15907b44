"""Spiral: what a diffusion model makes of demonstrations that lie on a thin manifold."""

from diffclone.experiments.spec import Arm, Cell, Experiment, Measure

START = {"start_noise": 0.01}
"""Starts are spread as those of the demonstrations; without it every episode would be the same."""
BC = Arm("spiral", "bc")
DM = Arm("spiral", "dbc", change={"imitation": 0.0})
DBC = Arm("spiral", "dbc")

CHOSEN = {
    "start": "The paper does not say where the spiral begins: at (1, 1) here, with a standard deviation of 0.01.",
    "settings": "The paper gives none for this task; they are ours whatever source is asked for.",
    "sampled actions": "At an expert's states: the state's part of a pair is held to it at every step of the walk.",
}

MANIFOLD = Experiment(
    name="manifold",
    title="Manifold overfitting",
    about="Four actions only make the spiral. Does a model of p(s, a) find them, and where does its guidance lead?",
    cells=tuple(Cell(name, "success", arm, options=START) for name, arm in (("BC", BC), ("DM", DM), ("DBC", DBC))),
    measures=(
        Measure("samples", "diffusion model", DM),
        Measure("trajectories", "expert", task="spiral"),
        *(
            Measure("trajectories", name, arm, settings={"options": START})
            for name, arm in (("BC", BC), ("DM", DM), ("DBC", DBC))
        ),
    ),
    chosen=CHOSEN,
)
