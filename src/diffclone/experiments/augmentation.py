"""BC with pairs that a diffusion model generates, on Maze."""

from diffclone.experiments.spec import Arm, Cell, Data, Derived, Experiment

REAL, BOTH = "real pairs", "real and generated pairs"

AUGMENTATION = Experiment(
    name="augmentation",
    title="Augmentation",
    about="Is BC better if it also learns from pairs that a diffusion model of the demonstrations generates?",
    cells=(
        Cell(REAL, "success", Arm("maze", "bc")),
        Cell(BOTH, "success", Arm("maze", "bc", data=Data(generated=1.0))),
    ),
    derived=(
        Derived("gain", "success", "difference", (REAL, "success"), (BOTH, "success"), printed="augmentation.gain"),
    ),
    chosen={
        "pairs": "As many generated as real ones, from one diffusion model for all seeds.",
        "gain": "In points of success; the paper does not say whether its own is that.",
    },
)
