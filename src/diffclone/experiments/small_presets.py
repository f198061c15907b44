"""`small` presets: networks and schedules that one CPU core trains with ten seeds in minutes.

    policies           256 wide, two hidden layers, 4,000 updates
    diffusion policy   256 wide, 8,000 updates
    guides             8,000 updates before the policy; 256 wide if they are diffusion models
    energy             16 counter-examples, 4,000 updates
    GAN                12,000 updates beside its policy: as many as another guide and its policy together

The rest, λ included, is that of the `brief` presets.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from diffclone.model import Method
from diffclone.training.members import replace_fields

UPDATES = 4_000
DIFFUSION_UPDATES = 8_000
"""Of diffusion models, as policies or guides, and of VAEs."""
NETWORK = {"network.width": 256, "network.depth": 2}
FIELDS: dict[str, Mapping[str, Any]] = {
    "bc": NETWORK,
    "dbc": {**NETWORK, "guide.width": 256, "guide.training.updates": DIFFUSION_UPDATES},
    "diffusion-policy": {"width": 256},
    "flow-matching": {"width": 256},
    "ibc": {**NETWORK, "counter_examples": 16, "samples": 256},
    "mip": NETWORK,
    "bc-gmm": NETWORK,
}
"""By method: what differs from `brief`, apart from the updates of the policy."""
OTHER_GUIDES: dict[str, Mapping[str, Any]] = {
    "energy": {**NETWORK, "guide.counter_examples": 16, "guide.training.updates": UPDATES},
    "vae": {**NETWORK, "guide.training.updates": DIFFUSION_UPDATES},
    "gan": {**NETWORK, "training.updates": DIFFUSION_UPDATES + UPDATES},
}
SLOW = ("diffusion-policy", "flow-matching")
"""Methods that learn a diffusion model or a flow, which needs more updates."""
IMAGES = "car-racing"
"""Its `brief` presets have few updates already."""
SOURCE = "Ours: `brief` with small networks and few updates, for a machine without a GPU."


def shrink(key: str, method: Method[Any]) -> Method[Any] | None:
    """Return the small form of a `brief` preset, "task/method/brief" or "task/method/brief-guide"; None if none."""
    task, name, preset = key.rsplit("/", 2)
    guide = preset.removeprefix("brief").removeprefix("-")
    if name not in FIELDS or task == IMAGES:
        return None
    updates = {"training.updates": DIFFUSION_UPDATES if name in SLOW else UPDATES}
    own = FIELDS[name]
    if guide:
        own = OTHER_GUIDES[guide] if name == "dbc" else {**NETWORK, **pick_updates(OTHER_GUIDES[guide])}
    return replace_fields(method, {**updates, **own})


def pick_updates(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the updates of the policy, if they are among the values."""
    return {name: value for name, value in values.items() if name == "training.updates"}


def small_methods(brief: Mapping[str, Method[Any]]) -> Iterator[tuple[str, Method[Any]]]:
    """Return the small form of each `brief` preset that has one, with its key."""
    for key, method in brief.items():
        if (small := shrink(key, method)) is not None:
            yield key.replace("/brief", "/small"), small
