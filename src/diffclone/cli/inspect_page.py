"""What the page of `diffclone inspect` shows, computed from the demonstrations."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.data.inspection.findings import has_images, sample_rows
from diffclone.data.inspection.overview import compare_profiles, map_states
from diffclone.reports.episode_player import PlayedEpisode
from diffclone.reports.inspection import InspectionPage, inspection_page
from diffclone.reports.inspection_figures import Dimension

HISTOGRAM_ROWS, HISTOGRAM_IMAGES = 50_000, 200
MAP_STATES = 1500
"""States on the map, apart from those of the episodes to step through."""
UNUSUAL_EPISODES = 2

Values = npt.NDArray[np.float32]


def make_inspection_page(
    name: str,
    demos: Demonstrations,
    *,
    about: Mapping[str, str],
    findings: Sequence[Sequence[str]],
    ranges: Sequence[Sequence[str]],
    ranking: tuple[Sequence[str], Sequence[Sequence[str]]],
    order: npt.NDArray[np.int64],
    scores: npt.NDArray[np.float64],
) -> str:
    """Render the page; `order` has the episodes, the most unusual first, and `ranking` their table."""
    chosen = np.sort(np.random.default_rng(0).permutation(demos.num_steps)[:HISTOGRAM_ROWS])
    # All pixels share one histogram.
    images = has_images(demos)
    obs = demos.obs[chosen[:HISTOGRAM_IMAGES]].reshape(-1, 1) if images else demos.obs[chosen]
    places, method, episodes = map_and_episodes(demos, order)
    return inspection_page(
        InspectionPage(
            name=name,
            about=about,
            facts=[
                (f"{demos.num_episodes:,}", "episodes"),
                (f"{demos.num_steps:,}", "steps"),
                (f"{demos.obs.shape[1]:,}", "pixels" if images else "observations"),
                (f"{demos.act.shape[1]:,}", "actions"),
            ],
            findings=findings,
            ranges=ranges,
            ranking=ranking[1],
            ranking_columns=ranking[0],
            samples={"obs": obs.astype(np.float32), "act": demos.act[chosen]},
            bounds=demos.action_bounds,
            lengths=demos.lengths,
            scores=scores,
            places=places,
            map_method=method,
            profiles=[
                Dimension(found.name, found.low, found.median, found.high, found.lines)
                for found in compare_profiles(demos, [int(e) for e in order[:UNUSUAL_EPISODES]])
            ],
            episodes=episodes,
            source=json.dumps(dict(demos.meta), indent=1, default=str),
        )
    )


def map_and_episodes(
    demos: Demonstrations, order: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], str, list[PlayedEpisode]]:
    """Return places of states, how the map was made, and the episodes to step through."""
    names = {int(e): f"episode {e}, number {k} of the most unusual" for k, e in enumerate(order[:UNUSUAL_EPISODES], 1)}
    for k, word in ((len(order) // 2, "in the middle of the ranking"), (len(order) - 1, "the most usual")):
        names.setdefault(int(order[k]), f"episode {order[k]}, {word}")
    ends, lengths = demos.episode_ends, demos.lengths
    steps = {e: np.arange(ends[e] - lengths[e], ends[e]) for e in names}
    every = sample_rows(demos.num_steps, MAP_STATES)
    found, method = map_states(demos, np.concatenate([every, *steps.values()]))
    places = np.split(found, np.cumsum([len(every), *map(len, steps.values())])[:-1])
    unit, scaled = scale_observations(demos, list(steps.values()))
    return (
        places[0],
        method,
        [
            PlayedEpisode(name, e, k < UNUSUAL_EPISODES, scaled[k], demos.act[steps[e]], places[k + 1], unit)
            for k, (e, name) in enumerate(names.items())
        ],
    )


def scale_observations(demos: Demonstrations, parts: Sequence[npt.NDArray[np.int64]]) -> tuple[str, list[Values]]:
    """Return a unit in which all observations fit in one panel, and the observations at some steps in it."""
    if has_images(demos):
        return "mean brightness", [demos.obs[steps].mean(1, keepdims=True).astype(np.float32) for steps in parts]
    mean, std = demos.obs.mean(0, dtype=np.float64), demos.obs.std(0, dtype=np.float64)
    scale = np.where(std > 0, std, 1)
    scaled = [((demos.obs[steps] - mean) / scale).astype(np.float32) for steps in parts]
    return "in standard deviations of all demonstrations", scaled
