"""Choose sizes and schedules that fit the demonstrations, for settings that the user did not set.

width    = 256, 512 or 1024 for up to 16, 64 or more numbers in one step (s, a), where an image counts as 32; that of
           a `network` is at least its default
pool     = the largest side up to 8 of squares that an image divides into, for an encoder
updates  = 50 passes over the data with batches of 128, between 3,000 and 30,000, times `Model.update_factor`

Longer trainings did not score better in the tuning study (docs/training.md): most settings are best at 1,000 to 4,000
updates. `fit` and `diffclone train` both use this.
"""

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from diffclone.data import AnyDemonstrations
from diffclone.errors import InvalidSettings
from diffclone.model import Model
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder

M = TypeVar("M", bound=Model[Any])

PASSES, MIN_UPDATES, MAX_UPDATES = 50, 3_000, 30_000


def suggest(model: M, demos: AnyDemonstrations) -> M:
    """Return the model with sizes and schedules for these demonstrations, and so for the models in its fields.

    Only fields that still hold the default object of their class are changed: `training` (updates and learning rate),
    `network`, `width`, and `encoder` if observations are images. Values that the user set are kept.
    """
    changes: dict[str, Any] = {}
    values: dict[str, Any] = {field.name: getattr(model, field.name) for field in fields(model)}
    unset = {field.name for field in fields(model) if values[field.name] is field.default}
    images, factor = demos.obs.dtype == np.uint8, model.update_factor
    state = 0 if demos.layout is None else demos.layout.numbers
    width = suggested_width((32 + state if images else demos.obs.shape[1]) + demos.act.shape[1])
    if factor and "training" in unset:
        updates = factor * suggested_updates(demos.num_steps)
        changes["training"] = replace(model.training, updates=updates, lr=1e-3 if width <= 512 else 5e-4)
    if factor and "width" in unset:
        changes["width"] = width
    if factor and "network" in unset:
        network: Network = values["network"]
        depth = network.depth if width == 256 else min(network.depth, 2)
        image = {"image": image_size(demos), "state": state}
        changes["network"] = replace(network, width=max(width, network.width), depth=depth, **image)
    if images and "encoder" in unset:
        network = replace(changes.get("network", values["network"]), width=256, dropout=0.0)
        common = math.gcd(*network.image[1:]) if network.image else 0
        pool = max(side for side in range(1, Encoder.pool + 1) if common % side == 0)
        changes["encoder"] = Encoder(network=network, pool=pool)
    changes |= {name: suggest(value, demos) for name, value in values.items() if isinstance(value, Model)}
    return replace(model, **changes)


def shorten_parts(model: M, planned: M, given: Collection[str]) -> tuple[M, dict[str, int]]:
    """Return a model with fewer updates than `planned`, and with parts that are shortened in proportion.

    Parts in `given`, whose updates are set, stay as they are. The second value has the new updates of the others.
    """
    share = model.training.updates / planned.training.updates
    parts: dict[str, Any] = {name: part for name, part in model.needs().items() if part.trained == "before"}
    changed = {
        name: max(1, round(share * part.training.updates))
        for name, part in parts.items()
        if share < 1 and name not in given and getattr(model, name, None) is part
    }
    shorter = {
        name: replace(part, training=replace(part.training, updates=n))
        for name, part in parts.items()
        if (n := changed.get(name))
    }
    return replace(model, **shorter), changed


def suggested_updates(steps: int) -> int:
    """Return the updates of plain behavioural cloning."""
    return min(max(PASSES * steps // 128, MIN_UPDATES), MAX_UPDATES)


def suggested_width(size: int) -> int:
    """Return the width of a hidden layer for pairs of this many numbers."""
    return 256 if size <= 16 else 512 if size <= 64 else 1024


def image_size(demos: AnyDemonstrations) -> tuple[int, int, int] | None:
    """Return channels, height and width of observations that are images, else None."""
    if demos.obs.dtype != np.uint8:
        return None
    image = demos.meta.get("image")
    if image is None:
        raise InvalidSettings(
            f"observations are images of {demos.obs.shape[1]} bytes with unknown sides; put "
            'meta["image"] = [channels, height, width] into the demonstrations, or use a --preset.'
        )
    channels, height, width = (int(side) for side in image)
    return channels, height, width
