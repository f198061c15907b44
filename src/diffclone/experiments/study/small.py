"""A small study, for a machine without a GPU: `diffclone reproduce tuning --small`.

                     study                          small study
tries per method     12 configurations × 6 lengths  2 configurations × 4 lengths
tuning               5 seeds × 24 starts            2 seeds × 12 starts
reported             16 fresh seeds                 8 fresh seeds or --seeds, at the chosen length only
networks             of the preset                  256 wide; guides 256 wide with 8,000 updates

The learning rate is the preset's, 1e-3. Records say that they are of a small study, and are never joined with others.
"""

from dataclasses import replace

from diffclone.experiments.small_presets import FIELDS
from diffclone.experiments.study.candidates import TUNED_METHODS, TunedMethod

SNAPSHOTS = (500, 1_000, 2_000, 4_000)
TUNING_SEEDS, FRESH_SEEDS = 2, 8
VALIDATION_EPISODES, LONG_VALIDATION_EPISODES = 12, 3
VALUES: dict[str, tuple[float, ...]] = {
    "state_noise": (0.0, 0.1),
    "coefficient": (0.3, 3.0),
    "noise": (0.05, 0.2),
    "training.weight_decay": (0.0, 0.1),
}
"""Values of the one field that a method tries: the first of these that it varies in the study."""


def shrink(key: str) -> TunedMethod:
    """Return a method of the study with few tries and small networks."""
    method = TUNED_METHODS[key]
    own = next(name for name in VALUES if name in method.vary)
    return replace(
        method,
        fields={**method.fields, **FIELDS[method.preset]},
        vary={own: VALUES[own]},
        apart={},
        lengths=SNAPSHOTS,
    )
