"""How long methods take to act."""

from diffclone.experiments.main_table import METHODS
from diffclone.experiments.spec import Arm, Derived, Experiment, Measure

INFERENCE = Experiment(
    name="inference",
    title="Inference",
    about="Episodes a second, and milliseconds an action, of every method on Maze.",
    measures=tuple(
        Measure(
            "inference",
            title,
            Arm("maze", method),
            settings={"acting": {"sampler": "ancestral"}} if method == "diffusion-policy" else {},
            printed=f"inference.{key}" if method != "bc" else None,
        )
        for method, (title, key) in METHODS.items()
    ),
    derived=tuple(
        Derived(f"DBC over {METHODS[slow][0]}", "episodes/s", "times", ("DBC", "episodes/s"), (title, "episodes/s"))
        for slow, (title, _) in METHODS.items()
        if slow in ("ibc", "diffusion-policy")
    ),
    chosen={
        "machine": "One thread of a CPU here, a GPU in the paper: only the ratios can be compared.",
        "diffusion policy": "All thousand steps, as in the paper.",
        "episodes": "A few, played together, in rounds of which the median counts. A "
        "round lasts as long as its longest episode.",
    },
)
