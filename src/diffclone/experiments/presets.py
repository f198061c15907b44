"""Presets: the settings of a method for a task, with their source.

- `paper`: as printed in the paper's appendix, with Equation 5 and uniform t.
- `release`: the configuration of the released code, with the hinge on batch means and antithetic t.
- `brief`, `best`, `small` and `demo`: ours.

Where the paper leaves something open (normalisation, gradient clipping, Adam's ε), `paper` follows the released code.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, final

from diffclone.errors import InvalidSettings, UnknownName
from diffclone.experiments.appendix import APPENDIX, other_guides
from diffclone.experiments.small_presets import SOURCE as SMALL_SOURCE
from diffclone.experiments.small_presets import small_methods
from diffclone.experiments.specification import RunOptions, SettingsSource, Variant
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, BCGMM, DBC, IBC, METHODS, MIP, DiffusionPolicy, FlowMatching, IBCLangevin
from diffclone.model import Method, Model, Normalisation, Training
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder
from diffclone.registry import Registry, describe_unknown
from diffclone.tasks import EXTERNAL
from diffclone.training.members import replace_fields


@final
@dataclass(frozen=True)
class Preset:
    """A method with its settings, ready to train."""

    method: Method[Any]
    source: str
    """Where the settings come from."""


Entries = Iterator[tuple[str, Preset]]


def appendix_presets() -> Entries:
    """`paper` and `release`, for every task in the paper's appendix."""
    printed, released = "The paper's appendix", "The released code's configuration"
    for task, column in APPENDIX.items():
        yield f"{task}/bc/paper", Preset(column.bc(), f"{printed}: {column.epochs} epochs, lr {column.lr:g}.")
        yield f"{task}/bc/release", Preset(column.bc(), f"{released}.")
        source = f"{printed} and Equation 5: λ = {column.coefficient:g}, the hinge on each pair, uniform t."
        yield f"{task}/dbc/paper", Preset(column.dbc(released=False), source)
        source = f"{released}: the hinge on batch means, antithetic t."
        yield f"{task}/dbc/release", Preset(column.dbc(released=True), source)
        source = f"{printed}: {column.ibc_epochs} epochs, lr {column.ibc_lr:g}. Ours: counter-examples and their box."
        yield f"{task}/ibc/paper", Preset(column.ibc(), source)
        source = f"{printed}: {column.diffusion_epochs} epochs, lr {column.diffusion_lr:g}, 1000 steps per action."
        yield f"{task}/diffusion-policy/paper", Preset(column.diffusion_policy(), source)
    beside = "BC with the network and the schedule of these policies"
    for guide, method in other_guides("maze").items():
        source = f"The paper's appendix on guides: λ = {method.coefficient:g}."
        yield f"maze/dbc/paper-{guide}", Preset(method, source)
        yield f"maze/bc/paper-{guide}", Preset(bc_beside(method), f"{beside}.")
    for guide, method in other_guides("fetch-pick").items():
        source = f"The paper's guides for Maze; network, schedule and λ = {method.coefficient:g} of this task."
        yield f"fetch-pick/dbc/paper-{guide}", Preset(method, source)
        yield f"fetch-pick/bc/paper-{guide}", Preset(bc_beside(method), f"{beside}.")


def bc_beside(method: DBC) -> BC:
    """Return BC as DBC would be without its guide."""
    return BC(training=method.training, network=method.network, normalisation=method.normalisation)


BRIEF_POLICY = Training(updates=20_000, lr=1e-3, eps=1e-12)
BRIEF_OTHER = Training(updates=20_000, lr=1e-3)
"""Energy models and VAEs, as policies or guides."""
BRIEF_GUIDE = DiffusionGuide(training=Training(updates=40_000, lr=1e-3), width=512)
BRIEF_DIFFUSION = Training(updates=100_000, lr=1e-3, ema=0.999)
BRIEF_WIDE = replace(BRIEF_DIFFUSION, updates=40_000)
"""For diffusion policies with more than a thousand units per layer, which are slow."""
IMAGE_NETWORK = Network(width=256, depth=1, activation="relu", image=(2, 64, 64))
EXTERNAL_NETWORK = Network(width=512, depth=2)
IMAGE_GUIDE = replace(BRIEF_GUIDE, training=Training(updates=10_000, lr=1e-3), width=256)


def brief_presets() -> Entries:
    """For every task, a minute on a GPU or tens of minutes on two cores: the paper's networks and λ, our schedules."""
    shorter = "fewer updates with a higher learning rate"
    plain, guided = f"Ours: the paper's network, {shorter}", f"Ours: the paper's network and λ, {shorter}"
    for task, column in APPENDIX.items():
        bc = replace(column.bc(), training=BRIEF_POLICY)
        yield f"{task}/bc/brief", Preset(bc, f"{plain}.")
        dbc = replace(column.dbc(released=True), training=BRIEF_POLICY, guide=BRIEF_GUIDE)
        yield f"{task}/dbc/brief", Preset(dbc, f"{guided}, a smaller guide.")
        yield f"{task}/ibc/brief", Preset(replace(column.ibc(), training=BRIEF_OTHER), f"{plain}.")
        langevin = IBCLangevin(normalisation=column.normalisation)
        yield f"{task}/ibc-langevin/brief", Preset(langevin, "Ours: the paper has no such method.")
        diffusion = column.diffusion_policy()
        training = BRIEF_WIDE if diffusion.width > 1000 else BRIEF_DIFFUSION
        diffusion = replace(diffusion, training=training, sampler="dpm-solver++")
        yield f"{task}/diffusion-policy/brief", Preset(diffusion, f"{plain}, averaged weights.")
        yield from later_presets(task, column.network, diffusion.width, training, column.normalisation)
    for task in ("maze", "fetch-pick"):
        for name, method in other_guides(task).items():
            training, guide = method.guide.training, method.guide
            before = guide.trained == "before"
            training = replace(BRIEF_OTHER, clip=training.clip) if before else replace(training, lr=BRIEF_POLICY.lr)
            policy = replace(method.training, updates=BRIEF_POLICY.updates, lr=BRIEF_POLICY.lr)
            method = replace(method, training=policy, guide=replace(guide, training=training))
            yield f"{task}/dbc/brief-{name}", Preset(method, f"{guided}.")
            yield f"{task}/bc/brief-{name}", Preset(bc_beside(method), f"{plain}; as that of the guide's policies.")
    ours, spiral = "Ours: the paper gives no settings for this task.", Network(width=256, depth=2)
    yield "spiral/bc/brief", Preset(BC(training=BRIEF_POLICY, network=spiral), ours)
    dbc = DBC(training=BRIEF_POLICY, network=spiral, coefficient=1.0, away=0.0, guide=BRIEF_GUIDE)
    yield "spiral/dbc/brief", Preset(dbc, ours)
    yield from later_presets("spiral", spiral, 256, BRIEF_DIFFUSION)
    for task in EXTERNAL:
        yield f"{task.name}/bc/brief", Preset(BC(training=BRIEF_POLICY, network=EXTERNAL_NETWORK), ours)
        dbc = DBC(training=BRIEF_POLICY, network=EXTERNAL_NETWORK, coefficient=1.0, away=0.0, guide=BRIEF_GUIDE)
        yield f"{task.name}/dbc/brief", Preset(dbc, ours)
        yield f"{task.name}/ibc/brief", Preset(IBC(training=BRIEF_OTHER), ours)
        diffusion = DiffusionPolicy(training=BRIEF_DIFFUSION, width=512, predicts="noise")
        yield f"{task.name}/diffusion-policy/brief", Preset(diffusion, ours)
        yield from later_presets(task.name, EXTERNAL_NETWORK, 512, BRIEF_DIFFUSION)
    images = Training(updates=1_000, lr=5e-4)
    yield "car-racing/bc/brief", Preset(BC(training=images, network=IMAGE_NETWORK), ours)
    dbc = DBC(
        training=images,
        network=IMAGE_NETWORK,
        coefficient=30.0,
        away=0.0,
        gate="sample",
        guide=IMAGE_GUIDE,
        encoder=Encoder(),
    )
    source = f"{ours} The hinge is on each pair: a hinge on batch means has no gradient here."
    yield "car-racing/dbc/brief", Preset(dbc, source)


def later_presets(
    task: str, network: Network, width: int, flow: Training, normalisation: Normalisation = "z-score"
) -> Entries:
    """`brief` of methods that are later than the paper: the networks and schedules of BC and Diffusion Policy."""
    source = "Ours: the method is later than the paper. Network and schedule are those of {} here."
    beside_bc, beside_diffusion = source.format("BC"), source.format("Diffusion Policy")
    gmm = BCGMM(training=BRIEF_OTHER, network=network, normalisation=normalisation)
    yield f"{task}/bc-gmm/brief", Preset(gmm, beside_bc)
    mip = MIP(training=replace(BRIEF_OTHER, ema=0.999), network=network, normalisation=normalisation)
    yield f"{task}/mip/brief", Preset(mip, f"{beside_bc} The weights are averaged, as in its paper.")
    flow_matching = FlowMatching(training=flow, width=width, normalisation=normalisation)
    yield f"{task}/flow-matching/brief", Preset(flow_matching, beside_diffusion)


MAZE = APPENDIX["maze"]
DEMO_POLICY = Training(updates=6_400, lr=1e-3, eps=1e-12)


def best_and_demo_presets() -> Entries:
    """`best`, from an ablation on validation starts (docs/results.md), and `demo`, for `diffclone demo`."""
    brief = dict(brief_presets())
    source = "Ours: fewer updates with a higher learning rate were better on validation starts (docs/results.md)."
    yield "maze/bc/best", Preset(replace(MAZE.bc(), training=replace(BRIEF_POLICY, updates=10_000)), source)
    yield "fetch-pick/bc/best", Preset(brief["fetch-pick/bc/brief"].method, "Ours: the brief schedule.")
    source = "Ours: the best of an ablation on validation starts (docs/results.md), with guidance near expert states."
    for task, coefficient in (("maze", 3.0), ("fetch-pick", 2.0)):
        method = replace(brief[f"{task}/dbc/brief"].method, coefficient=coefficient, away=1.0)
        yield f"{task}/dbc/best", Preset(method, source)
    yield "maze/bc/demo", Preset(BC(training=DEMO_POLICY, network=MAZE.network), "Ours: a minute on two cores.")
    guide = DiffusionGuide(training=Training(updates=12_000, lr=1e-3))
    dbc = DBC(training=DEMO_POLICY, network=MAZE.network, coefficient=3.0, away=0.0, guide=guide)
    source = "Ours: minutes on two cores; λ = 3 was better than 10 on validation starts (three seeds)."
    yield "maze/dbc/demo", Preset(dbc, source)


def small_presets() -> Entries:
    """For every `brief` preset without images, one that a machine without a GPU trains in minutes."""
    for key, method in small_methods({key: preset.method for key, preset in brief_presets()}):
        yield key, Preset(method, SMALL_SOURCE)


ALL_PRESETS = (*appendix_presets(), *brief_presets(), *best_and_demo_presets(), *small_presets())


def with_z_scores(preset: Preset) -> Preset:
    """Return the preset with the released code's z-scores instead of the default of a method, which is later."""
    if preset.method.normalisation != Method.normalisation:
        return preset
    return replace(preset, method=replace(preset.method, normalisation="z-score"))


PRESETS: Registry[Preset] = Registry(
    "preset",
    {name: with_z_scores(preset) for name, preset in ALL_PRESETS},
)


def preset(task: str | None, method: str, name: str | None) -> Method[Any]:
    """Return the settings of a preset, or the method's defaults if no name is given."""
    default = METHODS[method]  # an unknown method is reported as such
    if name is None:
        return default()
    tasks: dict[str, list[str]] = {}
    for of_task, of_method, own in (key.rsplit("/", 2) for key in PRESETS):
        if of_method == method:
            tasks.setdefault(own, []).append(of_task)
    known = [own for own in tasks if task is None or task in tasks[own]]
    place = method if task is None else f"{method} for {task}"
    if not known:
        raise UnknownName(f"there are no presets of {place}. Leave out --preset {name}.")
    if name not in known:
        raise UnknownName(describe_unknown("preset", name, sorted(known), of=f" of {place}"))
    if task is None:
        raise InvalidSettings(f"--preset {name} needs --task NAME; tasks that have it: {', '.join(tasks[name])}.")
    return PRESETS[f"{task}/{method}/{name}"].method


PREFERENCE: dict[SettingsSource, tuple[str, ...]] = {
    "ours": ("best", "brief"),
    "paper": ("paper", "brief"),
    "release": ("release", "paper", "brief"),
    "small": ("small", "brief"),
}
"""The presets of each source, best first. Where the paper gives no settings for a task, ours are used."""


def preset_name(variant: Variant, source: SettingsSource) -> str:
    """Return the key of a variant's settings in PRESETS."""
    preferred = (variant.preset,) if variant.preset and source == "ours" else PREFERENCE[source]
    suffix = f"-{variant.guide}" if variant.guide else ""
    names = [f"{variant.task}/{variant.method}/{name}{suffix}" for name in preferred]
    return next((name for name in names if name in PRESETS), names[-1])


def variant_method(variant: Variant, options: RunOptions) -> Method[Any]:
    """Return the method of a variant with its settings."""
    method = replace_fields(PRESETS[preset_name(variant, options.source)].method, variant.overrides)
    return shorten_training(method) if options.quick else method


QUICK_UPDATES = 64


def shorten_training(model: Any) -> Any:
    """Return the same model with very few updates, and with a fast choice of actions."""
    values = {field.name: getattr(model, field.name) for field in fields(model)}
    parts = {name: shorten_training(value) for name, value in values.items() if isinstance(value, Model)}
    model = replace(model, training=replace(model.training, updates=QUICK_UPDATES), **parts)
    if isinstance(model, IBC):
        return replace(model, counter_examples=8, samples=64)
    return replace(model, sampler="ddim", calls=2) if isinstance(model, DiffusionPolicy) else model
