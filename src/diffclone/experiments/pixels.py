"""CarRacing, from pictures."""

from diffclone.experiments.spec import Arm, Cell, Experiment

PIXELS = Experiment(
    name="pixels",
    title="Pictures",
    about="Does guidance help where observations are pictures?",
    cells=tuple(
        Cell(title, "CarRacing", Arm("car-racing", method), printed=f"main-table.car-racing.{method}")
        for title, method in (("BC", "bc"), ("DBC", "dbc"))
    ),
    chosen={
        "settings": "The paper gives none for this task; they are ours whatever source is asked for.",
        "pictures": "The guide sees few numbers that an encoder makes of a picture.",
    },
)
