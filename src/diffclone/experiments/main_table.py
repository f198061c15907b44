"""The main table: four methods on six tasks."""

from diffclone.experiments.spec import Arm, Cell, Experiment

TITLES = {
    "maze": "Maze",
    "fetch-pick": "FetchPick",
    "hand-rotate": "HandRotate",
    "cheetah": "Cheetah",
    "walker": "Walker",
    "ant-reach": "AntReach",
}
"""The six tasks, as the paper writes them."""

METHODS = {
    "bc": ("BC", "bc"),
    "ibc": ("Implicit BC", "implicit-bc"),
    "diffusion-policy": ("Diffusion Policy", "diffusion-policy"),
    "dbc": ("DBC", "dbc"),
}
"""The four methods: as the paper writes them, and their key in paper.toml."""

MAIN_TABLE = Experiment(
    name="main-table",
    title="Main table",
    about="How well does each method imitate the expert? Success in percent; returns for Cheetah and Walker.",
    cells=tuple(
        Cell(title, heading, Arm(task, method), printed=f"main-table.{task}.{key}")
        for method, (title, key) in METHODS.items()
        for task, heading in TITLES.items()
    ),
    chosen={
        "demonstrations": "Of our own experts where no file is given, as many episodes as the paper's.",
        "diffusion policy": "With our settings it acts by DPM-Solver++ in few calls; the paper takes a thousand steps.",
    },
)
