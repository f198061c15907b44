"""Settings that belong to a task, each with its source. An epoch is a pass over the demonstrations of that source."""

from dataclasses import dataclass
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
MAZE_GUIDE = Training(updates=8000 * MAZE_GUIDE_EPOCH, lr=1e-4, decay="constant")
MAZE_NETWORK = Network(width=256, depth=3)
DEMO_POLICY = Training(updates=6_400, lr=1e-3, eps=1e-12)

PRESETS: Registry[Preset] = Registry(
    "preset",
    {
        "maze/bc/paper": Preset(
            BC(training=MAZE_POLICY, network=MAZE_NETWORK),
            "The paper's appendix: 4 linear layers of 256, 2000 epochs, lr 5e-5. Normalisation, gradient clip and "
            "Adam's eps are not in the paper and follow the released code.",
        ),
        "maze/bc/release": Preset(
            BC(training=MAZE_POLICY, network=MAZE_NETWORK), "The released code's configuration for Maze."
        ),
        "maze/dbc/paper": Preset(
            DBC(
                training=MAZE_POLICY,
                network=MAZE_NETWORK,
                coefficient=30.0,
                gate="sample",
                guide=DiffusionGuide(training=MAZE_GUIDE, width=128, t_sampling="uniform"),
            ),
            "The paper's appendix and its Equation 5: λ = 30, the hinge on each pair, t uniform. What the paper leaves "
            "open follows the released code.",
        ),
        "maze/dbc/release": Preset(
            DBC(
                training=MAZE_POLICY,
                network=MAZE_NETWORK,
                coefficient=30.0,
                gate="batch",
                guide=DiffusionGuide(training=MAZE_GUIDE, width=128, t_sampling="antithetic"),
            ),
            "The released code's configuration for Maze: the hinge on batch means, t antithetic.",
        ),
        "maze/dbc/best": Preset(
            DBC(
                training=MAZE_POLICY,
                network=MAZE_NETWORK,
                coefficient=30.0,
                gate="batch",
                guide=DiffusionGuide(training=MAZE_GUIDE, width=128, draws=4, t_sampling="stratified", t_high=500),
            ),
            "Ours, chosen on validation starts: four stratified draws of t < 500 a pair.",
        ),
        "maze/bc/demo": Preset(
            BC(training=DEMO_POLICY, network=MAZE_NETWORK), "Ours: sized for a laptop, a few minutes in all."
        ),
        "maze/dbc/demo": Preset(
            DBC(
                training=DEMO_POLICY,
                network=MAZE_NETWORK,
                coefficient=30.0,
                guide=DiffusionGuide(
                    training=Training(updates=12_000, lr=1e-3),
                    conditioning="sinusoidal",
                    t_sampling="stratified",
                    t_high=500,
                ),
            ),
            "Ours: sized for a laptop, a few minutes in all.",
        ),
    },
)


def preset(task: str | None, method: str, name: str | None) -> Method[Any]:
    """The settings of a preset, or the method's defaults where none is named."""
    if name is None:
        return METHODS[method]()
    METHODS[method]
    return PRESETS[f"{task}/{method}/{name}"].method
