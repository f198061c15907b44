"""Settings for data that no paper has settings for: sizes and schedules by the size of the problem and of the data.

width    = 256, 512 or 1024 for up to 16, 64 or more numbers in (s, a)
updates  = 150 passes over the data at batches of 128, within 5,000 … 50,000; twice that for a guide and an energy,
           five times for a diffusion policy, which are harder to learn than a policy's answer

These are the schedules that served the bundled tasks (docs/results.md), made a rule. λ sets itself (`methods/dbc.py`).
"""

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.methods import DBC
from diffclone.model import Method, Model, Training
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder

M = TypeVar("M", bound=Model[Any])

PASSES, FEWEST, MOST = 150, 5_000, 50_000
LONGER = {"guide": 2, "ibc": 2, "ibc-langevin": 1, "diffusion-policy": 5}
"""How many times the updates of a plain policy."""


def suggest(method: Method[Any], name: str, demos: Demonstrations) -> Method[Any]:
    """The method with sizes and schedules for these demonstrations."""
    updates = suggested_updates(demos.num_steps)
    sized = scaled(method, demos, updates * LONGER.get(name, 1))
    if not isinstance(sized, DBC):
        return sized
    guided = replace(sized, guide=scaled(sized.guide, demos, updates * LONGER["guide"]))
    if demos.obs.dtype != np.uint8:
        return guided
    return replace(guided, encoder=Encoder(network=replace(guided.network, width=256)))


def suggested_updates(steps: int) -> int:
    """Of a plain policy."""
    return min(max(PASSES * steps // 128, FEWEST), MOST)


def suggested_width(size: int) -> int:
    """Of a hidden layer."""
    return 256 if size <= 16 else 512 if size <= 64 else 1024


def scaled(model: M, demos: Demonstrations, updates: int) -> M:
    """The same model with another width and schedule."""
    pictures = demos.obs.dtype == np.uint8
    width = suggested_width((32 if pictures else demos.obs.shape[1]) + demos.act.shape[1])
    known = {field.name: getattr(model, field.name) for field in fields(model)}
    changes: dict[str, Any] = {"training": replace(model.training, updates=updates, lr=rate(model.training, width))}
    if "width" in known:
        changes["width"] = width
    if "network" in known:
        network: Network = known["network"]
        depth = network.depth if width == 256 else min(network.depth, 2)
        changes["network"] = replace(network, width=max(width, network.width), depth=depth, image=picture_size(demos))
    return replace(model, **changes)


def rate(training: Training, width: int) -> float:
    """The learning rate of a brief schedule; wide networks bear less."""
    return 1e-3 if width <= 512 else 5e-4


def picture_size(demos: Demonstrations) -> tuple[int, int, int] | None:
    """Channels, height and width of observations that are pictures."""
    if demos.obs.dtype != np.uint8:
        return None
    image = demos.meta.get("image")
    if image is None:
        raise InvalidSettings(
            f"observations are pictures of {demos.obs.shape[1]} bytes whose sides are not known; put "
            'meta["image"] = [channels, height, width] into the demonstrations, or name a --preset.'
        )
    channels, height, width = (int(side) for side in image)
    return channels, height, width
