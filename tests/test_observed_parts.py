"""What an environment shows a policy: the images and the parts that its demonstrations have, in the same order."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diffclone import BC, Demonstrations, Network, RecordDemonstrations, Training, evaluate, fit
from diffclone.data.layout import SMALLEST_SIDE, flatten_observation
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.policy import Policy
from diffclone.tasks.gymnasium_batch import GymnasiumBatch
from diffclone.tasks.observations import Flattener, keys_in
from diffclone.tasks.task import Task

gym: Any = pytest.importorskip("gymnasium")

STEPS, SIDES = 40, (SMALLEST_SIDE, SMALLEST_SIDE + 4)
GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (STEPS, *SIDES, 3), dtype=np.uint8) // np.array([8, 1, 2], np.uint8)
A = GENERATOR.normal(size=(STEPS, 2)).astype(np.float32)
B = 10 + GENERATOR.normal(size=(STEPS, 2)).astype(np.float32)
ACT = np.stack([A[:, 0], B[:, 1] - 10], 1)
CAMERA = gym.spaces.Box(0, 255, (*SIDES, 3), np.uint8)
NUMBERS = gym.spaces.Box(-99, 99, (2,), np.float32)


class Shown(gym.Env):
    """Shows step after step of the demonstrations, and keeps the actions that it is given."""

    played: list[npt.NDArray[Any]]

    def __init__(self, space: Any, played: list[npt.NDArray[Any]] | None = None):
        self.observation_space, self.played = space, [] if played is None else played
        self.action_space = gym.spaces.Box(-99, 99, (2,), np.float32)
        self.k = 0

    def observe(self) -> Any:
        if not isinstance(self.observation_space, gym.spaces.Dict):
            return IMAGES[self.k]
        parts = {"image": IMAGES[self.k], "a": A[self.k], "b": B[self.k]}
        return OrderedDict((name, parts[name]) for name in self.observation_space.spaces)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.k = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.played.append(np.array(action))
        self.k += 1
        return self.observe(), 0.0, False, self.k == 5, {}


def train(demos: Demonstrations) -> Policy:
    image = demos.meta.get("image")
    network = Network(width=16, depth=1, image=image and tuple(image))
    method = BC(training=Training(updates=30, batch=16, lr=1e-2), network=network)
    return fit(method, demos, suggest=False, device="cpu")


def play(policy: Policy, space: Any) -> npt.NDArray[Any]:
    """Return the actions of an evaluation's only episode."""
    played: list[npt.NDArray[Any]] = []
    evaluate(policy, lambda: Shown(space, played), episodes=1)
    return np.array(played[:5])


def space_of(names: Sequence[str]) -> Any:
    spaces = {"image": CAMERA, "a": NUMBERS, "b": NUMBERS}
    return gym.spaces.Dict(OrderedDict((name, spaces[name]) for name in names))


@pytest.mark.parametrize("space", [CAMERA, space_of(["image"])])
def test_an_evaluation_shows_images_alone_as_demonstrations_store_them(space: Any) -> None:
    demos = Demonstrations.from_arrays({"image": IMAGES}, ACT, episode_ends=[STEPS])
    assert demos.meta["image"] == [3, *SIDES]
    policy = train(demos)
    expected = [policy({"image": IMAGES[k]}) for k in range(5)]
    assert np.allclose(play(policy, space), expected, atol=1e-5)


@pytest.mark.parametrize("space", [CAMERA, space_of(["image"])])
def test_a_recording_of_images_alone_equals_demonstrations_from_arrays(space: Any) -> None:
    env = RecordDemonstrations(Shown(space))
    env.reset()
    for k in range(5):
        env.step(ACT[k])
    recorded = env.demonstrations()
    demos = Demonstrations.from_arrays({"image": IMAGES[:5]}, ACT[:5], episode_ends=[5])
    assert recorded.meta["image"] == demos.meta["image"]
    assert np.array_equal(recorded.obs, demos.obs)


@pytest.mark.parametrize("prefix", ["", "obs/", "observations/", "observation."])
@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("chosen", ["ab", "ba", "b"])
def test_an_evaluation_shows_the_recorded_parts_in_their_order(prefix: str, order: str, chosen: str) -> None:
    parts = {prefix + name: {"a": A, "b": B}[name] for name in chosen}
    policy = train(Demonstrations.from_arrays(parts, ACT, episode_ends=[STEPS]))
    expected = [policy({"a": A[k], "b": B[k]}) for k in range(5)]
    assert np.allclose(play(policy, space_of(order)), expected, atol=1e-5)


def test_other_names_of_parts_are_all_parts_of_the_space() -> None:
    policy = train(Demonstrations.from_arrays({"left": A, "right": B}, ACT, episode_ends=[STEPS]))
    expected = [policy(np.concatenate([A[k], B[k]])) for k in range(5)]
    assert np.allclose(play(policy, space_of("ab")), expected, atol=1e-5)
    with pytest.raises(InvalidSettings, match=r"the policy maps 4 numbers to 2; .* gives 2 and takes 2"):
        play(policy, space_of("b"))


@pytest.mark.parametrize("horizon", [3, 5, 50])
def test_success_is_unknown_wherever_a_task_ends_the_episodes_of_a_silent_environment(horizon: int) -> None:
    demos = Demonstrations.from_arrays({"a": A, "b": B}, ACT, episode_ends=[STEPS])
    make_batch = partial(GymnasiumBatch, lambda: Shown(space_of("ab")))
    task = Task("shown", "Silent.", 4, 2, horizon, "return", make_batch, environments_per_member=2)
    scores = evaluate(train(demos), task, episodes=3)
    assert not scores.reports_success
    assert scores.summary()["success_rate"] is None


# Parts of parts.

LEFT, RIGHT = np.array([1.0, 2]), np.array([3.0, 4])
BOTH_HANDS = np.array([1.0, 2, 3, 4])


@pytest.mark.parametrize(
    ("recorded", "given"),
    [
        (("obs/pos", "obs/hand/pos"), {"pos": LEFT, "hand": {"pos": RIGHT}}),
        (("obs/pos", "obs/hand/pos"), {"obs": {"pos": LEFT, "hand": {"pos": RIGHT}}}),
        (("obs/pos", "obs/hand/pos"), {"hand/pos": RIGHT, "pos": LEFT}),
        (("obs/left/pos", "obs/right/pos"), {"left": {"pos": LEFT}, "right": {"pos": RIGHT}}),
        (("obs/left/pos", "obs/right/pos"), {"left/pos": LEFT, "right/pos": RIGHT, "pos": RIGHT}),
        (("obs/left/pos", "obs/right/pos"), {"obs/left/pos": LEFT, "obs/right/pos": RIGHT}),
        (("pos", "hand/pos"), {"pos": LEFT, "hand": {"pos": RIGHT}}),
        (("observation.images.front", "observation.state"), {"front": LEFT, "state": RIGHT}),
        (("observation.images.front", "observation.state"), {"images.front": LEFT, "state": RIGHT}),
        (("observation.images.front", "observation.state"), {"images": {"front": LEFT}, "state": RIGHT}),
        (("observations/a", "observations/b"), {"b": RIGHT, "a": LEFT, "c": LEFT}),
        (("obs/joint.1", "obs/joint.2"), {"joint.1": LEFT, "joint.2": RIGHT}),
        (("a.b", "a/b"), {"a.b": LEFT, "a/b": RIGHT}),
    ],
)
def test_a_part_is_found_by_its_name_or_the_end_of_it(recorded: tuple[str, str], given: Any) -> None:
    meta = {"observation_keys": [[key, 2] for key in recorded]}
    assert np.array_equal(flatten_observation(given, meta), BOTH_HANDS)


@pytest.mark.parametrize(
    ("recorded", "given", "message"),
    [
        (("obs/left/pos", "obs/right/pos"), {"pos": LEFT}, "pos, and the policy needs obs/left/pos and obs/right/pos"),
        (
            ("obs/left/pos", "obs/right/pos"),
            {"left": {"pos": LEFT}, "pos": LEFT},
            "pos, and the policy needs obs/right/pos and obs/left/pos; name both in full",
        ),
        (("obs/pos", "obs/hand/pos"), {"pos": LEFT}, "pos, and the policy needs obs/hand/pos and obs/pos"),
        (("pos", "hand/pos"), {"pos": LEFT}, "pos, and the policy needs hand/pos and pos"),
        (("obs/a", "obs/b"), {"a": LEFT, "c": {"d": LEFT}}, "the observation lacks obs/b; it has a, c/d"),
        (("obs/a", "obs/b"), {}, "the observation lacks obs/a; it has nothing"),
    ],
)
def test_no_part_is_taken_for_another(recorded: tuple[str, str], given: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        flatten_observation(given, {"observation_keys": [[key, 2] for key in recorded]})
    assert "\n" not in str(caught.value)


class Nested(Shown):
    """Has one part in an inner Dict, under the same name as a part outside."""

    def observe(self) -> Any:
        return {"agent": {"pos": A[self.k]}, "pos": B[self.k]}


def test_an_evaluation_shows_parts_of_inner_dicts() -> None:
    inner = gym.spaces.Dict({"pos": NUMBERS})
    space = gym.spaces.Dict({"agent": inner, "pos": NUMBERS})
    parts = {"observations/agent/pos": A, "observations/pos": B}
    demos = Demonstrations.from_arrays(parts, ACT, episode_ends=[STEPS])
    assert keys_in(space, demos.meta) == ["agent/pos", "pos"]
    assert keys_in(gym.spaces.Dict({"pos": NUMBERS}), demos.meta) is None
    policy, played = train(demos), list[npt.NDArray[Any]]()
    evaluate(policy, lambda: Nested(space, played), episodes=1)
    given: list[Any] = [{"agent": {"pos": A[k]}, "pos": B[k]} for k in range(5)]
    expected = [policy(obs) for obs in given]
    assert np.allclose(played[:5], expected, atol=1e-5)
    env = RecordDemonstrations(Nested(space), obs_keys=["agent/pos"])
    env.reset()
    env.step(ACT[0])
    recorded = env.demonstrations()
    assert np.array_equal(recorded.obs, A[:1])
    assert recorded.meta["observations_left_out"] == ["pos"]
    with pytest.raises(InvalidSettings, match="observations have no part 'agent/vel'; they have agent, pos"):
        Flattener(space, ["agent/vel"])


# Bytes that are no images.


class Memory(Shown):
    """Shows bytes."""

    def observe(self) -> Any:
        return np.full(self.observation_space.shape, 40 * self.k, np.uint8)


@pytest.mark.parametrize("shape", [(128,), (7, 7, 3)])
def test_recorded_bytes_that_are_no_images_are_numbers(shape: tuple[int, ...]) -> None:
    env = RecordDemonstrations(Memory(gym.spaces.Box(0, 255, shape, np.uint8)))
    env.reset()
    for k in range(5):
        env.step(ACT[k])
    demos = env.demonstrations()
    assert (demos.obs.dtype, demos.obs[:, 0].tolist()) == (np.float32, [0, 40, 80, 120, 160])
    assert train(demos)(demos.obs).shape == (5, 2)


def test_columns_of_single_bytes_are_numbers() -> None:
    pandas = pytest.importorskip("pandas")
    flags = (A > 0).astype(np.uint8)
    columns = {"obs_0": flags[:, 0], "obs_1": flags[:, 1], "action_0": ACT[:, 0], "episode": np.zeros(STEPS, int)}
    demos = Demonstrations.from_dataframe(pandas.DataFrame(columns))
    assert demos.obs.dtype == np.float32
    assert np.array_equal(demos.obs, flags)
    assert train(demos)(demos.obs).shape == (STEPS, 1)


def test_rows_of_bytes_stay_bytes(tmp_path: Path) -> None:
    rows = np.moveaxis(IMAGES, 3, 1).reshape(STEPS, -1)
    demos = Demonstrations.from_arrays(rows, ACT, episode_ends=[STEPS], meta={"image": [3, *SIDES]})
    demos.save(tmp_path / "a.npz")
    for found in (demos, Demonstrations.load(tmp_path / "a.npz")):
        assert (found.obs.dtype, found.meta["image"]) == (np.uint8, [3, *SIDES])
    assert train(Demonstrations.load(tmp_path / "a.npz"))(rows[:3]).shape == (3, 2)
