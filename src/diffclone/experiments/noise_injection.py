"""Spiral with noise on the expert's actions: does it help a diffusion model?"""

from diffclone.experiments.manifold import BC, CHOSEN, DM, START
from diffclone.experiments.spec import Arm, Cell, Data, Experiment, Measure

LEVELS = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
SHOWN = 0.01
"""The level of the paper's figure, and of its policy with a name."""


def guided(level: float) -> Arm:
    """A policy that learns from the guide alone, of a diffusion model that saw this much noise."""
    return Arm("spiral", "dbc", change={"imitation": 0.0}, data=Data(action_noise=level)) if level else DM


def name(level: float) -> str:
    """The paper's."""
    return f"DM-{level:g}" if level else "DM"


NOISE_INJECTION = Experiment(
    name="noise-injection",
    title="Noise injection",
    about="Is a diffusion model of the spiral better, and a better guide, if noise is put on the expert's actions?",
    cells=(
        *(
            Cell(
                name(level),
                "success",
                guided(level),
                options=START,
                printed=f"noise-injection.success.{name(level).lower().replace('.', '-')}"
                if level in (0, SHOWN)
                else None,
            )
            for level in LEVELS
        ),
        Cell("BC", "success", BC, options=START, printed="noise-injection.success.bc"),
    ),
    measures=(
        *(
            Measure(
                "reconstruction",
                f"{level:g}",
                guided(level),
                printed=f"noise-injection.mse.{round(1000 * level)}",
            )
            for level in LEVELS
        ),
        *(Measure("samples", f"{level:g}", guided(level)) for level in (0.0, SHOWN)),
        Measure("trajectories", "expert", task="spiral"),
        *(Measure("trajectories", name(level), guided(level), settings={"options": START}) for level in (0.0, SHOWN)),
        Measure("trajectories", "BC", BC, settings={"options": START}),
    ),
    chosen={
        **CHOSEN,
        "noise": "Gaussian, in the unit of the actions, drawn once.",
        "reconstruction": "The mean square of sampled less clean expert actions, over pairs and both forces, in their "
        "unit; the paper does not say how it reconstructs.",
        "policies": "Those guided alone see the noisy actions too, in the term that is subtracted.",
    },
)
