"""Experiments that compare the scores of trained policies."""

from diffclone.experiments.specification import DataChanges, DerivedCell, Experiment, TableCell, Variant

TASKS = {
    "maze": "Maze",
    "fetch-pick": "FetchPick",
    "hand-rotate": "HandRotate",
    "cheetah": "Cheetah",
    "walker": "Walker",
    "ant-reach": "AntReach",
}
"""The six tasks of the main table, with the paper's spelling."""
METHODS = {
    "bc": ("BC", "bc"),
    "ibc": ("Implicit BC", "implicit-bc"),
    "diffusion-policy": ("Diffusion Policy", "diffusion-policy"),
    "dbc": ("DBC", "dbc"),
}
"""The four methods of the main table: the paper's spelling and the key in paper.toml."""
PAPER_LOSS = "The paper's: no guidance near the expert's states (κ = 0)."

MAIN_TABLE = Experiment(
    name="main-table",
    title="Main table",
    about="How well does each method imitate the expert? Success in percent; returns for Cheetah and Walker.",
    cells=tuple(
        TableCell(title, heading, Variant(task, method), paper_key=f"main-table.{task}.{key}")
        for method, (title, key) in METHODS.items()
        for task, heading in TASKS.items()
    ),
    choices={
        "demonstrations": "From our own experts unless a file is given; as many episodes as in the paper.",
        "diffusion policy": "Our settings use DPM-Solver++ with few network calls; the paper uses a thousand steps.",
    },
)

TASK_NOISE = 1.25
"""The task's own scale, which the main table uses."""
NOISE_LEVELS = (1.0, TASK_NOISE, 1.5, 1.75, 2.0)

GENERALIZATION = Experiment(
    name="generalization",
    title="Generalisation",
    about="How much worse does a policy get when block and goal of FetchPick are drawn from larger regions?",
    cells=tuple(
        TableCell(
            title,
            f"{level:g}",
            Variant("fetch-pick", method),
            options={} if level == TASK_NOISE else {"start_noise": level, "goal_noise": level},
            paper_key=f"generalization.{key}.{round(100 * level)}",
        )
        for method, (title, key) in METHODS.items()
        for level in NOISE_LEVELS
    ),
    derived=tuple(
        DerivedCell(
            title, "drop from 1 to 2", "drop", (title, "1"), (title, "2"), paper_key=f"generalization.drop.{key}"
        )
        for title, key in METHODS.values()
    ),
    choices={"policies": "Those of the main table. The paper has λ = 0.1 for DBC here and 0.5 there, yet one number."},
)

GUIDE_MODELS = {
    "energy": ("EBM", "brief"),
    "vae": ("VAE", "brief"),
    # A GAN does not learn with a short schedule.
    "gan": ("GAN", "paper"),
    "diffusion": ("DM", "brief"),
}
"""The paper's spelling, and which of our presets to use."""
GUIDE_COEFFICIENTS = {("fetch-pick", "energy"): 0.005}
"""λ, chosen on validation starts, where the diffusion model's λ is too large to learn anything."""
WITH_BC = {"with": 1.0, "without": 0.0}
"""The weight of the imitation loss."""


def guide_variant(task: str, guide: str) -> Variant:
    """Policies with and without the imitation loss, in one stack."""
    coefficient = GUIDE_COEFFICIENTS.get((task, guide))
    return Variant(
        task,
        "dbc",
        guide=None if guide == "diffusion" else guide,
        preset=GUIDE_MODELS[guide][1],
        overrides={} if coefficient is None else {"coefficient": coefficient},
        vary={"imitation": (0.0, 1.0)},
    )


def bc_beside(task: str, guide: str) -> Variant:
    """BC with the network and the schedule of the policies that a guide trains."""
    return Variant(task, "bc", guide=None if guide == "diffusion" else guide, preset=GUIDE_MODELS[guide][1])


GUIDES = Experiment(
    name="guides",
    title="Guides",
    about="Which model of p(s, a) guides best, alone and together with BC?",
    cells=(
        *(
            TableCell(
                f"BC beside {title}",
                f"{TASKS[task]}, with BC",
                bc_beside(task, guide),
                paper_key=f"guides.{task}.with-bc.bc",
            )
            for guide, (title, _) in GUIDE_MODELS.items()
            for task in ("maze", "fetch-pick")
        ),
        *(
            TableCell(
                title,
                f"{TASKS[task]}, {word} BC",
                guide_variant(task, guide),
                select={"imitation": WITH_BC[word]},
                paper_key=f"guides.{task}.{word}-bc.{guide}",
            )
            for guide, (title, _) in GUIDE_MODELS.items()
            for task in ("maze", "fetch-pick")
            for word in ("without", "with")
        ),
    ),
    choices={
        "loss": PAPER_LOSS,
        "FetchPick": "The paper gives no settings for its other guides here: they are Maze's, with this task's network "
        "and λ; λ of the energy guide is chosen on validation starts.",
        "BC": "Each guide's policies beside BC with their network and schedule: on Maze those of EBM, VAE and GAN have "
        "two ReLU layers, those of DM three tanh layers.",
        "GAN": "Trained for as long as in the paper, also with our settings: with a short schedule it learns little.",
    },
)

COEFFICIENTS = {0.0: "0", 0.1: None, 0.2: None, 0.5: "0-5", 1.0: None, 2.0: None, 5.0: None, 10.0: "10"}
"""λ, and its key in paper.toml where the paper prints the number."""

COEFFICIENT = Experiment(
    name="coefficient",
    title="Coefficient",
    about="How does success on FetchPick depend on λ, the weight of the guide? At 0 it is BC.",
    cells=tuple(
        TableCell(
            "DBC",
            f"{value:g}",
            Variant("fetch-pick", "dbc", preset="brief", vary={"coefficient": tuple(COEFFICIENTS)}),
            select={"coefficient": value},
            paper_key=None if key is None else f"coefficient.{key}",
        )
        for value, key in COEFFICIENTS.items()
    ),
    choices={"values": "The paper's text has three of them; its figure is not in the text.", "loss": PAPER_LOSS},
)

EXPERT_TERM = Experiment(
    name="expert-term",
    title="Expert term",
    about="Does it help to subtract the expert's own cost from that of the policy's actions?",
    cells=tuple(
        TableCell(
            title,
            heading,
            Variant(task, "dbc", preset="brief", overrides={"subtract_expert": subtract}),
            paper_key=f"expert-term.{task}.{key}",
        )
        for title, key, subtract in (("L_agent alone", "unnormalised", False), ("L_DM", "normalised", True))
        for task, heading in TASKS.items()
    ),
    choices={"loss": f"{PAPER_LOSS} The paper's λ for each task, with our brief schedule."},
)

DATASET_SIZE = Experiment(
    name="dataset-size",
    title="Number of demonstrations",
    about="How does success on Maze fall with the number of demonstrations?",
    cells=tuple(
        TableCell(
            title,
            f"{100 * fraction:g} %",
            Variant("maze", method, data=DataChanges(fraction=fraction)),
            paper_key=f"dataset-size.{key}.{round(100 * fraction)}",
        )
        for method, (title, key) in METHODS.items()
        for fraction in (0.25, 0.5, 0.75, 1.0)
    ),
    choices={"fraction": "Of episodes, the same for all seeds; the paper does not say what its fraction counts."},
)

REAL, BOTH = "real pairs", "real and generated pairs"

AUGMENTATION = Experiment(
    name="augmentation",
    title="Augmentation",
    about="Is BC better if it also learns from pairs that a diffusion model of the demonstrations generates?",
    cells=(
        TableCell(REAL, "success", Variant("maze", "bc")),
        TableCell(BOTH, "success", Variant("maze", "bc", data=DataChanges(generated=1.0))),
    ),
    derived=(
        DerivedCell(
            "gain", "success", "difference", (REAL, "success"), (BOTH, "success"), paper_key="augmentation.gain"
        ),
    ),
    choices={
        "pairs": "As many generated as real pairs, from one diffusion model for all seeds.",
        "gain": "In points of success; the paper does not say whether its gain is in points.",
    },
)

PIXELS = Experiment(
    name="pixels",
    title="Image observations",
    about="Does guidance help where observations are images?",
    cells=tuple(
        TableCell(title, "CarRacing", Variant("car-racing", method), paper_key=f"main-table.car-racing.{method}")
        for title, method in (("BC", "bc"), ("DBC", "dbc"))
    ),
    choices={
        "settings": "The paper gives none for this task: every source uses ours.",
        "images": "The guide sees the few features that an encoder computes from an image.",
    },
)
