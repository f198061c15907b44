"""Settings that belong to a task, each with its source. An epoch is a pass over the demonstrations of that source."""

from dataclasses import dataclass, replace
from typing import Any, final

from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC, METHODS
from diffclone.model import Method, Training
from diffclone.nn import Network
from diffclone.registry import Registry

MAZE_POLICY_EPOCH, MAZE_GUIDE_EPOCH = 144, 145
"""Updates of 128 over 18,525 pairs: the released policy loop drops the last partial batch, the guide's keeps it."""


@final
@dataclass(frozen=True)
class Preset:
    """A method ready to train, and where its numbers come from."""

    method: Method[Any]
    source: str


MAZE_POLICY = Training(updates=2000 * MAZE_POLICY_EPOCH, lr=5e-5, eps=1e-12)
MAZE_NETWORK = Network(width=256, depth=3)
DEMO_POLICY = Training(updates=6_400, lr=1e-3, eps=1e-12)

MAZE_GUIDE = DiffusionGuide(
    training=Training(updates=8000 * MAZE_GUIDE_EPOCH, lr=1e-4, decay="constant"), width=128, conditioning="table"
)
MAZE_BC = BC(training=MAZE_POLICY, network=MAZE_NETWORK)
MAZE_RELEASE = DBC(training=MAZE_POLICY, network=MAZE_NETWORK, coefficient=30.0, gate="batch", guide=MAZE_GUIDE)
MAZE_PAPER = replace(MAZE_RELEASE, gate="sample", guide=replace(MAZE_GUIDE, t_sampling="uniform"))
MAZE_DEMO_GUIDE = DiffusionGuide(training=Training(updates=12_000, lr=1e-3))

PRESETS: Registry[Preset] = Registry(
    "preset",
    {
        "maze/bc/paper": Preset(
            MAZE_BC,
            "The paper's appendix: 4 linear layers of 256, 2000 epochs, lr 5e-5. Normalisation, gradient clip and "
            "Adam's eps are not in the paper and follow the released code.",
        ),
        "maze/bc/release": Preset(MAZE_BC, "The released code's configuration for Maze."),
        "maze/bc/best": Preset(
            replace(MAZE_BC, training=Training(updates=10_000, lr=1e-3, eps=1e-12)),
            "Ours: fewer, larger updates were better than the paper's on validation starts (docs/results.md).",
        ),
        "maze/dbc/paper": Preset(
            MAZE_PAPER,
            "The paper's appendix and its Equation 5: λ = 30, the hinge on each pair, t uniform. What the paper leaves "
            "open follows the released code.",
        ),
        "maze/dbc/release": Preset(
            MAZE_RELEASE, "The released code's configuration for Maze: the hinge on batch means, t antithetic."
        ),
        "maze/dbc/best": Preset(
            MAZE_RELEASE, "The best of twelve on validation starts (docs/results.md): the released code's own."
        ),
        "maze/bc/demo": Preset(BC(training=DEMO_POLICY, network=MAZE_NETWORK), "Ours: a minute on two cores."),
        "maze/dbc/demo": Preset(
            DBC(training=DEMO_POLICY, network=MAZE_NETWORK, coefficient=3.0, guide=MAZE_DEMO_GUIDE),
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
