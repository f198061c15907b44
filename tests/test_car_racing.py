import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.envs.box2d.car_racing import CarRacing

from diffclone.errors import InvalidSettings, install_command
from diffclone.tasks.car_racing import CAR_RACING, CarRacingBatch, RacingExpert, plan
from diffclone.tasks.car_racing_simulation import Race, shrink
from diffclone.tasks.experts import collect

ONE = np.zeros(1, dtype=np.int64)
GAS = np.array([[0.1, 0.6, 0.0]])


def generators(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def actions(seed: int, steps: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(seed).uniform([-0.4, 0, 0], [0.4, 1, 0.2], (steps, 3))


# Frames.


def image(colour: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    return np.full((1, 96, 96, 3), colour, dtype=np.uint8)


@pytest.mark.parametrize(
    ("colour", "grey"),
    [
        ((255, 0, 0), 76),  # 76.245
        ((0, 255, 0), 150),  # 149.685
        ((0, 0, 255), 29),  # 29.07
        ((255, 255, 255), 255),
        ((102, 204, 102), 162),  # 161.874, the field
        ((0, 0, 0), 0),
    ],
)
def test_grey_is_luma(colour: tuple[int, int, int], grey: int) -> None:
    frame = shrink(image(colour))
    assert frame.shape == (1, 64, 64)
    assert frame.dtype == np.uint8
    assert np.all(frame == grey)


def test_a_pixel_is_the_mean_over_its_area() -> None:
    row = image((0, 0, 0))
    row[0, :, 1] = 90  # half of it is in column 0 of the frame, half in column 1: a third of each
    assert shrink(row)[0, 5, :3].tolist() == [30, 30, 0]
    assert np.array_equal(shrink(row.transpose(0, 2, 1, 3)), shrink(row).transpose(0, 2, 1))
    corner = image((0, 0, 0))
    corner[0, 0, 0] = 90  # 1 of an area of 2.25
    assert shrink(corner)[0, :2, :2].tolist() == [[40, 0], [0, 0]]
    last = image((0, 0, 0))
    last[0, 95, 95] = 90
    assert shrink(last)[0, 62:, 62:].tolist() == [[0, 0], [0, 40]]


def test_shrinking_keeps_the_mean_and_treats_rows_independently() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 96, 96, 3)).astype(np.uint8)
    frames = shrink(images)
    assert np.allclose(frames.mean((1, 2)), (images @ [0.299, 0.587, 0.114]).mean((1, 2)), atol=0.1)
    for k in range(4):
        assert np.array_equal(shrink(images[k : k + 1])[0], frames[k])


# The environment.


def test_physics_and_images_are_those_of_gymnasium() -> None:
    theirs, ours = CarRacing(), Race()
    assert np.array_equal(theirs.reset(seed=4)[0], ours.reset(seed=4)[0])  # pyright: ignore[reportArgumentType]
    for action in actions(0, 70):
        seen, reward, ended, _, _ = theirs.step(action)
        found, our_reward, our_end, _ = ours.hold(action, 1)
        assert np.array_equal(found, seen)  # pyright: ignore[reportArgumentType]
        assert (our_reward, our_end) == (reward, ended)


def test_an_action_is_held_for_two_steps() -> None:
    held, single = CarRacingBatch(1), CarRacingBatch(1, repeat=1)
    for env in (held, single):
        env.reset(ONE, generators(3))
    for _ in range(10):
        outcome = held.step(ONE, GAS)
        reward = sum(single.step(ONE, GAS).reward[0] for _ in range(2))
        assert outcome.reward[0] == pytest.approx(reward)
        assert np.array_equal(held.frames[0, 1], single.frames[0, 1])
    with pytest.raises(InvalidSettings, match="at least one step; repeat is 0"):
        CarRacingBatch(1, repeat=0)


def test_the_previous_frame_comes_before_the_current_one() -> None:
    env = CarRacingBatch(1)
    env.reset(ONE, generators(0))
    first = env.observe(ONE)[0].reshape(2, 64, 64)
    assert np.array_equal(first[0], first[1])
    env.step(ONE, GAS)
    second = env.observe(ONE)[0].reshape(2, 64, 64)
    assert np.array_equal(second[0], first[1])
    assert not np.array_equal(second[1], second[0])
    assert env.observe(ONE).dtype == np.float64
    assert np.array_equal(second, second.astype(np.uint8))
    assert env.observe(ONE[:0]).shape == (0, 8192)


def test_several_processes_give_the_same_numbers() -> None:
    one, many, rows = CarRacingBatch(5, processes=1), CarRacingBatch(5, processes=3), np.arange(5)
    for env in (one, many):
        env.reset(rows, generators(*range(5)))
    for k, action in enumerate(actions(0, 8)):
        chosen = np.random.default_rng(k).permutation(5)[: 1 + k % 5]
        found, expected = (env.step(chosen, np.tile(action, (len(chosen), 1))) for env in (many, one))
        assert np.array_equal(found.reward, expected.reward)
        assert np.array_equal(many.observe(rows), one.observe(rows))
    assert np.array_equal(many.render(4), one.render(4))
    with pytest.raises(KeyError):
        many.step(np.array([6]), GAS)
    many.step(rows, np.tile(GAS, (5, 1)))  # the processes survive an error
    many.close()


def test_races_are_created_when_their_rows_are_reset() -> None:
    env = CarRacingBatch(1000, processes=1)
    env.reset(np.array([998]), generators(0))
    assert list(env.races.by_row) == [998]
    rendered = env.render(998)
    assert (rendered.shape, rendered.dtype) == ((400, 600, 3), np.uint8)
    env.close()


def test_leaving_the_field_ends_the_episode_without_success() -> None:
    env = CarRacingBatch(1)
    env.reset(ONE, generators(0))
    env.races.by_row[0].hull.position = (1e4, 0)
    outcome = env.step(ONE, GAS)
    assert outcome.ended[0]
    assert not outcome.success[0]
    assert outcome.reward[0] < -99


def test_a_missing_package_is_one_line() -> None:
    code = (
        "import sys; sys.modules['Box2D'] = None\n"
        "from diffclone.errors import MissingPackage\n"
        "from diffclone.tasks import TASKS\n"
        "try:\n    TASKS['car-racing'].make(1)\n"
        "except MissingPackage as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"the task 'car-racing' needs Box2D and pygame, which are not installed. Try: {install_command('tasks')}.\n"
    )


# The expert.


def test_the_planned_speed_on_a_circle_follows_from_its_curvature() -> None:
    angle = np.arange(60) / 60 * 2 * np.pi
    line, speed = plan(20 * np.stack([np.cos(angle), np.sin(angle)], 1))
    assert np.linalg.norm(line, axis=1) == pytest.approx(20, rel=0.05)
    assert speed == pytest.approx(np.sqrt(200 * 20), rel=0.05)


def test_the_expert_completes_a_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(race: Race, mode: str) -> npt.NDArray[np.uint8]:
        return np.zeros((96, 96, 3), dtype=np.uint8)

    monkeypatch.setattr(Race, "_render", blind)  # the expert does not use images
    env, expert = CarRacingBatch(1), RacingExpert()
    demos = collect(env, expert, 2, seed=1)
    assert demos.meta["episodes_tried"] == 2
    assert demos.obs.dtype == CAR_RACING.demonstrations().obs.dtype == np.uint8
    assert np.all((demos.lengths > 250) & (demos.lengths < 450))
    assert env.returns[0] > 900
    assert env.solved[0]
