"""Episodes with an engine: a policy's members, or tries of an expert.

Demonstrations of an expert are those of one process, bit for bit. Actions of a policy can differ in the last bit, since
a product of one member's matrices is rounded differently than one of several members'.
"""

import math
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from diffclone.evaluation import Scores, evaluate
from diffclone.experiments.executors.dispatch import Dispatcher, Work, raise_first
from diffclone.experiments.executors.interface import Callbacks, Executor, Needs
from diffclone.policy import Policy
from diffclone.tasks import TASKS
from diffclone.tasks.experts import Episode, try_episode

MOST_JOBS = 64
"""A policy with more members has several of them in each job."""
BLOCK = 5
"""Tries of an expert in one job."""


def evaluate_with(
    executor: Executor, policy: Policy, task: str, callbacks: Callbacks, needs: Needs, **options: Any
) -> Scores:
    """Run the episodes of `evaluate(policy, task, **options)`, some members in each job."""
    begun, found = time.monotonic(), dict[str, Scores]()
    shared, device = executor.share(pack_policy(policy)), policy.device.type
    size = math.ceil(len(policy) / MOST_JOBS)
    parts = [tuple(range(len(policy)))[k : k + size] for k in range(0, len(policy), size)]
    names = [f"members {part[0]} to {part[-1]}" for part in parts]

    def make_work(name: str, part: tuple[int, ...]) -> Work:
        return Work(name, evaluate_part, lambda: (shared, part, device, task, options), needs)

    def then(work: Work, scores: Scores) -> Sequence[Work]:
        found[work.name] = scores
        return ()

    works = [make_work(name, part) for name, part in zip(names, parts, strict=True)]
    raise_first(Dispatcher(executor, callbacks).run(works, then))
    return replace(join_scores([found[name] for name in names]), seconds=time.monotonic() - begun)


def evaluate_part(
    packed: Mapping[str, bytes],
    members: Sequence[int],
    device: str,
    task: str,
    options: Mapping[str, Any],
    callbacks: Callbacks,
) -> Scores:
    """Run the episodes of some members, in a worker."""
    policy = unpack_policy(packed, device).choose(members)
    return evaluate(policy, task, progress=lambda done, total: callbacks.check_stop(), **options)


def pack_policy(policy: Policy) -> dict[str, bytes]:
    """Return the files of a policy."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "policy"
        policy.save(folder)
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def unpack_policy(files: Mapping[str, bytes], device: str) -> Policy:
    """Return the policy of these files."""
    with tempfile.TemporaryDirectory() as temporary:
        for name, content in files.items():
            (Path(temporary) / name).write_bytes(content)
        return Policy.load(temporary, device=device)


def join_scores(parts: Sequence[Scores]) -> Scores:
    """Return the scores of all members from those of some members each.

    Success is known only if every part reported it: one silent episode makes it unknown in a single process too.
    """
    return replace(
        parts[0],
        success=np.concatenate([part.success for part in parts]),
        length=np.concatenate([part.length for part in parts]),
        returns=np.concatenate([part.returns for part in parts]),
        seconds=sum(part.seconds for part in parts),
        reports_success=all(part.reports_success for part in parts),
    )


@final
@dataclass(frozen=True)
class ExpertTries:
    """What an expert tries."""

    task: str
    options: Mapping[str, Any]
    """Options of the expert."""
    seed: int
    disturbance: float

    def run(self, first: int, callbacks: Callbacks) -> list[Episode | None]:
        """Run some tries, in a worker; None for those that the expert does not accept."""
        task = TASKS[self.task]
        expert = task.expert(**self.options)
        env = task.make(1, **expert.env_options)
        expert.set_environment(env)
        found: list[Episode | None] = []
        try:
            for tried in range(first, first + BLOCK):
                callbacks.check_stop()
                found.append(try_episode(env, expert, tried, self.seed, self.disturbance))
        finally:
            env.close()
        return found


def run_tries(
    executor: Executor, tries: ExpertTries, episodes: int, callbacks: Callbacks, needs: Needs
) -> Generator[Episode | None, None, None]:
    """Yield what an expert tries, in order and without end; about as many at once as are still missing."""
    first, accepted = 0, 0
    while True:
        blocks = max(1, math.ceil((episodes - accepted) / BLOCK))
        starts = range(first, first + BLOCK * blocks, BLOCK)
        found: dict[str, list[Episode | None]] = {}

        def then(work: Work, result: list[Episode | None], found: dict[str, Any] = found) -> Sequence[Work]:
            found[work.name] = result
            return ()

        works = [Work(f"tries from {k}", tries.run, lambda k=k: (k,), needs) for k in starts]
        raise_first(Dispatcher(executor, callbacks).run(works, then))
        for k in starts:
            for episode in found[f"tries from {k}"]:
                accepted += episode is not None
                yield episode
        first += BLOCK * blocks
