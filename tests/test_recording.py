"""The wrapper that records demonstrations, and the loop that plays a function in it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import Autoreset, NormalizeObservation, TimeLimit

from diffclone import Demonstrations, RecordDemonstrations
from diffclone.errors import InvalidData, InvalidFile, InvalidSettings, install_command
from diffclone.tasks.observations import Flattener, keys_in
from diffclone.tasks.playing import play_episodes

Box, Dict = gym.spaces.Box, gym.spaces.Dict


class Walk(gym.Env[Any, Any]):
    """The observation is a sum of actions, in one array that is changed in place. Success is above 1."""

    def __init__(self, end: float = np.inf, broken_at: int | None = None):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-1, 1, (2,), np.float32)
        self.end, self.broken_at = end, broken_at
        self.place = np.zeros(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place[:] = self.np_random.uniform(0, 0.1, 2)
        self.steps = 0
        return self.place, {}

    def step(self, action: npt.NDArray[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += action
        self.steps += 1
        if self.steps == self.broken_at:
            self.place[1] = np.nan
        action[:] = 7  # what is recorded must not depend on it
        return self.place, 0.0, bool(self.place[0] > self.end), False, {"is_success": bool(self.place[0] > 1)}


class Goals(Walk):
    """A goal environment with one part more where `camera` is set."""

    def __init__(self, *, camera: bool = False, steps: int = 3):
        super().__init__()
        part = Box(-np.inf, np.inf, (2,), np.float32)
        self.camera, self.limit = camera, steps
        parts: dict[str, Any] = {
            "observation": part,
            "achieved_goal": part,
            "desired_goal": Box(0, 1, (1,), np.float32),
        }
        if camera:
            parts = {"state": part, "camera": Box(0, 255, (4, 4, 3), np.uint8)}
        self.observation_space = Dict(parts)

    def see(self) -> dict[str, Any]:
        place = self.place.astype(np.float32)
        if self.camera:
            return {"state": place, "camera": np.zeros((4, 4, 3), np.uint8)}
        return {"observation": place, "achieved_goal": place + 5, "desired_goal": np.full(1, 0.5, np.float32)}

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**arguments)
        return self.see(), {}

    def step(self, action: npt.NDArray[Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        super().step(action)
        return self.see(), 0.0, False, self.steps >= self.limit, {}


def play(env: Any, actions: Any, seed: int | None = 0) -> None:
    if seed is not None:
        env.reset(seed=seed)
    for action in actions:
        env.step(np.array(action, dtype=np.float32))


def lengths(env: RecordDemonstrations) -> list[int]:
    return env.demonstrations().lengths.tolist()


def test_rows_are_the_observation_before_a_step_and_the_action_of_the_step() -> None:
    env = RecordDemonstrations(Walk())
    (first, _), actions = env.reset(seed=3), np.array([[0.5, -1], [0.25, 1], [1, 0]], dtype=np.float32)
    first = first.copy()
    play(env, actions, seed=None)
    demos = env.demonstrations()
    assert np.array_equal(demos.act, actions)
    assert np.allclose(demos.obs, first + np.array([[0, 0], [0.5, -1], [0.75, 0]]))
    assert demos.episode_ends.tolist() == [3]
    assert demos.meta == {"environment": "Walk", "action_bounds": [[-1.0, -1.0], [1.0, 1.0]]}


def test_episodes_end_by_termination_truncation_and_reset() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(end=1.5), 3))
    play(env, [[1, 0]] * 2)  # terminates
    play(env, [[0, 0]] * 3)  # is truncated
    play(env, [[0, 0]])  # is left by the next reset
    play(env, [[0, 0]] * 2)  # is still running
    assert lengths(env) == [2, 3, 1, 2]
    assert env.num_episodes == 3
    assert lengths(env) == [2, 3, 1, 2], "asking again must not change anything"
    strict = RecordDemonstrations(TimeLimit(Walk(end=1.5), 3), keep_partial=False)
    for actions in ([[1, 0]] * 2, [[0, 0]] * 3, [[0, 0]], [[0, 0]] * 2):
        play(strict, actions)
    assert lengths(strict) == [2, 3]


def test_discard_drops_the_running_episode_or_the_one_that_has_just_ended() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(), 2))
    play(env, [[0, 0]] * 2)
    play(env, [[1, 1]])
    env.discard()
    play(env, [[1, 1]], seed=None)  # the rest of a discarded episode is not recorded
    assert lengths(env) == [2]
    play(env, [[1, 1]] * 2)
    env.discard()
    env.discard()  # does nothing more: each episode is dropped once
    assert lengths(env) == [2]
    play(env, [[0, 0]])
    assert lengths(env) == [2, 1]


def test_end_episode_keeps_the_steps_so_far() -> None:
    env = RecordDemonstrations(Walk(), keep_partial=False)
    play(env, [[0, 0]] * 2)
    env.end_episode()
    play(env, [[0, 0]] * 5, seed=None)
    env.end_episode()
    assert lengths(env) == [2]


def test_only_successes() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(), 2), only_successes=True)
    play(env, [[0, 0]] * 2)
    with pytest.raises(InvalidData, match="no episode ended in success"):
        env.demonstrations()
    play(env, [[1, 0]] * 2)
    play(env, [[0.1, 0]])
    assert lengths(env) == [2]
    assert env.reports_success


def test_an_inner_wrapper_that_restarts_the_environment() -> None:
    """The step after an end returns the first observation of the next episode, and its action is not executed."""
    env = RecordDemonstrations(Autoreset(TimeLimit(Walk(), 2)))
    play(env, [[0.1, 0], [0.2, 0], [9, 9], [0.3, 0], [0.4, 0], [9, 9], [0.5, 0]])
    demos = env.demonstrations()
    assert np.allclose(demos.act[:, 0], [0.1, 0.2, 0.3, 0.4, 0.5])
    assert demos.lengths.tolist() == [2, 2, 1]


def test_wrappers_nest_and_each_records_what_passes_it() -> None:
    inner = RecordDemonstrations(TimeLimit(Walk(), 4))
    outer = RecordDemonstrations(NormalizeObservation(RecordDemonstrations(inner)))
    play(outer, [[1, 0]] * 4)
    original, normalised = inner.demonstrations(), outer.demonstrations()
    assert original.obs[3, 0] > 3
    assert np.abs(normalised.obs).max() < 3
    assert np.array_equal(original.act, normalised.act)


def test_the_executed_action_may_be_named_by_info() -> None:
    class Takeover(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            *result, info = self.env.step(np.array([0.5, 0.5], dtype=np.float32))
            return *result, info | {"intervene_action": np.array([0.5, 0.5])}

    env = RecordDemonstrations(Takeover(Walk()), executed=lambda act, info: info.get("intervene_action", act))
    play(env, [[1, 1]] * 2)
    assert np.array_equal(env.demonstrations().act, np.full((2, 2), 0.5))


def test_goal_environments_are_recorded_as_observation_and_desired_goal() -> None:
    env = RecordDemonstrations(Goals())
    play(env, [[1, 1]] * 3)
    demos = env.demonstrations()
    assert demos.meta["observation_keys"] == [["observation", 2], ["desired_goal", 1]]
    assert demos.meta["observations_left_out"] == ["achieved_goal"]
    assert np.allclose(demos.obs[:, 2], 0.5)
    assert np.allclose(demos.obs[1:, :2] - demos.obs[:-1, :2], 1)
    chosen = RecordDemonstrations(Goals(), obs_keys=["achieved_goal", "observation"])
    play(chosen, [[1, 1]] * 3)
    assert np.allclose(chosen.demonstrations().obs[:, :2] - 5, chosen.demonstrations().obs[:, 2:])


def test_images_beside_other_observations_are_left_out_and_named() -> None:
    env = RecordDemonstrations(Goals(camera=True))
    play(env, [[1, 1]] * 3)
    assert env.demonstrations().meta["observation_keys"] == [["state", 2]]
    assert env.demonstrations().meta["observations_left_out"] == ["camera"]
    images = RecordDemonstrations(Goals(camera=True), obs_keys=["camera"])
    play(images, [[1, 1]] * 3)
    assert images.demonstrations().obs.dtype == np.float32  # too small for convolutions
    assert images.demonstrations().obs.shape == (3, 48)


def test_flattened_observations_are_those_of_gymnasium() -> None:
    inner = Dict({"b": gym.spaces.Discrete(3), "a": Box(-1, 1, (2, 2), np.float32)})
    space = Dict({"z": inner, "y": Box(-1, 1, (3,), np.float64)}, seed=0)
    obs, flatten = space.sample(), Flattener(space)
    assert np.array_equal(flatten(obs), np.asarray(gym.spaces.flatten(space, obs)))
    assert flatten.observation_keys == [["y", 3], ["z", 7]]
    assert np.array_equal(Flattener(space, ["z", "y"])(obs)[7:], flatten(obs)[:3])
    assert keys_in(space, {"observation_keys": [["z", 7], ["y", 3]]}) == ["z", "y"]
    assert keys_in(space, {"observation_keys": [["other", 7], ["y", 3]]}) is None
    assert keys_in(inner["a"], {"observation_keys": [["a", 4]]}) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gym.make("CartPole-v1"), r"actions in Discrete\(2\) cannot be recorded: only continuous"),
        (lambda: gym.make_vec("Pendulum-v1", 2), r"a vector of environments cannot be recorded; wrap each"),
        (lambda: object(), r"only a Gymnasium environment can be recorded; object is not one"),
    ],
)
def test_environments_that_cannot_be_recorded_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        RecordDemonstrations(make())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["place"], r"no part 'place'; they have achieved_goal, desired_goal, observation"),
        (["observation", "observation"], r"name each part of the observations once"),
    ],
)
def test_parts_that_do_not_exist_are_refused(keys: list[str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        RecordDemonstrations(Goals(), obs_keys=keys)
    with pytest.raises(InvalidSettings, match="have no named parts"):
        RecordDemonstrations(Walk(), obs_keys=keys)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(3), r"must be \(2,\) numbers; it is float64 of shape \(3,\)"),
        (np.array([0, np.nan]), r"the action \[ 0. nan\] contains NaN"),
        (np.array(["a", "b"]), r"must be \(2,\) numbers; it is <U1"),
    ],
)
def test_wrong_actions_are_refused_before_they_are_executed(action: Any, message: str) -> None:
    env = RecordDemonstrations(Walk())
    play(env, [[0, 0]] * 2)
    with pytest.raises(InvalidData, match=message):
        env.step(action)
    assert lengths(env) == [2]


def test_a_broken_observation_drops_its_episode_and_no_other() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(broken_at=2), 3))
    play(env, [[0, 0]])
    with pytest.raises(
        InvalidData, match=r"after 2 steps contains NaN or infinity. This episode is dropped; the 1 bef"
    ):
        play(env, [[0, 0]] * 3)
    assert lengths(env) == [1]


def test_save_writes_a_new_file_and_overwrites_nothing(tmp_path: Path) -> None:
    env = RecordDemonstrations(gym.make("Pendulum-v1"), meta={"who": "me"})
    play(env, [[0.5]] * 4)
    env.save(tmp_path / "a.npz")
    demos = Demonstrations.load(tmp_path / "a.npz")
    assert demos.fingerprint == env.demonstrations().fingerprint
    assert demos.meta == {
        "environment": "Pendulum-v1",
        "action_bounds": [[-2.0], [2.0]],
        "fps": 30,
        "who": "me",
    }
    with pytest.raises(InvalidFile, match="exists already"):
        env.save(tmp_path / "a.npz")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_own_checker_accepts_the_wrapper() -> None:
    env = RecordDemonstrations(gym.make("Pendulum-v1"), only_successes=True)
    check_env(env, skip_render_check=True)
    assert env.spec is not None
    again = gym.make(env.spec)
    assert isinstance(again, RecordDemonstrations)
    assert again.only_successes


def test_public_names_import_without_gymnasium() -> None:
    code = (
        "import sys, importlib.util as u; find = u.find_spec; "
        "u.find_spec = lambda name, *a: None if name.split('.')[0] == 'gymnasium' else find(name, *a); "
        "sys.modules['gymnasium'] = None; from diffclone import *\n"
        "try: RecordDemonstrations(None)\n"
        "except DiffcloneError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"recording needs the package gymnasium. Try: {install_command('tasks')}.\n", done.stderr


# Playing.


def test_the_same_seed_plays_the_same_episodes_and_another_seed_others() -> None:
    def played(seed: int) -> Demonstrations:
        env = RecordDemonstrations(TimeLimit(Walk(), 3))
        for _ in play_episodes(env, lambda obs: np.random.uniform(-1, 1, 2), 4, seed=seed):
            pass
        return env.demonstrations()

    assert played(0).fingerprint == played(0).fingerprint
    assert not played(0).find_shared_episodes(played(1))
    assert len(set(played(0).episode_fingerprints)) == 4


def test_actions_are_executed_as_they_are_recorded() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(), 2))
    (played,) = play_episodes(env, lambda obs: [0.1, 3.0], 1)
    demos = env.demonstrations()
    assert demos.act.tolist() == [[np.float32(0.1), 1.0]] * 2
    assert np.allclose(demos.obs[1] - demos.obs[0], [0.1, 1])
    assert (played.episodes, played.clipped, played.mean_return) == (1, 2, 0.0)


def test_an_object_with_reset_is_reset_at_every_start() -> None:
    class Counting:
        steps = resets = 0

        def reset(self) -> None:
            self.steps, self.resets = 0, self.resets + 1

        def __call__(self, obs: Any) -> Any:
            self.steps += 1
            return [self.steps / 10, 0]

    env, act = RecordDemonstrations(TimeLimit(Walk(), 2)), Counting()
    list(play_episodes(env, act, 3))
    assert act.resets == 3
    assert np.allclose(env.demonstrations().act[:, 0], [0.1, 0.2] * 3)


def test_success_ends_an_episode_if_requested() -> None:
    env = RecordDemonstrations(TimeLimit(Walk(), 50), only_successes=True)
    list(play_episodes(env, lambda obs: [0.5, 0], 2, stop_at_success=True))
    assert max(lengths(env)) <= 3


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            [0, 0, 0],
            r"episode 0, step 0: the policy returned int64 of shape \(3,\); .* takes \(2,\) numbers",
        ),
        (None, r"the policy returned NoneType; the environment takes \(2,\) numbers"),
        ([0, np.inf], r"the policy returned \[ 0. inf\], which is not finite"),
        (
            ZeroDivisionError("division by zero"),
            r"episode 0, step 0: ZeroDivisionError: division by zero \(line \d+ of .*\)",
        ),
        ([-1, 0], r"only 0 of 100 episodes ended in success; 1 were requested"),
    ],
)
def test_what_a_function_does_wrong_is_one_line(returned: Any, message: str) -> None:
    def act(obs: Any) -> Any:
        if isinstance(returned, Exception):
            raise returned
        return returned

    env = RecordDemonstrations(TimeLimit(Walk(), 2), only_successes=True)
    with pytest.raises(InvalidData, match=message):
        list(play_episodes(env, act, 1))


def test_successes_must_be_reported() -> None:
    env = RecordDemonstrations(gym.make("Pendulum-v1", max_episode_steps=2), only_successes=True)
    with pytest.raises(InvalidSettings, match=r"reports neither is_success nor success"):
        list(play_episodes(env, lambda obs: 0.0, 1))
