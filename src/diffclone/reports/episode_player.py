"""A slider through episodes: the numbers that `player.js` draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.reports.page import Player

Points = npt.NDArray[np.floating]

MOST_STEPS = 240
"""Steps of an episode on the page; longer ones are thinned out."""
MOST_LINES = 6
"""Dimensions per panel: those that vary most."""
MAP_SIZE = 100
"""Width and height of the map."""


@final
@dataclass(frozen=True)
class PlayedEpisode:
    """An episode to step through."""

    name: str
    number: int
    unusual: bool
    """Whether it is one of the most unusual."""
    obs: Points
    act: Points
    places: Points
    """Of its states on the map."""
    obs_unit: str


def make_player(places: Points, episodes: Sequence[PlayedEpisode]) -> Player:
    """Return the slider; `places` are those of all states."""
    everything = np.concatenate([places, *(episode.places for episode in episodes)])
    low, high = everything.min(0), everything.max(0)
    size = np.where(high > low, high - low, 1)

    def on_map(points: Points) -> list[list[float]]:
        x = MAP_SIZE * (points - low) / size
        return np.round(np.stack([x[:, 0], MAP_SIZE - x[:, 1]], 1), 1).tolist()

    panels = [
        ("Observations, " + (episodes[0].obs_unit if episodes else ""), "obs", [e.obs for e in episodes]),
        ("Actions", "act", [e.act for e in episodes]),
    ]
    chosen = [choose_lines(values) for _, _, values in panels]
    data: dict[str, Any] = {
        "map": "".join(f"M{x:g} {y:g}h.01" for x, y in on_map(places)),
        "panels": [
            {"title": title, "names": [f"{short} {k}" for k in lines], "range": find_range(values, lines)}
            for (title, short, values), lines in zip(panels, chosen, strict=True)
        ],
        "episodes": [],
    }
    for k, episode in enumerate(episodes):
        steps = np.unique(np.linspace(0, len(episode.obs) - 1, min(MOST_STEPS, len(episode.obs))).round().astype(int))
        values = [
            [[float(f"{x:.4g}") for x in own[k][steps, line]] for line in lines]
            for (_, _, own), lines in zip(panels, chosen, strict=True)
        ]
        about = {"name": episode.name, "steps": steps.tolist(), "length": len(episode.obs) - 1}
        data["episodes"].append(about | {"values": values, "places": on_map(episode.places[steps])})
    return Player(data)


def choose_lines(values: Sequence[Points]) -> list[int]:
    """Return the dimensions that vary most, in their order."""
    if not values:
        return []
    spread = np.concatenate(list(values)).std(0)
    return np.sort(np.argsort(-spread, kind="stable")[:MOST_LINES]).tolist()


def find_range(values: Sequence[Points], lines: Sequence[int]) -> list[float]:
    """Return the lowest and the highest number of some dimensions."""
    if not values or not lines:
        return [0.0, 1.0]
    rows = np.concatenate(list(values))[:, list(lines)]
    return [float(f"{rows.min():.4g}"), float(f"{rows.max():.4g}")]
