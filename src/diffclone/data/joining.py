"""Which demonstrations can be used together: those whose columns mean the same."""

import json
from typing import Any

from diffclone.errors import InvalidData


def check_same_columns(purpose: str, first: Any, second: Any) -> None:
    """Raise `InvalidData` if sizes differ, or the images or the named parts that both sets of demonstrations have."""
    sizes = [f"obs {d.layout or f'{d.obs.shape[1]} ({d.obs.dtype})'}, act {d.act.shape[1]}" for d in (first, second)]
    if sizes[0] != sizes[1]:
        raise InvalidData(
            f"demonstrations of different sizes cannot be {purpose}: {sizes[0]}, and {sizes[1]}. "
            "Both must be of one task."
        )
    for entry, what in (("image", "images"), ("observation_keys", "parts of observations")):
        known = [json.dumps(d.meta[entry]) for d in (first, second) if d.meta.get(entry)]
        if len({*known}) > 1:
            raise InvalidData(
                f"demonstrations with different {what} cannot be {purpose}: {known[0][:80]}, and {known[1][:80]}. "
                "Read both with the same --obs-keys, in the same order."
            )
