"""Other models of p(s, a) as guides, with and without the imitation loss."""

from diffclone.experiments.spec import Arm, Cell, Experiment

TASKS = {"maze": "Maze", "fetch-pick": "FetchPick"}
BOTH = {"imitation": (0.0, 1.0)}
GUIDES = {
    "energy": ("EBM", "brief"),
    "vae": ("VAE", "brief"),
    # Two networks against each other do not bear a short schedule.
    "gan": ("GAN", "paper"),
    "diffusion": ("DM", "brief"),
}
"""As the paper writes them, and the preset of ours."""
CHOSEN = {("fetch-pick", "energy"): 0.005}
"""λ where that of the diffusion model is too large to learn anything; chosen on validation starts."""


def arm(task: str, guide: str) -> Arm:
    """Policies with and without BC, in one stack."""
    other = None if guide == "diffusion" else guide
    own = CHOSEN.get((task, guide))
    change = {} if own is None else {"coefficient": own}
    return Arm(task, "dbc", guide=other, preset=GUIDES[guide][1], change=change, vary=BOTH)


def column(heading: str, imitation: float) -> str:
    """Of the table."""
    return f"{heading}, {'with' if imitation else 'without'} BC"


GUIDES_TABLE = Experiment(
    name="guides",
    title="Guides",
    about="Which model of p(s, a) guides best, alone and beside BC?",
    cells=(
        *(
            Cell("BC", column(heading, 1.0), Arm(task, "bc"), printed=f"guides.{task}.with-bc.bc")
            for task, heading in TASKS.items()
        ),
        *(
            Cell(
                title,
                column(heading, imitation),
                arm(task, guide),
                where={"imitation": imitation},
                printed=f"guides.{task}.{'with' if imitation else 'without'}-bc.{guide}",
            )
            for guide, (title, _) in GUIDES.items()
            for task, heading in TASKS.items()
            for imitation in (0.0, 1.0)
        ),
    ),
    chosen={
        "loss": "The paper's for every guide: none looks beside the expert's states.",
        "FetchPick": "The paper gives no settings of its other guides here: they are Maze's, with this task's network "
        "and λ; the energy guide's λ is chosen on validation starts.",
        "GAN": "Trained for as long as the paper's with our settings too: with a short schedule it learns little.",
    },
)
