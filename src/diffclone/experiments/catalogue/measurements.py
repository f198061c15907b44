"""Experiments that measure something besides scores: demonstrations, inference time, guides and losses."""

from diffclone.experiments.catalogue.scores import METHODS, PAPER_LOSS, TASKS, guide_variant
from diffclone.experiments.specification import (
    DataChanges,
    DerivedCell,
    Experiment,
    Measurement,
    TableCell,
    Variant,
)

MULTIMODALITY = Experiment(
    name="multimodality",
    title="Multimodality of the demonstrations",
    about="Do similar states have similar actions? 1: always; 0.1: any of ten kinds of action.",
    measurements=(
        *(
            Measurement("multimodality", heading, task=task, paper_key=f"multimodality.{task}")
            for task, heading in TASKS.items()
        ),
        Measurement("multimodality", "Spiral", task="spiral"),
    ),
    choices={
        "clusters": "Raw features, weighted by cluster size: this reproduces the paper's numbers on its own files.",
        "demonstrations": "From our own experts unless files are given; ratios of other demonstrations may differ.",
    },
)

INFERENCE = Experiment(
    name="inference",
    title="Inference",
    about="Episodes per second, and milliseconds per action, of every method on Maze.",
    measurements=tuple(
        Measurement(
            "inference",
            title,
            Variant("maze", method),
            settings={"acting": {"sampler": "ancestral"}} if method == "diffusion-policy" else {},
            paper_key=None if method == "bc" else f"inference.{key}",
        )
        for method, (title, key) in METHODS.items()
    ),
    derived=tuple(
        DerivedCell(f"DBC over {title}", "episodes/s", "times", ("DBC", "episodes/s"), (title, "episodes/s"))
        for title in ("Implicit BC", "Diffusion Policy")
    ),
    choices={
        "machine": "One CPU thread here, a GPU in the paper: only the ratios can be compared.",
        "diffusion policy": "All thousand steps, as in the paper.",
        "episodes": "A few run together, in rounds; the median round counts. A round takes as long as its longest "
        "episode.",
    },
)

SPIRAL_OPTIONS = {"start_noise": 0.01}
"""Starts vary as in the demonstrations; without it every episode would be the same."""
BC, DBC = Variant("spiral", "bc"), Variant("spiral", "dbc")
GUIDE_ONLY = Variant("spiral", "dbc", overrides={"imitation": 0.0})
SPIRAL_VARIANTS = {"BC": BC, "DM": GUIDE_ONLY, "DBC": DBC}
SPIRAL_CHOICES = {
    "start": "The paper does not say where the spiral begins: at (1, 1) here, with a standard deviation of 0.01.",
    "settings": "The paper gives none for this task: every source uses ours.",
    "sampled actions": "At the expert's states: the state part of a pair is fixed to the state at every sampling step.",
}
EXPERT_PATHS = Measurement("trajectories", "expert", task="spiral")


def measure_paths(label: str, variant: Variant) -> Measurement:
    """Return the measurement of a variant's trajectories on Spiral."""
    return Measurement("trajectories", label, variant, settings={"options": SPIRAL_OPTIONS})


MANIFOLD = Experiment(
    name="manifold",
    title="Manifold overfitting",
    about="The spiral has only four actions. Does a model of p(s, a) find them, and where does its guidance lead?",
    cells=tuple(
        TableCell(name, "success", variant, options=SPIRAL_OPTIONS) for name, variant in SPIRAL_VARIANTS.items()
    ),
    measurements=(
        Measurement("samples", "diffusion model", GUIDE_ONLY),
        EXPERT_PATHS,
        *(measure_paths(name, variant) for name, variant in SPIRAL_VARIANTS.items()),
    ),
    choices=SPIRAL_CHOICES,
)

ACTION_NOISE = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
SHOWN_NOISE = (0.0, 0.01)
"""Levels in the paper's figure, with a printed success."""


def noisy_variant(level: float) -> Variant:
    """Policies that learn only from a guide, which is trained on actions with this much noise."""
    return Variant("spiral", "dbc", overrides={"imitation": 0.0}, data=DataChanges(action_noise=level))


def noisy_name(level: float) -> str:
    """Return the paper's name of such a policy."""
    return f"DM-{level:g}" if level else "DM"


NOISE_INJECTION = Experiment(
    name="noise-injection",
    title="Noise injection",
    about="Does noise on the expert's actions make a diffusion model of the spiral better, or a better guide?",
    cells=(
        *(
            TableCell(
                noisy_name(level),
                "success",
                noisy_variant(level),
                options=SPIRAL_OPTIONS,
                paper_key=f"noise-injection.success.{noisy_name(level).lower().replace('.', '-')}"
                if level in SHOWN_NOISE
                else None,
            )
            for level in ACTION_NOISE
        ),
        TableCell("BC", "success", BC, options=SPIRAL_OPTIONS, paper_key="noise-injection.success.bc"),
    ),
    measurements=(
        *(
            Measurement(
                "reconstruction",
                f"{level:g}",
                noisy_variant(level),
                paper_key=f"noise-injection.mse.{round(1000 * level)}",
            )
            for level in ACTION_NOISE
        ),
        Measurement("reconstruction-curve", "0", noisy_variant(0.0)),
        *(Measurement("samples", f"{level:g}", noisy_variant(level)) for level in SHOWN_NOISE),
        EXPERT_PATHS,
        *(measure_paths(noisy_name(level), noisy_variant(level)) for level in SHOWN_NOISE),
        measure_paths("BC", BC),
    ),
    choices={
        **SPIRAL_CHOICES,
        "noise": "Gaussian, in the unit of the actions, drawn once.",
        "reconstruction": "The mean squared difference between sampled and clean expert actions, over pairs and both "
        "force components; the paper does not say how it reconstructs. The curve shows how much this matters: pairs "
        "are noised up to step t and denoised from there.",
        "policies": "Those trained with the guide alone also see the noisy actions, in the subtracted term.",
    },
)

LOSS_CURVES = Experiment(
    name="loss-curves",
    title="Loss curves",
    about="Do L_BC and L_DM fall together, whichever of them is minimised?",
    measurements=(
        Measurement("curves", "BC", Variant("maze", "dbc", preset="brief", overrides={"coefficient": 0.0})),
        Measurement("curves", "DM", guide_variant("maze", "diffusion"), select={"imitation": 0.0}),
        Measurement("curves", "DBC", guide_variant("maze", "diffusion"), select={"imitation": 1.0}),
    ),
    choices={"loss": PAPER_LOSS},
)

GRADIENT_FIELD = Experiment(
    name="gradient-field",
    title="Gradient field",
    about="Does the diffusion model move positions to where the expert goes, and out of the walls?",
    measurements=(Measurement("field", "Maze", Variant("maze", "dbc")),),
    choices={
        "other features": "Velocity, goal and action come from random expert pairs; arrows are means over them.",
        "step": "A tenth of all steps: little noise.",
    },
)
