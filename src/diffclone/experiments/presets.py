"""Settings that belong to a task, each with its source.

`paper` is what the paper prints: its appendix, and Equation 5 with t uniform. `release` is the released code's
configuration: the hinge on batch means, t antithetic. What the paper leaves open (normalisation, the limit on the
gradient, Adam's ε) follows the released code in both. `brief`, `best` and `demo` are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

from diffclone.experiments.appendix import APPENDIX, guided
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC, METHODS, IBCLangevin
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder
from diffclone.registry import Registry


@final
@dataclass(frozen=True)
class Preset:
    """A method ready to train, and where its numbers come from."""

    method: Method[Any]
    source: str


def from_appendix() -> Iterator[tuple[str, Preset]]:
    """`paper` and `release` of every task that has a column."""
    for task, column in APPENDIX.items():
        printed, released = "The paper's appendix", "The released code's configuration"
        yield f"{task}/bc/paper", Preset(column.bc(), f"{printed}: {column.epochs} epochs, lr {column.lr:g}.")
        yield f"{task}/bc/release", Preset(column.bc(), f"{released}.")
        about = f"{printed} and its Equation 5: λ = {column.coefficient:g}, the hinge on each pair, t uniform."
        yield f"{task}/dbc/paper", Preset(column.dbc(released=False), about)
        about = f"{released}: the hinge on batch means, t antithetic."
        yield f"{task}/dbc/release", Preset(column.dbc(released=True), about)
        about = (
            f"{printed}: {column.ibc_epochs} epochs, lr {column.ibc_lr:g}. Counter-examples, their box and noise: ours."
        )
        yield f"{task}/ibc/paper", Preset(column.ibc(), about)
        about = f"{printed}: {column.diffusion_epochs} epochs, lr {column.diffusion_lr:g}, 1000 steps an action."
        yield f"{task}/diffusion-policy/paper", Preset(column.diffusion_policy(), about)
    for guide, method in guided("maze").items():
        about = f"The paper's appendix on guides: λ = {method.coefficient:g}."
        yield f"maze/dbc/paper-{guide}", Preset(method, about)
    for guide, method in guided("fetch-pick").items():
        about = f"The paper's guides of Maze; its network, schedule and λ = {method.coefficient:g} of this task."
        yield f"fetch-pick/dbc/paper-{guide}", Preset(method, about)


BRIEF_POLICY = Training(updates=20_000, lr=1e-3, eps=1e-12)
BRIEF_GUIDE = DiffusionGuide(training=Training(updates=40_000, lr=1e-3), width=512)
BRIEF_OTHER = Training(updates=20_000, lr=1e-3)
BRIEF_ENERGY = Training(updates=20_000, lr=1e-3)
BRIEF_DIFFUSION = Training(updates=100_000, lr=1e-3, ema=0.999)
BRIEF_WIDE = replace(BRIEF_DIFFUSION, updates=40_000)
"""For diffusion policies of more than a thousand units a layer, which are slow."""
GUIDED = ("maze", "fetch-pick")
"""Tasks on which the paper compares guides."""
PIXELS = Network(width=256, depth=1, activation="relu", image=(2, 64, 64))
PIXEL_GUIDE = replace(BRIEF_GUIDE, training=Training(updates=10_000, lr=1e-3), width=256)


def brief() -> Iterator[tuple[str, Preset]]:
    """A minute on a GPU, tens of minutes on two cores, for every task: the paper's networks and λ, our schedules."""
    about = "Ours: the paper's network"
    for task, column in APPENDIX.items():
        bc = BC(training=BRIEF_POLICY, network=column.network, normalisation=column.normalisation)
        yield f"{task}/bc/brief", Preset(bc, f"{about}, fewer and larger updates.")
        dbc = DBC(
            training=BRIEF_POLICY,
            network=column.network,
            coefficient=column.coefficient,
            away=0.0,
            guide=BRIEF_GUIDE,
            normalisation=column.normalisation,
        )
        yield f"{task}/dbc/brief", Preset(dbc, f"{about} and λ, fewer and larger updates, a smaller guide.")
        ibc = replace(column.ibc(), training=BRIEF_ENERGY)
        yield f"{task}/ibc/brief", Preset(ibc, f"{about}, fewer and larger updates.")
        langevin = IBCLangevin(normalisation=column.normalisation)
        yield f"{task}/ibc-langevin/brief", Preset(langevin, "Ours: the paper did not try it.")
        diffusion = column.diffusion_policy()
        schedule = BRIEF_WIDE if diffusion.width > 1000 else BRIEF_DIFFUSION
        diffusion = replace(diffusion, training=schedule, sampler="dpm-solver++")
        yield (
            f"{task}/diffusion-policy/brief",
            Preset(diffusion, f"{about}, fewer and larger updates, a moving average."),
        )
    for task, guide, method in ((t, *entry) for t in GUIDED for entry in guided(t).items()):
        before = method.guide.trained == "before"
        clip = method.guide.training.clip
        schedule = replace(BRIEF_OTHER, clip=clip) if before else replace(method.guide.training, lr=BRIEF_POLICY.lr)
        training = replace(method.training, updates=BRIEF_POLICY.updates, lr=BRIEF_POLICY.lr)
        short = replace(method, training=training, guide=replace(method.guide, training=schedule))
        yield f"{task}/dbc/brief-{guide}", Preset(short, f"{about} and λ, fewer and larger updates.")
    ours = "Ours: the paper gives no settings for this task."
    spiral = Network(width=256, depth=2)
    yield "spiral/bc/brief", Preset(BC(training=BRIEF_POLICY, network=spiral), ours)
    yield (
        "spiral/dbc/brief",
        Preset(DBC(training=BRIEF_POLICY, network=spiral, coefficient=1.0, away=0.0, guide=BRIEF_GUIDE), ours),
    )
    pixels = Training(updates=1_000, lr=5e-4)
    yield "car-racing/bc/brief", Preset(BC(training=pixels, network=PIXELS), ours)
    dbc = DBC(
        training=pixels, network=PIXELS, coefficient=30.0, away=0.0, gate="sample", guide=PIXEL_GUIDE, encoder=Encoder()
    )
    yield (
        "car-racing/dbc/brief",
        Preset(dbc, f"{ours} The hinge is on each pair: of batch means it is always shut here."),
    )


def best(task: str, coefficient: float) -> Preset:
    """What an ablation on validation starts led to (docs/results.md)."""
    method = dict(brief())[f"{task}/dbc/brief"].method
    about = (
        "The best of an ablation on validation starts (docs/results.md): guidance beside the expert's states as well."
    )
    return Preset(replace(method, coefficient=coefficient, away=1.0), about)


MAZE = APPENDIX["maze"]
DEMO_POLICY = Training(updates=6_400, lr=1e-3, eps=1e-12)

PRESETS: Registry[Preset] = Registry(
    "preset",
    {
        **dict(from_appendix()),
        **dict(brief()),
        "maze/bc/best": Preset(
            replace(MAZE.bc(), training=Training(updates=10_000, lr=1e-3, eps=1e-12)),
            "Ours: fewer, larger updates were better than the paper's on validation starts (docs/results.md).",
        ),
        "maze/dbc/best": best("maze", 3.0),
        "fetch-pick/bc/best": Preset(dict(brief())["fetch-pick/bc/brief"].method, "Ours: the brief schedule."),
        "fetch-pick/dbc/best": best("fetch-pick", 2.0),
        "maze/bc/demo": Preset(BC(training=DEMO_POLICY, network=MAZE.network), "Ours: a minute on two cores."),
        "maze/dbc/demo": Preset(
            DBC(
                training=DEMO_POLICY,
                network=MAZE.network,
                coefficient=3.0,
                away=0.0,
                guide=DiffusionGuide(training=Training(updates=12_000, lr=1e-3)),
            ),
            "Ours: minutes on two cores; λ = 3 was better than 10 on validation starts (three seeds).",
        ),
    },
)


def preset(task: str | None, method: str, name: str | None) -> Method[Any]:
    """The settings of a preset, or the method's defaults where none is named."""
    if name is None:
        return METHODS[method]()
    METHODS[method]
    return PRESETS[f"{task}/{method}/{name}"].method
