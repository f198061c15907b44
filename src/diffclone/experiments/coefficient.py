"""The weight of the guide on FetchPick."""

from diffclone.experiments.spec import Arm, Cell, Experiment

VALUES = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
PRINTED = {0.0: "0", 0.5: "0-5", 10.0: "10"}
ARM = Arm("fetch-pick", "dbc", preset="brief", vary={"coefficient": VALUES})

COEFFICIENT = Experiment(
    name="coefficient",
    title="Coefficient",
    about="How does success on FetchPick depend on λ, the weight of the guide? At 0 it is BC.",
    cells=tuple(
        Cell(
            "DBC",
            f"{value:g}",
            ARM,
            where={"coefficient": value},
            printed=f"coefficient.{PRINTED[value]}" if value in PRINTED else None,
        )
        for value in VALUES
    ),
    chosen={
        "values": "The paper's text has three of them; its figure is not in the text.",
        "loss": "The paper's: it does not look beside the expert's states.",
    },
)
