"""The tests of the paper's claims: which cells they compare."""

from collections.abc import Mapping, Sequence

from diffclone.experiments.catalogue.measurements import (
    INFERENCE,
    LOSS_CURVES,
    MULTIMODALITY,
    NOISE_INJECTION,
    SPIRAL_OPTIONS,
    SPIRAL_VARIANTS,
    noisy_variant,
)
from diffclone.experiments.catalogue.scores import (
    GUIDE_MODELS,
    NOISE_LEVELS,
    TASK_NOISE,
    TASKS,
    WITH_BC,
    bc_beside,
    guide_variant,
)
from diffclone.experiments.claims import Cell, ClaimTest, Contrast, MeasuredRatio, Unit
from diffclone.experiments.specification import DataChanges, Experiment, Measurement, TableCell, Variant

SETTINGS = {
    "maze": "maze-25",
    "fetch-pick": "fetch-pick-27",
    "hand-rotate": "hand-rotate-8",
    "cheetah": "cheetah-1",
    "walker": "walker-1",
    "ant-reach": "ant-reach-20",
}
"""The setting of each task in which the expert is well above BC."""
SMALL = ("maze", "fetch-pick", "hand-rotate", "ant-reach")
"""Tasks whose settings the small study has, which a machine without a GPU can run."""
BRIEF = "brief schedule"
"""20,000 updates for every policy, whatever is best for it."""


def minus(first: Cell, second: Cell) -> Contrast:
    """Return first − second."""
    return ((1.0, first), (-1.0, second))


def change(first: Cell, last: Cell, other_first: Cell, other_last: Cell) -> Contrast:
    """Return how much better `last` is than `first`, minus the same of another method."""
    return ((1.0, last), (-1.0, first), (-1.0, other_last), (1.0, other_first))


def trained(
    method: str,
    variant: Variant,
    select: Mapping[str, float] | None = None,
    options: Mapping[str, float] | None = None,
) -> Cell:
    """Return a cell that `diffclone reproduce claims` trains."""
    return Cell(method, trained=TableCell(method, "", variant, select=select or {}, options=options or {}))


def on_recipe(task: str, method: str, against: str, *, headroom: bool = False) -> ClaimTest:
    """Compare two methods with the paper's own recipe."""
    titles = {"bc": "BC (paper)", "dbc": "DBC (paper)", "diffusion-policy": "Diffusion Policy (paper)"}
    cells = [Cell(titles[name], recipe=(task, f"{name}/paper")) for name in (method, against)]
    contrast = (minus(cells[0], cells[1]),)
    return ClaimTest(f"{TASKS[task]}, the paper's recipe", contrast, task, unit_of(task), needs_headroom=headroom)


def on_study(task: str, method: str, against: str, *, headroom: bool = False, small: bool = False) -> ClaimTest:
    """Compare tuned methods with fresh seeds, in the task's setting with headroom."""
    first, second = study_cells(task, (method, against), small=small)
    on, setting = describe_study(task, small=small), SETTINGS[task]
    return ClaimTest(on, (minus(first, second),), task, unit_of(task), needs_headroom=headroom, setting=setting)


def study_cells(task: str, methods: Sequence[str], *, small: bool) -> list[Cell]:
    """Return the cells of tuned methods."""
    return [Cell(f"{name}, tuned", study=(SETTINGS[task], name), small=small) for name in methods]


def describe_study(task: str, *, small: bool) -> str:
    """Return on which setting and in which study tuned methods are compared."""
    return f"{SETTINGS[task]}{', small study' if small else ''}"


def unit_of(task: str) -> Unit:
    """Return the unit of a task's metric."""
    return "return" if task in ("cheetah", "walker", "car-racing") else "success"


def find_measurement(experiment: Experiment, kind: str, label: str) -> tuple[str, Measurement]:
    """Return a measurement of an experiment, with the experiment's name."""
    found = next(entry for entry in experiment.measurements if (entry.kind, entry.label) == (kind, label))
    return experiment.name, found


def loss_cell(label: str, loss: str) -> Cell:
    """Return how far a loss falls when the policy `label` is trained, in percent of its first value."""
    return Cell(f"{loss} of the policy {label}", measured=(*find_measurement(LOSS_CURVES, "curves", label), loss))


def error_cell(level: float) -> Cell:
    """Return the reconstruction error of a diffusion model of noisy actions."""
    found = find_measurement(NOISE_INJECTION, "reconstruction", f"{level:g}")
    return Cell(f"error with noise {level:g}", measured=(*found, "mse"))


METHODS = {
    "bc": "BC",
    "ibc": "IBC",
    "diffusion-policy": "Diffusion Policy",
    "dbc": "DBC (paper's loss)",
}
FAR = {
    method: {
        level: trained(
            f"{title} at {level:g}",
            Variant("fetch-pick", method, preset="brief"),
            options={} if level == TASK_NOISE else {"start_noise": level, "goal_noise": level},
        )
        for level in NOISE_LEVELS
    }
    for method, title in METHODS.items()
}
SIZED = {
    method: {
        fraction: trained(
            f"{title}, {100 * fraction:g} %",
            Variant("maze", method, preset="brief", data=DataChanges(fraction=fraction)),
        )
        for fraction in (0.25, 0.5, 0.75, 1.0)
    }
    for method, title in METHODS.items()
}
OTHERS = ("bc", "ibc", "diffusion-policy")
GUIDED = {
    (task, guide, word): trained(
        title if word == "with" else f"{title} alone", guide_variant(task, guide), {"imitation": WITH_BC[word]}
    )
    for task in ("maze", "fetch-pick")
    for guide, (title, _) in GUIDE_MODELS.items()
    for word in WITH_BC
}
OWN_BC = {
    (task, guide): trained("BC", bc_beside(task, guide)) for task in ("maze", "fetch-pick") for guide in GUIDE_MODELS
}
SPIRAL = {name: trained(name, variant, options=SPIRAL_OPTIONS) for name, variant in SPIRAL_VARIANTS.items()}
NOISY = trained("DM-0.01", noisy_variant(0.01), options=SPIRAL_OPTIONS)
COEFFICIENT_VARIANT = Variant("fetch-pick", "dbc", preset="brief", vary={"coefficient": (0.0, 0.5, 10.0)})
COEFFICIENT = {
    value: trained(f"λ = {value:g}", COEFFICIENT_VARIANT, {"coefficient": value}) for value in (0.0, 0.5, 10.0)
}


def on_brief(what: str, task: str, *contrasts: Contrast) -> ClaimTest:
    """Compare policies of the brief schedule."""
    return ClaimTest(f"{what}, {BRIEF}", contrasts, task, unit_of(task))


def every_level(other: str) -> ClaimTest:
    """DBC minus another method at every scale of the regions."""
    contrasts = (minus(FAR["dbc"][level], FAR[other][level]) for level in NOISE_LEVELS)
    return on_brief("FetchPick, noise 1 to 2", "fetch-pick", *contrasts)


def every_size(other: str) -> ClaimTest:
    """DBC minus another method at every size of the demonstrations."""
    contrasts = (minus(SIZED["dbc"][fraction], SIZED[other][fraction]) for fraction in SIZED["dbc"])
    return on_brief("Maze, 25 to 100 %", "maze", *contrasts)


def guides_test(task: str, word: str) -> ClaimTest:
    """The diffusion model minus every other guide."""
    best, rest = GUIDED[task, "diffusion", word], [guide for guide in GUIDE_MODELS if guide != "diffusion"]
    return on_brief(TASKS[task], task, *(minus(best, GUIDED[task, guide, word]) for guide in rest))


def expert_term_test(task: str) -> ClaimTest:
    """L_DM minus L_agent alone."""
    cells = [
        trained(name, Variant(task, "dbc", preset="brief", overrides={"subtract_expert": subtract}))
        for name, subtract in (("L_DM", True), ("L_agent alone", False))
    ]
    return on_brief(TASKS[task], task, minus(cells[0], cells[1]))


GENERATED = [
    trained(name, Variant("maze", "bc", data=DataChanges(generated=generated)))
    for name, generated in (("real and generated pairs", 1.0), ("real pairs", 0.0))
]
PIXELS = [
    trained(name, Variant("car-racing", method)) for name, method in (("DBC (our settings)", "dbc"), ("BC", "bc"))
]
TIMES = {label: find_measurement(INFERENCE, "inference", label) for label in ("BC", "DBC", "Implicit BC")}
TIMES["Diffusion Policy"] = find_measurement(INFERENCE, "inference", "Diffusion Policy")
RATIOS = {name: find_measurement(MULTIMODALITY, "multimodality", name) for name in ("Maze", "Walker", "FetchPick")}


def ibc_test(task: str, *, small: bool = False) -> ClaimTest:
    """Every other method minus implicit BC."""
    ibc, *others = study_cells(task, ("IBC", "BC", "Diffusion Policy", "DBC (paper)"), small=small)
    contrasts = tuple(minus(other, ibc) for other in others)
    return ClaimTest(describe_study(task, small=small), contrasts, task, unit_of(task), setting=SETTINGS[task])


def compare_times(first: str, second: str, *, least: float = 0.0, most: float = float("inf")) -> MeasuredRatio:
    """Compare the times per action of two methods."""
    what = f"time per action, {first} over {second}"
    return MeasuredRatio(what, TIMES[first], TIMES[second], "milliseconds", least, most)
