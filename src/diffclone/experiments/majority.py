"""How many-valued demonstrations are: does a kind of state have one kind of action?

    states and actions are clustered apart, raw, by k-means with k = 10
    n_ij   = pairs whose state is in cluster i and whose action is in cluster j
    ratio  = Σ_i max_j n_ij / Σ_ij n_ij          1: one kind of action a kind of state;  1/k: any

The paper's table leaves open how clusters are weighted and whether features are standardised; raw features weighted by
size are what repeats its numbers on the authors' own files.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diffclone.data import Demonstrations
from diffclone.errors import MissingPackage

CLUSTERS = 10
SEEDS = 5


def majority_ratio(states: npt.NDArray[np.int64], actions: npt.NDArray[np.int64]) -> float:
    """Of labels, one a pair."""
    counts = np.zeros((states.max() + 1, actions.max() + 1))
    np.add.at(counts, (states, actions), 1)
    return float(counts.max(1).sum() / counts.sum())


def cluster(values: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.int64]:
    """A label a row."""
    try:
        from sklearn.cluster import KMeans
    except ImportError:
        raise MissingPackage("k-means needs scikit-learn. Try: pip install 'diffclone[report]'.") from None
    means: Any = KMeans(CLUSTERS, random_state=seed)
    return means.set_params(n_init=10).fit_predict(values).astype(np.int64)


def majority_ratios(
    demos: Demonstrations,
    seeds: Sequence[int] = range(SEEDS),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, float]:
    """The mean ratio, the least and the most over some seeds of k-means."""
    ratios: list[float] = []
    for seed in seeds:
        labels = (cluster(np.asarray(values, dtype=np.float64), seed) for values in (demos.obs, demos.act))
        ratios.append(majority_ratio(*labels))
        progress(len(ratios), len(seeds))
    return {"ratio": float(np.mean(ratios)), "least": min(ratios), "most": max(ratios)}
