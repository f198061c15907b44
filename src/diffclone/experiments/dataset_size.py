"""Fewer demonstrations of Maze."""

from diffclone.experiments.main_table import METHODS
from diffclone.experiments.spec import Arm, Cell, Data, Experiment

FRACTIONS = (0.25, 0.5, 0.75, 1.0)

DATASET_SIZE = Experiment(
    name="dataset-size",
    title="Size of the demonstrations",
    about="How does success on Maze fall with the number of demonstrations?",
    cells=tuple(
        Cell(
            title,
            f"{100 * fraction:g} %",
            Arm("maze", method, data=Data(fraction=fraction)),
            printed=f"dataset-size.{key}.{round(100 * fraction)}",
        )
        for method, (title, key) in METHODS.items()
        for fraction in FRACTIONS
    ),
    chosen={"share": "Of episodes, the same for all seeds; the paper does not say what its share is of."},
)
