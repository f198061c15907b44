"""How good the bundled experts are, on the starts that policies are evaluated on; a Record keeps the result."""

import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np

from diffclone.errors import InvalidSettings
from diffclone.evaluation import START_SEEDS
from diffclone.records import Record
from diffclone.statistics import mean_interval
from diffclone.tasks import Task
from diffclone.tasks.expert import Episode, Expert, play

BUNDLED = Path(str(resources.files("diffclone.assets") / "experts.jsonl"))
"""A Record for each bundled expert."""


def score_expert(
    task: Task,
    expert: Expert,
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Record:
    """Episodes from evaluation starts, in the environment as policies meet it."""
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be played; {episodes} were asked for.")
    begun = time.monotonic()
    env = task.make(1)
    expert.attach(env)
    played: list[Episode] = []
    for k in range(episodes):
        played.append(play(env, expert, np.random.default_rng(START_SEEDS["evaluation"] + k), task.horizon))
        progress(k + 1, episodes)
    env.close()
    success, returns = (np.array([[getattr(e, name) for e in played]]) for name in ("success", "returns"))
    return Record(
        kind="expert",
        settings={"expert": type(expert).__name__},
        members=[],
        data={},
        results={
            "task": task.name,
            "episodes": episodes,
            "success_rate": float(success.mean()),
            "success_interval": list(mean_interval(success)),
            "mean_return": float(returns.mean()),
            "return_interval": list(mean_interval(returns)),
            "mean_length": float(np.mean([len(e.act) for e in played])),
        },
        device="cpu",
        seconds=time.monotonic() - begun,
    )
