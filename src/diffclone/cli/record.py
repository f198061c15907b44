"""The `record` command."""

import difflib
import importlib.util
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from diffclone.cli.console import bars, print_json, print_message
from diffclone.cli.hints import next_command
from diffclone.cli.sources import find_policy
from diffclone.cli.user_function import load_function
from diffclone.data.formats import check_target
from diffclone.deploy.memory import Session
from diffclone.errors import DiffcloneError, InvalidData, InvalidSettings, MissingPackage, UnknownName, install_command
from diffclone.policy import Policy
from diffclone.records import versions
from diffclone.tasks import TASKS
from diffclone.tasks.options import parse_options
from diffclone.tasks.playing import Played, play_episodes
from diffclone.tasks.recording import RecordDemonstrations


@dataclass(frozen=True)
class Record:
    """Play your function, or a trained policy, in an environment, and write its episodes as demonstrations."""

    env: str
    """Gymnasium id (`module:id` imports the module first), or name of a task."""
    policy: str
    """MODULE:FUNCTION or FILE.py:FUNCTION: takes an observation, returns an action. If it has a method `reset`, that is
    called when an episode starts. Or the folder of a run or of a saved policy."""
    out: str
    """File to write: NAME.npz, NAME.hdf5 (robomimic), minari:ID-v0 or lerobot:FOLDER. Nothing is overwritten."""
    episodes: int = 50
    """Number of episodes to record."""
    seed: int = 0
    """Chooses the starts, and seeds Python's and NumPy's global random numbers before every episode."""
    max_steps: int | None = None
    """End episodes after this many steps; by default where the environment ends them."""
    only_successes: bool = False
    """Keep only episodes whose last step reports is_success or success in the environment's info."""
    stop_at_success: bool = False
    """End an episode at the first step that reports success, where the environment itself goes on."""
    obs_keys: tuple[str, ...] = ()
    """Parts of Dict observations to record, in this order. By default observation and desired_goal of a goal
    environment, and of others all parts that are not images."""
    member: int = 0
    """Index of the member, if a trained policy acts."""
    options: tuple[str, ...] = ()
    """Options of the environment, e.g. g=9.81."""
    json: bool = False
    """Print the result as JSON."""

    def run(self) -> None:
        """Record the episodes and write them. Ctrl-C and errors of the function keep the finished ones."""
        self.check()
        policy = self.load_policy()
        env = self.make_env(policy)
        try:
            act = self.make_actor(policy, env)
            played, problem = self.play(env, act)
        finally:
            env.close()
        if problem is not None and not env.num_episodes:
            raise problem
        demos = env.demonstrations()
        demos.save(self.out)
        if problem is not None:
            kept = f"{demos.num_episodes} of {self.episodes} episodes are in {self.out}."
            interrupted = isinstance(problem, KeyboardInterrupt)
            raise KeyboardInterrupt(f"interrupted. {kept}") if interrupted else InvalidData(f"{problem} {kept}")
        if played.clipped:
            print_message(f"{played.clipped} of the played actions were outside the bounds and were clipped to them.")
        if env.left_out:
            print_message(f"left out of the observations: {', '.join(env.left_out)}. --obs-keys chooses others.")
        if self.json:
            counts = {"episodes": demos.num_episodes, "steps": demos.num_steps, "played": played.episodes}
            print_json({"out": self.out, **counts, "mean_return": played.mean_return, "fingerprint": demos.fingerprint})
        else:
            print_message(
                f"wrote {self.out}, {demos!r}, mean return {played.mean_return:.4g}. "
                f"{next_command('train', self.out, '--out', 'RUN')}"
            )

    def check(self) -> None:
        """Refuse wrong numbers, and a place that cannot be written to, before anything is played."""
        for flag, number in (("--episodes", self.episodes), ("--max-steps", self.max_steps)):
            if number is not None and number < 1:
                raise InvalidSettings(f"{flag} must be at least 1; it is {number}.")
        if self.seed < 0:
            raise InvalidSettings(f"--seed must not be negative; it is {self.seed}.")
        check_target(self.out)

    def load_policy(self) -> Policy | Callable[[Any], Any]:
        """Return the member of a trained policy, or the user's function."""
        folder = Path(self.policy)
        if not folder.is_dir():
            return load_function(self.policy)
        return find_policy(folder).load()[self.member]

    def make_env(self, policy: Policy | Callable[[Any], Any]) -> RecordDemonstrations:
        """Make the environment with its recorder."""
        env = make_any_env(self.env, parse_options(self.options))
        meta: dict[str, Any] = {"command": self.command(), "seed": self.seed, "versions": versions()}
        if self.env in TASKS:
            meta["task"] = self.env
        try:
            keys = self.obs_keys or None
            if keys is None and isinstance(policy, Policy):
                from diffclone.tasks.observations import keys_in

                keys = keys_in(env.observation_space, policy.data.get("meta") or {})
            if self.max_steps is not None:
                from gymnasium.wrappers import TimeLimit

                env = TimeLimit(env, self.max_steps)
            return RecordDemonstrations(
                env, obs_keys=keys, keep_partial=False, only_successes=self.only_successes, meta=meta
            )
        except BaseException:
            env.close()
            raise

    def make_actor(self, policy: Policy | Callable[[Any], Any], env: RecordDemonstrations) -> Callable[[Any], Any]:
        """Return a function of the environment's own observations."""
        if not isinstance(policy, Policy):
            return policy
        sizes = env.flatten.size, math.prod(env.action_space.shape or ())
        if (policy.dims.obs, policy.dims.act) != sizes:
            raise InvalidSettings(
                f"the policy maps {policy.dims.obs} numbers to {policy.dims.act}; {self.env} gives {sizes[0]} and "
                f"takes {sizes[1]}."
            )
        return PolicyActor(policy.session(), env.flatten)

    def play(
        self, env: RecordDemonstrations, act: Callable[[Any], Any]
    ) -> tuple[Played, DiffcloneError | KeyboardInterrupt | None]:
        """Play all episodes; return what was played, and what stopped it early."""
        played = Played(0, 0)
        try:
            with bars() as show:
                for played in play_episodes(
                    env, act, self.episodes, seed=self.seed, stop_at_success=self.stop_at_success
                ):
                    note = f"{played.episodes} played" if self.only_successes else ""
                    show.update(f"recording {self.env}", env.num_episodes, self.episodes, note)
        except (DiffcloneError, KeyboardInterrupt) as problem:
            return played, problem
        return played, None

    def command(self) -> str:
        """Return the command that plays the same episodes."""
        parts = ["--env", self.env, "--policy", self.policy, "--episodes", str(self.episodes), "--seed", str(self.seed)]
        parts += ["--max-steps", str(self.max_steps)] if self.max_steps is not None else []
        parts += ["--only-successes"] if self.only_successes else []
        parts += ["--stop-at-success"] if self.stop_at_success else []
        parts += ["--obs-keys", *self.obs_keys] if self.obs_keys else []
        parts += ["--member", str(self.member)] if self.member else []
        parts += ["--options", *self.options] if self.options else []
        return f"diffclone record {shlex.join(parts)}"


@final
class PolicyActor:
    """A trained policy as a function of the environment's own observations. It forgets when an episode starts."""

    def __init__(self, session: Session, flatten: Callable[[Any], Any]):
        self.session, self.flatten, self.reset = session, flatten, session.reset

    def __call__(self, obs: Any) -> Any:
        """Return the action for an observation."""
        return self.session(self.flatten(obs))


def make_any_env(name: str, options: dict[str, Any]) -> Any:
    """Make the environment of a task, or of a Gymnasium id."""
    if importlib.util.find_spec("gymnasium") is None:
        raise MissingPackage(f"recording needs the package gymnasium. Try: {install_command('tasks')}.")
    import gymnasium as gym

    from diffclone.tasks.environment import TaskEnv
    from diffclone.tasks.gymnasium_batch import make_env

    if name in TASKS:
        env = TaskEnv(name, **TASKS[name].check_options(options))
        return gym.wrappers.TimeLimit(env, TASKS[name].horizon)
    if ":" not in name and name not in gym.registry:
        nearest = difflib.get_close_matches(name, [*TASKS, *gym.registry], n=1, cutoff=0.5)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
        raise UnknownName(
            f"unknown environment {name!r}{hint} Give a task ({', '.join(TASKS)}) or a Gymnasium id; MODULE:ID imports "
            "the module that registers it."
        )
    return make_env(name, options)
