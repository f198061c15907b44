"""Divide demonstrations into a part to train on and a held-out part to choose settings with."""

import numpy as np

from diffclone.data import Demonstrations

SHARE = 0.2
"""Fraction of the episodes that is held out, at least one."""
FEW = 4
"""With fewer episodes, pieces of episodes are held out instead: a whole one would be too much to lose."""
PIECES = 10
"""Pieces that each of few episodes is cut into; every fifth is held out."""
SHORTEST = 5
"""Steps that a piece has at least."""


def hold_out(
    demos: Demonstrations, share: float = SHARE, *, seed: int = 0
) -> tuple[Demonstrations, Demonstrations] | None:
    """Return the part to train on and the held-out part; None if the demonstrations are too short to divide.

    With four or more episodes, whole episodes are held out at random. With fewer, each is cut into ten pieces of
    consecutive steps, of which two are held out; the pieces between them are trained on as episodes of their own.
    """
    if demos.num_episodes >= FEW:
        count = max(1, round(share * demos.num_episodes))
        return demos.split(count / demos.num_episodes, seed=seed)
    pieces = cut_episodes(demos)
    if pieces is None:
        return None
    chosen = [k for k in range(pieces.num_episodes) if k % 5 == 2]
    rest = [k for k in range(pieces.num_episodes) if k % 5 != 2]
    return pieces.take(rest), pieces.take(chosen)


def cut_episodes(demos: Demonstrations) -> Demonstrations | None:
    """Return demonstrations whose episodes are pieces of the original ones; None if they are too short for five."""
    ends: list[int] = []
    for end, length in zip(demos.episode_ends.tolist(), demos.lengths.tolist(), strict=True):
        pieces = max(1, min(PIECES, length // SHORTEST))
        ends += [end - length + round(length * (k + 1) / pieces) for k in range(pieces)]
    if len(ends) < 5:
        return None
    return Demonstrations(demos.obs, demos.act, np.array(ends, dtype=np.int64), dict(demos.meta))


def divide(
    demos: Demonstrations, fallback_updates: int
) -> tuple[tuple[Demonstrations, Demonstrations] | None, list[str]]:
    """Return the part to train on and the held-out part, None if there is nothing to choose with, and remarks."""
    fixed = f"training BC for {fallback_updates:,} updates instead."
    if not np.ptp(demos.act, axis=0).any():
        return None, [f"all actions are equal, so that there is nothing to choose; {fixed}"]
    parts = hold_out(demos)
    if parts is None:
        what = f"{demos.num_episodes} episode{'s' * (demos.num_episodes > 1)} with {demos.num_steps} steps"
        verb = "is" if demos.num_episodes == 1 else "are"
        return None, [f"{what} {verb} too few to hold any out, so that nothing can be chosen; {fixed}"]
    notes: list[str] = []
    if demos.num_episodes < FEW:
        notes.append(
            f"{demos.num_episodes} episode{'s' * (demos.num_episodes > 1)}: too few to hold out whole ones. Pieces of "
            "them are held out, which shows over-fitting less well."
        )
    if demos.obs.dtype == np.uint8:
        notes.append("observations are images: only BC is tried.")
    return parts, notes
