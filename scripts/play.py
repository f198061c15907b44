"""Run episodes of several policies during the training of an expert, on validation starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from diffclone.tasks import Task
from diffclone.tasks.batch import START_SEEDS, Doubles, Flags


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """What happened, (members, episodes)."""

    success: Flags
    returns: Doubles
    length: npt.NDArray[np.int64]


def play(
    task: Task, act: Callable[[Doubles], Doubles], members: int, episodes: int, options: Mapping[str, Any]
) -> Outcomes:
    """Run `episodes` episodes of each member; `act` maps observations (members, episodes, size) to actions."""
    count, shape = members * episodes, (members, episodes)
    success, returns, length = np.zeros(count, np.bool_), np.zeros(count), np.zeros(count, np.int64)
    rows = active = np.arange(count)
    env = task.make(count, **options)
    try:
        env.reset_from_seeds(rows, (START_SEEDS["validation"] + rows % episodes).tolist())
        for _ in range(task.horizon):
            chosen = act(env.observe(rows).reshape(*shape, -1)).reshape(count, -1)
            outcome = env.step(active, chosen[active])
            success[active] = outcome.success
            returns[active] += outcome.reward
            length[active] += 1
            active = active[~outcome.ended]
            if not len(active):
                break
    finally:
        env.close()
    return Outcomes(success.reshape(shape), returns.reshape(shape), length.reshape(shape))
