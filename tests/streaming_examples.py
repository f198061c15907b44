"""Small demonstrations in files, for tests of reading in blocks."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training
from diffclone.data import Streamed
from diffclone.data.formats import open_blocks
from diffclone.data.formats.options import NO_OPTIONS

MEMORY = 60_000
"""Bytes that leave room for some 370 of the pairs below."""
EVERY = 16
"""Updates after which a part of the buffer is replaced, fewer than in use."""
SHORT = Training(updates=64, batch=16, lr=1e-3)
NETWORK = Network(width=8, depth=1)
BC_SMALL = BC(training=SHORT, network=NETWORK)
LONGER = BC(training=replace(SHORT, updates=128), network=NETWORK)
DBC_SMALL = DBC(training=SHORT, network=NETWORK, guide=DiffusionGuide(training=SHORT, width=8, steps=20))


def make_demos(episodes: int = 60, seed: int = 0) -> Demonstrations:
    """Return episodes of 10 to 60 steps, whose pairs tell their episode."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(10, 60, episodes)
    obs = rng.standard_normal((lengths.sum(), 3)).astype(np.float32) + 5
    obs[:, 0] = np.repeat(np.arange(episodes), lengths)
    obs[:, 2] = 0.1  # a constant that float32 cannot represent
    return Demonstrations(obs, np.tanh(obs[:, :2] / 30), np.cumsum(lengths))


DEMOS = make_demos()


def write_shards(demos: Demonstrations, folder: Path, save: Callable[..., None] = np.savez, per_file: int = 7) -> Path:
    """Write a folder of npz files with some episodes each."""
    folder.mkdir()
    for number, first in enumerate(range(0, demos.num_episodes, per_file)):
        part = demos.take(range(first, min(first + per_file, demos.num_episodes)))
        save(folder / f"part-{number}.npz", obs=part.obs, act=part.act, episode_ends=part.episode_ends)
    return folder


def stream(path: Path | str, memory: int = MEMORY) -> Streamed:
    found = open_blocks(path, NO_OPTIONS, memory)
    assert isinstance(found, Streamed)
    return found
