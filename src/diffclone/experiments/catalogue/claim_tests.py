"""The tests of the paper's claims: which cells they compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

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
BRIEF = "brief schedule"
"""20,000 updates for every policy, whatever is best for it."""
SMALL_SCHEDULE = "small schedule"
"""4,000 updates for every policy and networks of width 256 (small_presets.py), which need no GPU."""


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
    *,
    small: bool = False,
) -> Cell:
    """Return a cell that `diffclone reproduce claims` trains; with `small`, from the small presets."""
    cell = TableCell(method, "", variant, select=select or {}, options=options or {})
    return Cell(method, trained=cell, small=small)


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


def diffusion_policy_tests(*tasks: str) -> tuple[ClaimTest, ...]:
    """DBC minus Diffusion Policy, both tuned; in the small study also minus one that predicts the velocity."""
    pairs = ((False, "Diffusion Policy"), (True, "Diffusion Policy"), (True, "Diffusion Policy, velocity"))
    return tuple(on_study(task, "DBC (paper)", other, small=small) for small, other in pairs for task in tasks)


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


def loss_cell(label: str, loss: str, *, small: bool) -> Cell:
    """Return how far a loss falls when the policy `label` is trained, in percent of its first value."""
    found = find_measurement(LOSS_CURVES, "curves", label)
    return Cell(f"{loss} of the policy {label}", measured=(*found, loss), small=small)


def error_cell(level: float, *, small: bool) -> Cell:
    """Return the reconstruction error of a diffusion model of noisy actions."""
    found = find_measurement(NOISE_INJECTION, "reconstruction", f"{level:g}")
    return Cell(f"error with noise {level:g}", measured=(*found, "mse"), small=small)


METHODS = {
    "bc": "BC",
    "ibc": "IBC",
    "diffusion-policy": "Diffusion Policy",
    "dbc": "DBC (paper's loss)",
}
OTHERS = ("bc", "ibc", "diffusion-policy")
SIZES = (0.25, 0.5, 0.75, 1.0)
VALUES = (0.0, 0.5, 10.0)
"""Values of λ that the paper's text compares."""


def on_schedule(what: str, task: str, *contrasts: Contrast, margin: float | None = None) -> ClaimTest:
    """Compare policies of one schedule: that of the cells."""
    schedule = SMALL_SCHEDULE if contrasts[0][0][1].small else BRIEF
    return ClaimTest(f"{what}, {schedule}", contrasts, task, unit_of(task), margin)


def both(build: Callable[[bool], Iterable[ClaimTest]]) -> tuple[ClaimTest, ...]:
    """Return tests with full networks, and the same with small ones."""
    return (*build(False), *build(True))


def far_cell(method: str, level: float, *, small: bool) -> Cell:
    """Return a method at one scale of the regions of FetchPick."""
    options = {} if level == TASK_NOISE else {"start_noise": level, "goal_noise": level}
    variant = Variant("fetch-pick", method, preset="brief")
    return trained(f"{METHODS[method]} at {level:g}", variant, options=options, small=small)


def every_level(other: str, *, small: bool) -> ClaimTest:
    """DBC minus another method at every scale of the regions."""
    cells = ([far_cell(method, level, small=small) for method in ("dbc", other)] for level in NOISE_LEVELS)
    return on_schedule("FetchPick, noise 1 to 2", "fetch-pick", *(minus(dbc, second) for dbc, second in cells))


def loss_of_success(other: str, *, small: bool) -> ClaimTest:
    """How much more success another method loses than DBC as the regions grow from 1 to 2."""
    cells = [far_cell(method, level, small=small) for method in ("dbc", other) for level in (1.0, 2.0)]
    return on_schedule("FetchPick, noise 1 to 2", "fetch-pick", change(*cells))


def every_size(other: str, *, small: bool) -> ClaimTest:
    """DBC minus another method at every size of the demonstrations."""

    def sized(method: str, fraction: float) -> Cell:
        variant = Variant("maze", method, preset="brief", data=DataChanges(fraction=fraction))
        return trained(f"{METHODS[method]}, {100 * fraction:g} %", variant, small=small)

    contrasts = (minus(sized("dbc", fraction), sized(other, fraction)) for fraction in SIZES)
    return on_schedule("Maze, 25 to 100 %", "maze", *contrasts)


def guided(task: str, guide: str, word: str, *, small: bool) -> Cell:
    """Return the policies that a guide trains, with or without BC."""
    title = GUIDE_MODELS[guide][0] if word == "with" else f"{GUIDE_MODELS[guide][0]} alone"
    return trained(title, guide_variant(task, guide), {"imitation": WITH_BC[word]}, small=small)


def guides_test(task: str, word: str, *, small: bool) -> ClaimTest:
    """The diffusion model minus every other guide."""
    best, *rest = (guided(task, guide, word, small=small) for guide in ("diffusion", "energy", "vae", "gan"))
    return on_schedule(TASKS[task], task, *(minus(best, other) for other in rest))


def with_bc_test(task: str, *, small: bool) -> ClaimTest:
    """Every guide with BC minus the same guide alone."""
    pairs = ([guided(task, guide, word, small=small) for word in WITH_BC] for guide in GUIDE_MODELS)
    return on_schedule(TASKS[task], task, *(minus(together, alone) for together, alone in pairs))


def guide_improves_bc(task: str, *, small: bool) -> ClaimTest:
    """The diffusion model with BC minus BC with the same network and schedule."""
    bc = trained("BC", bc_beside(task, "diffusion"), small=small)
    return on_schedule(TASKS[task], task, minus(guided(task, "diffusion", "with", small=small), bc))


def spiral_cell(name: str, *, small: bool) -> Cell:
    """Return policies of Spiral: BC, DM, DBC or DM-0.01."""
    variant = SPIRAL_VARIANTS[name] if name in SPIRAL_VARIANTS else noisy_variant(0.01)
    return trained(name, variant, options=SPIRAL_OPTIONS, small=small)


def spiral_test(first: str, second: str, *, small: bool) -> ClaimTest:
    """Compare policies of Spiral."""
    cells = [spiral_cell(name, small=small) for name in (first, second)]
    return on_schedule("Spiral", "spiral", minus(*cells))


def coefficient_test(*pairs: tuple[float, float], small: bool) -> ClaimTest:
    """Compare values of λ on FetchPick."""
    variant = Variant("fetch-pick", "dbc", preset="brief", vary={"coefficient": VALUES})
    cells = {value: trained(f"λ = {value:g}", variant, {"coefficient": value}, small=small) for value in VALUES}
    return on_schedule("FetchPick", "fetch-pick", *(minus(cells[first], cells[second]) for first, second in pairs))


def expert_term_test(task: str, *, small: bool) -> ClaimTest:
    """L_DM minus L_agent alone."""
    cells = [
        trained(name, Variant(task, "dbc", preset="brief", overrides={"subtract_expert": subtract}), small=small)
        for name, subtract in (("L_DM", True), ("L_agent alone", False))
    ]
    return on_schedule(TASKS[task], task, minus(*cells))


def losses_test(label: str, loss: str, *, small: bool) -> ClaimTest:
    """How far a loss falls while the policy `label` is trained."""
    contrast: Contrast = ((1.0, loss_cell(label, loss, small=small)),)
    return replace(on_schedule("Maze", "maze", contrast), unit="percent")


def reconstruction_test(*, small: bool) -> ClaimTest:
    """The reconstruction error with noise on the actions minus that without, in percent of the latter."""
    contrast = minus(error_cell(0.01, small=small), error_cell(0.0, small=small))
    return replace(on_schedule("Spiral", "spiral", contrast, margin=10.0), unit="percent")


def augmentation_test(*, small: bool) -> ClaimTest:
    """BC with generated pairs minus BC without, within the standard deviation that the paper prints."""
    real, generated = (
        trained(name, Variant("maze", "bc", data=DataChanges(generated=share)), small=small)
        for name, share in (("real pairs", 0.0), ("real and generated pairs", 1.0))
    )
    on = f"Maze, {SMALL_SCHEDULE if small else 'preset best'}"
    return ClaimTest(on, (minus(generated, real),), "maze", margin=3.6)


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
