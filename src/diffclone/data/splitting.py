"""Random division of episodes, the same for demonstrations in memory and in files."""

import numpy as np

from diffclone.errors import InvalidData


def split_episodes(count: int, fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide episodes 0 … count - 1 at random: all but `fraction` of them, and that fraction, both in order."""
    held_out = round(fraction * count)
    if not 0 < held_out < count:
        raise InvalidData(
            f"a split of {fraction:g} of {count} episodes leaves one side empty; use more episodes or another fraction."
        )
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[held_out:]).tolist(), np.sort(order[:held_out]).tolist()


def check_fraction(fraction: float, by: str) -> None:
    """Raise `InvalidData` for a fraction, or for something that cannot be subsampled."""
    if not 0 < fraction <= 1:
        raise InvalidData(f"fraction must be above 0 and at most 1; it is {fraction:g}.")
    if by not in ("episode", "transition"):
        raise InvalidData(f"by must be 'episode' or 'transition'; it is {by!r}.")
