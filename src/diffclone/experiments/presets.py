"""Settings that belong to a task, each with its source.

`paper` is what the paper prints: its appendix, and Equation 5 with t uniform. `release` is the released code's
configuration: the hinge on batch means, t antithetic. What the paper leaves open (normalisation, the limit on the
gradient, Adam's ε) follows the released code in both. `brief`, `best` and `demo` are ours.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC, METHODS
from diffclone.model import Method, Normalisation, Training
from diffclone.nn import Network
from diffclone.registry import Registry


@final
@dataclass(frozen=True)
class Preset:
    """A method ready to train, and where its numbers come from."""

    method: Method[Any]
    source: str


@final
@dataclass(frozen=True)
class Appendix:
    """A task's column of the paper's tables of hyper-parameters."""

    pairs: int
    """Of the paper's demonstrations: an epoch is a pass over them."""
    network: Network
    epochs: int
    lr: float
    coefficient: float
    guide_epochs: int
    guide_lr: float
    guide_width: int
    guide_batch: int = 128
    release_lr: float | None = None
    """DBC's in the released configuration, where it differs."""
    release_guide_batch: int = 128
    normalisation: Normalisation = "z-score"

    def policy(self, *, released: bool = False) -> Training:
        """The released policy loop drops the last partial batch of an epoch."""
        lr = self.release_lr if released and self.release_lr else self.lr
        return Training(updates=self.epochs * (self.pairs // 128), lr=lr, eps=1e-12)

    def guide(self, *, released: bool) -> DiffusionGuide:
        """The released guide loop keeps it."""
        batch = self.release_guide_batch if released else self.guide_batch
        updates = self.guide_epochs * -(-self.pairs // batch)
        training = Training(updates=updates, batch=batch, lr=self.guide_lr, decay="constant")
        t_sampling = "antithetic" if released else "uniform"
        return DiffusionGuide(training=training, width=self.guide_width, conditioning="table", t_sampling=t_sampling)

    def bc(self) -> BC:
        """The paper's and the released code's agree."""
        return BC(training=self.policy(), network=self.network, normalisation=self.normalisation)

    def dbc(self, *, released: bool) -> DBC:
        """The two differ in the gate, in t, and in a few numbers."""
        return DBC(
            training=self.policy(released=released),
            network=self.network,
            coefficient=self.coefficient,
            gate="batch" if released else "sample",
            guide=self.guide(released=released),
            normalisation=self.normalisation,
        )


APPENDIX: dict[str, Appendix] = {
    "maze": Appendix(18_525, Network(width=256, depth=3), 2000, 5e-5, 30.0, 8000, 1e-4, 128),
    "fetch-pick": Appendix(10_000, Network(width=750, depth=2), 5000, 5e-6, 0.5, 10_000, 1e-3, 1024),
    "hand-rotate": Appendix(10_000, Network(width=512, depth=2), 5000, 1e-4, 10.0, 10_000, 3e-5, 2048),
    "cheetah": Appendix(5000, Network(width=256, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024, release_lr=2e-4),
    "walker": Appendix(5000, Network(width=1024, depth=2), 1000, 1e-4, 0.2, 8000, 2e-4, 1024),
    "ant-reach": Appendix(
        25_000, Network(width=1024, depth=2), 10_000, 6e-3, 1.0, 20_000, 2e-4, 1024, guide_batch=1024,
        normalisation="none",
    ),
}  # fmt: skip


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


BRIEF_POLICY = Training(updates=20_000, lr=1e-3, eps=1e-12)
BRIEF_GUIDE = DiffusionGuide(training=Training(updates=40_000, lr=1e-3), width=512)
PIXELS = Network(width=256, depth=1, activation="relu", image=(2, 64, 64))
PIXEL_GUIDE = replace(BRIEF_GUIDE, training=Training(updates=3_000, lr=1e-3), image=(2, 64, 64), pool=8)


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
            guide=BRIEF_GUIDE,
            normalisation=column.normalisation,
        )
        yield f"{task}/dbc/brief", Preset(dbc, f"{about} and λ, fewer and larger updates, a smaller guide.")
    ours = "Ours: the paper gives no settings for this task."
    spiral = Network(width=256, depth=2)
    yield "spiral/bc/brief", Preset(BC(training=BRIEF_POLICY, network=spiral), ours)
    yield "spiral/dbc/brief", Preset(DBC(training=BRIEF_POLICY, network=spiral, guide=BRIEF_GUIDE), ours)
    pixels = Training(updates=1_000, lr=5e-4)
    yield "car-racing/bc/brief", Preset(BC(training=pixels, network=PIXELS), ours)
    dbc = DBC(training=pixels, network=PIXELS, coefficient=30.0, gate="sample", guide=PIXEL_GUIDE)
    yield (
        "car-racing/dbc/brief",
        Preset(dbc, f"{ours} The hinge is on each pair: of batch means it is always shut here."),
    )


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
        "maze/dbc/best": Preset(
            MAZE.dbc(released=True),
            "The best of twelve on validation starts (docs/results.md): the released code's own.",
        ),
        "maze/bc/demo": Preset(BC(training=DEMO_POLICY, network=MAZE.network), "Ours: a minute on two cores."),
        "maze/dbc/demo": Preset(
            DBC(
                training=DEMO_POLICY,
                network=MAZE.network,
                coefficient=3.0,
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
