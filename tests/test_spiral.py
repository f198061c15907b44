import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from diffclone.tasks.experts import collect, run_episode
from diffclone.tasks.spiral import SpiralBatch, SpiralExpert

ONE = np.zeros(1, dtype=np.int64)
END = (2.936, 3.930)

Doubles = npt.NDArray[np.float64]


@pytest.fixture
def spiral() -> Iterator[SpiralBatch]:
    env = SpiralBatch(1)
    yield env
    env.close()


def script() -> Doubles:
    return np.repeat([[0.5, 0.0], [0.0, 0.5], [-0.7, 0.0], [0.0, -0.7]], 40, axis=0)


def test_the_end_point_of_the_script(spiral: SpiralBatch) -> None:
    assert spiral.goals[0] == pytest.approx(np.array(END), abs=5e-4)
    spiral.reset(ONE, [np.random.default_rng(0)])
    assert spiral.observe(ONE)[0] == pytest.approx(np.array([1, 1, 0, 0, *END]), abs=5e-4)
    for act in script():
        spiral.step(ONE, act[None])
    assert np.array_equal(spiral.observe(ONE)[0, :2], spiral.goals[0])


def test_only_the_last_step_decides_about_success(spiral: SpiralBatch) -> None:
    spiral.reset(ONE, [np.random.default_rng(0)])
    for step in range(160):
        spiral.simulation.positions[0], spiral.simulation.velocities[0] = spiral.goals[0], 0  # always at the goal
        outcome = spiral.step(ONE, np.zeros((1, 2)))
        last = step == 159
        assert (bool(outcome.success[0]), bool(outcome.ended[0])) == (last, last)
        assert outcome.reward[0] == pytest.approx(1)


@pytest.mark.parametrize(("distance", "reached"), [(0.099, True), (0.101, False)])
def test_success_is_within_a_tenth(spiral: SpiralBatch, *, distance: float, reached: bool) -> None:
    spiral.reset(ONE, [np.random.default_rng(0)])
    spiral.steps[0] = 159
    spiral.simulation.positions[0], spiral.simulation.velocities[0] = spiral.goals[0] + np.array([0, distance]), 0
    outcome = spiral.step(ONE, np.zeros((1, 2)))
    assert bool(outcome.success[0]) == reached
    assert outcome.reward[0] == pytest.approx(np.exp(-distance))
    assert outcome.ended[0]


def test_the_script_touches_no_wall(spiral: SpiralBatch) -> None:
    mujoco: Any = importlib.import_module("mujoco")
    model = spiral.simulation.model
    data, touched = mujoco.MjData(model), set[str]()
    spiral.reset(ONE, [np.random.default_rng(0)])
    for act in script():
        spiral.step(ONE, act[None])
        mujoco.mj_setState(model, data, spiral.simulation.states[0], mujoco.mjtState.mjSTATE_FULLPHYSICS)
        mujoco.mj_forward(model, data)
        touched |= {model.geom(int(g)).name for contact in data.contact for g in contact.geom}
    assert touched <= {"ground", "ball"}


def test_an_action_of_one_is_a_hundred_newtons(spiral: SpiralBatch) -> None:
    spiral.reset(ONE, [np.random.default_rng(0)])
    mass = float(spiral.simulation.model.body("ball").mass[0])
    assert mass == pytest.approx(4.18879, abs=1e-5)
    spiral.step(ONE, np.array([[0.5, -9.0]]))
    # Damping is implicit: v = (F dt / m) / (1 + c dt / m).
    expected = np.array([50, -100]) * 0.01 / (mass + 0.01)
    assert spiral.observe(ONE)[0, 2:4] == pytest.approx(expected, rel=1e-6)


def test_start_noise_is_the_standard_deviation_of_starts() -> None:
    env = SpiralBatch(1000, start_noise=0.2)
    env.reset(np.arange(1000), [np.random.default_rng(k) for k in range(1000)])
    obs = env.observe(np.arange(1000))
    env.close()
    assert obs[:, :2].mean(0) == pytest.approx(np.ones(2), abs=0.03)
    assert obs[:, :2].std(0) == pytest.approx(0.2, rel=0.1)
    assert not obs[:, 2:4].any()


def test_the_expert_follows_the_script(spiral: SpiralBatch) -> None:
    episode = run_episode(spiral, SpiralExpert(), np.random.default_rng(0), 160)
    assert np.array(episode.act) == pytest.approx(script(), abs=1e-7)
    assert episode.success


def test_recorded_actions_contain_the_noise(spiral: SpiralBatch) -> None:
    expert = SpiralExpert(noise=0.1)
    episode = run_episode(spiral, expert, np.random.default_rng(0), 160)
    assert (np.array(episode.act) - script()).std() == pytest.approx(0.1, rel=0.15)


def test_demonstrations_end_near_the_end_point() -> None:
    expert = SpiralExpert()
    env = SpiralBatch(1, **expert.env_options)
    demos = collect(env, expert, 10, seed=3)
    env.close()
    assert demos.lengths.tolist() == [160] * 10
    for obs, _ in demos.episodes():
        assert np.linalg.norm(obs[0, :2] - 1) < 0.06
        assert np.linalg.norm(obs[-1, :2] - END) < 0.15
