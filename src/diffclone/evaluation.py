"""Evaluate a policy: all members on the same starts, stepped together, every episode counted."""

import importlib.util
import re
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from numbers import Integral
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch

from diffclone.deploy.memory import Memory, advance
from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.policy import Policy
from diffclone.records import Record
from diffclone.tasks import TASKS, Task
from diffclone.tasks.batch import START_SEEDS, Doubles, Rows, Starts
from diffclone.tasks.experts import Episode, Expert, run_episode
from diffclone.tasks.scores import Protocol, Scores
from diffclone.training.display import choose_bars

OnEpisodes = Callable[[int, int], None]

PAPER_ENVIRONMENTS, PAPER_EPISODES = 10, 100


def evaluate(
    policy: Policy,
    task: str | Task | Callable[..., Any],
    *,
    episodes: int = 100,
    protocol: Protocol = "fixed",
    starts: Starts = "evaluation",
    progress: OnEpisodes | bool | None = None,
    on_step: Callable[[Rows, Doubles, npt.NDArray[Any]], None] = lambda rows, obs, act: None,
    **options: Any,
) -> Scores:
    """Run episodes with all members of a policy.

    Args:
        policy: the policy.
        task: a task or its name, a Gymnasium id (`module:id` imports the module first), or a function that makes a new
            Gymnasium environment at each call.
        episodes: number of episodes per member. The paper's protocol always counts a hundred.
        protocol: "fixed": the same starts for every member and method, and every episode counts.
            "paper": ten environments per member, restarted when an episode ends, until a hundred episodes have ended.
            Episodes that still run are dropped, which favours short ones, and here most short ones are successes.
        starts: which list of starts; choose settings on "validation".
        progress: by default a progress bar in a terminal and in a notebook, and nothing elsewhere. False for none, True
            for lines where a bar cannot be shown, or a function, called with the number of episodes done and the total.
        on_step: called before every step with the running episodes, numbered member · episodes + episode, their
            observations and their actions.
        options: passed to the environments, which are always closed.

    Returns:
        The outcome of every episode of every member.
    """
    check_arguments(policy, task, episodes, protocol, starts)
    begun, members = time.monotonic(), len(policy)
    known = find_task(task, options, policy.data.get("meta"))
    options = known.check_options(options)
    if (policy.dims.obs, policy.dims.act) != (known.obs_size, known.act_size):
        raise InvalidSettings(
            f"the policy maps {policy.dims.obs} numbers to {policy.dims.act}; {known.name} gives {known.obs_size} "
            f"and takes {known.act_size}."
        )
    # Row r of the batch runs episode[r] of member[r]. Each member has `columns` rows, which take its next episodes.
    fixed = protocol == "fixed"
    columns = min(episodes, known.environments_per_member or episodes) if fixed else PAPER_ENVIRONMENTS
    total = episodes if fixed else PAPER_EPISODES
    outcome = np.zeros((members, total), dtype=[("success", "?"), ("length", "i8"), ("returns", "f8")])
    active = np.arange(members * columns)
    member, episode = np.divmod(active, columns)
    steps, returns = np.zeros(len(active), dtype=np.int64), np.zeros(len(active))
    started, finished = np.full(members, columns), np.zeros(members, dtype=np.int64)
    rngs = [np.random.default_rng(START_SEEDS[starts] + k) for k in episode.tolist()]  # used by the paper's protocol

    def reset(rows: Rows) -> None:
        steps[rows], returns[rows] = 0, 0
        if fixed:
            env.reset_from_seeds(rows, (START_SEEDS[starts] + episode[rows]).tolist())
        else:
            env.reset(rows, [rngs[row] for row in rows])

    env = known.make(len(active), **options)
    with closing(env), episode_reporter(known.name, progress=progress) as report:
        reset(active)
        call, memory = 0, Memory.blank(policy.chunks, len(active), policy.dims.obs, policy.dims.act)
        while len(active):
            obs = env.observe(active)
            act, memory = _act(policy, member[active], obs, call, memory)
            on_step(member[active] * (total if fixed else columns) + episode[active], obs, act)
            result = env.step(active, act)
            call += 1
            steps[active] += 1
            returns[active] += result.reward
            over = result.ended | (steps[active] >= known.horizon)
            keep = ~over
            for k in np.flatnonzero(over):
                row, m = active[k], member[active[k]]
                if (column := episode[row] if fixed else finished[m]) < total:
                    outcome[m, column] = (result.success[k], steps[row], returns[row])
                finished[m] += 1
                if fixed and started[m] < total:
                    keep[k], episode[row] = True, started[m]
                    started[m] += 1
            if not fixed:
                keep = finished[member[active]] < total
            restart, active = active[keep & over], active[keep]
            if len(restart):
                reset(restart)
            if over.any():
                memory = memory.forget(over).take(keep)
                report(int(np.minimum(finished, total).sum()), members * total)
    seconds, known_success = time.monotonic() - begun, env.reports_success
    tables = (outcome["success"], outcome["length"], outcome["returns"])
    return Scores(*tables, known.name, protocol, starts, options, seconds, known_success)


def check_arguments(policy: Any, task: Any, episodes: Any, protocol: Any, starts: Any) -> None:
    """Refuse arguments that `evaluate` cannot use."""
    if not isinstance(policy, Policy):
        raise InvalidSettings(
            f"the first argument of evaluate must be a Policy; it is of type {type(policy).__name__}."
        )
    if not isinstance(task, str | Task) and not callable(task):
        raise InvalidSettings(
            "evaluate needs a task or its name, a Gymnasium id, or a function that makes a new environment at each "
            f"call, such as lambda: gymnasium.make(…); it was given an object of type {type(task).__name__}."
        )
    if not isinstance(episodes, Integral) or episodes < 1:
        raise InvalidSettings(f"at least one episode must be run; {episodes} were requested.")
    for name, value, choices in (("protocol", protocol, get_args(Protocol)), ("starts", starts, get_args(Starts))):
        if value not in choices:
            raise InvalidSettings(f"{name} must be {' or '.join(choices)}; it is {value!r}.")


@contextmanager
def episode_reporter(task: str, *, progress: OnEpisodes | bool | None) -> Generator[OnEpisodes, None, None]:
    """Yield the function that shows how many episodes are done, as `evaluate` describes it."""
    if callable(progress):
        yield progress
        return
    with choose_bars(progress=progress) as bars:
        yield (lambda done, total: None) if bars is None else partial(bars.update, f"running {task}")


def find_task(
    task: str | Task | Callable[..., Any], options: Mapping[str, Any], meta: Mapping[str, Any] | None = None
) -> Task:
    """Return the task, or a task for the Gymnasium environment; `meta` is that of the policy's demonstrations."""
    if isinstance(task, Task):
        return task
    if isinstance(task, str) and (task in TASKS or not is_environment_id(task)):
        return TASKS[task]
    if importlib.util.find_spec("gymnasium") is None:
        raise MissingPackage(f"other environments need the package gymnasium. Try: {install_command('tasks')}.")
    from diffclone.tasks.gymnasium_batch import gymnasium_task

    return gymnasium_task(task, meta, **options)


def is_environment_id(name: str) -> bool:
    """Return whether this is a Gymnasium id: it has a version, a namespace or a module, or it is registered."""
    if re.search(r"[/:]|-v\d+$", name):
        return True
    if importlib.util.find_spec("gymnasium") is None:
        return False
    import gymnasium

    return name in gymnasium.registry


def _act(policy: Policy, member: Rows, obs: Doubles, call: int, memory: Memory) -> tuple[npt.NDArray[Any], Memory]:
    """Return one action per row, and the memory of the rows after it."""
    if not policy.chunks.has_memory:
        return _plan(policy, member, obs[:, None], call)[:, 0], memory
    return advance(policy.chunks, lambda windows, rows: _plan(policy, member[rows], windows, call), obs, memory)


def _plan(policy: Policy, member: Rows, windows: npt.NDArray[Any], call: int) -> npt.NDArray[Any]:
    """Return the chunk of actions of each window.

    The policy is called once for all members, with the rows padded to (members, largest number of rows per member).
    """
    counts = np.bincount(member, minlength=len(policy))
    place = np.arange(len(member)) - np.repeat(np.cumsum(counts) - counts, counts)
    padded = np.zeros((len(policy), counts.max(), windows[0].size), dtype=np.float32)
    padded[member, place] = windows.reshape(len(member), -1)
    act = policy.act(torch.from_numpy(padded).to(policy.device, policy.normaliser.obs_mean.dtype), call)
    return act.cpu().numpy()[member, place].reshape(len(member), policy.chunks.horizon, -1)


def evaluate_expert(
    task: Task,
    expert: Expert,
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    *,
    starts: Starts = "evaluation",
    **options: Any,
) -> Record:
    """Run an expert in the environment that policies are evaluated in.

    Args:
        task: the task.
        expert: the expert.
        episodes: number of episodes.
        progress: called with the number of episodes done and the total.
        starts: which list of starts.
        options: passed to the environment.

    Returns:
        A Record whose results are those of `Scores.summary`.
    """
    if episodes < 1:
        raise InvalidSettings(f"at least one episode must be run; {episodes} were requested.")
    begun, done = time.monotonic(), list[Episode]()
    options = task.check_options(options)
    env = task.make(1, **options)
    expert.set_environment(env)
    try:
        for k in range(episodes):
            done.append(run_episode(env, expert, np.random.default_rng(START_SEEDS[starts] + k), task.horizon))
            progress(k + 1, episodes)
    finally:
        env.close()
    success, length, returns = np.array([(e.success, len(e.act), e.returns) for e in done]).T[:, None]
    tables, seconds = (success.astype(np.bool_), length.astype(np.int64), returns), time.monotonic() - begun
    scores = Scores(*tables, task.name, "fixed", starts, options, seconds, env.reports_success)
    return Record("expert", {"expert": type(expert).__name__}, [], {}, scores.summary(), "cpu", seconds)
