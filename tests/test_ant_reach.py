import gymnasium as gym
import numpy as np
import pytest

from diffclone.tasks.ant_reach import START, AntReachBatch
from diffclone.tasks.environment import TaskEnv
from diffclone.testing.tasks import generators

ONE = np.zeros(1, dtype=np.int64)
REST = np.zeros((1, 8))


def test_the_observation_is_ant_goal_body_velocities_and_goal_offset() -> None:
    env, rows = AntReachBatch(3), np.arange(3)
    env.reset(rows, generators(3))
    for act in np.random.default_rng(0).uniform(-1, 1, (4, 3, 8)):
        env.step(rows, act)
    obs, sim = env.observe(rows), env.simulation
    assert (sim.positions.shape[1], sim.velocities.shape[1]) == (22, 20)
    assert np.array_equal(obs[:, :20], sim.positions[:, 2:])
    assert np.array_equal(obs[:, 20:40], sim.velocities)
    assert np.array_equal(obs[:, 40:], env.goals - sim.positions[:, :2])
    joints = [sim.model.joint(k).name for k in range(sim.model.njnt)]
    legs = [f"{joint} {leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle")]
    assert joints == ["root", *legs, "goal"]
    env.close()


def test_the_first_motors_are_those_of_the_fourth_leg() -> None:
    env = AntReachBatch(1)
    model = env.simulation.model
    driven = [model.joint(int(model.actuator(k).trnid[0])).name for k in range(8)]
    assert driven == [f"{joint} {leg}" for leg in (4, 1, 2, 3) for joint in ("hip", "ankle")]
    assert np.all(model.actuator_gear[:, 0] == 150)
    env.close()


def test_each_torque_moves_its_joint() -> None:
    env, rows = AntReachBatch(9, start_noise=0.0), np.arange(9)
    env.reset(rows, [np.random.default_rng(0) for _ in rows])
    env.simulation.positions[:, 2] = 3  # in the air, without contacts
    env.step(rows, np.concatenate([np.eye(8), np.zeros((1, 8))]))
    speed = env.observe(rows)[:, 26:34]
    moved = np.abs(speed[:8] - speed[8]).argmax(1)
    assert moved.tolist() == [6, 7, 0, 1, 2, 3, 4, 5]
    env.close()


def test_goals_are_on_the_half_circle() -> None:
    count = 1000
    env = AntReachBatch(count)
    env.reset(np.arange(count), generators(count))
    obs = env.observe(np.arange(count))
    assert np.linalg.norm(env.goals, axis=1) == pytest.approx(5)
    angle = np.arctan2(env.goals[:, 1], env.goals[:, 0])
    assert np.all((angle >= 0) & (angle <= np.pi))
    assert np.histogram(angle, 4, (0, np.pi))[0] == pytest.approx(250, abs=60)
    assert np.array_equal(obs[:, 13:15], env.goals)  # the goal's body is there
    env.close()


def test_start_noise_is_the_half_width_of_the_starts() -> None:
    count, still = 500, np.array(START[2:])
    noisy, exact = AntReachBatch(count), AntReachBatch(count, start_noise=0.0)
    for env, widest in ((noisy, 0.01), (exact, 0.0)):
        env.reset(np.arange(count), generators(count))
        obs = env.observe(np.arange(count))
        off = np.delete(obs[:, :20] - still, [13, 14], axis=1)
        assert np.abs(off).max() <= widest + 1e-12
        assert np.ptp(off, axis=0).min() >= 1.9 * widest
        assert np.abs(obs[:, 20:40]).max() <= 0.005
        assert np.ptp(obs[:, 20:40], axis=0).min() > 0.0095
    assert np.array_equal(exact.goal_offsets(np.arange(count)), exact.goals)
    for env in (noisy, exact):
        env.close()


def test_the_goals_body_is_pushed_out_of_the_ground_and_settles() -> None:
    env, rows = AntReachBatch(20), np.arange(20)
    env.reset(rows, generators(20))
    heights = [env.observe(rows)[:, 15]]
    for _ in range(50):
        env.step(rows, np.zeros((20, 8)))
        heights.append(env.observe(rows)[:, 15])
    z = np.array(heights)
    assert z[0] == pytest.approx(0.15, abs=0.0101)
    assert z.max(0) == pytest.approx(0.87, abs=0.05)
    assert np.all((z.argmax(0) >= 3) & (z.argmax(0) <= 5))
    assert z[9:] == pytest.approx(0.52, abs=0.02)  # it stays upright
    assert np.abs(env.simulation.positions[:, 15:17] - env.goals).max() < 0.2
    env.close()


def test_the_goals_body_does_not_touch_the_ant() -> None:
    near, far = AntReachBatch(1, start_noise=0.0), AntReachBatch(1, start_noise=0.0)
    for env in (near, far):
        env.reset(ONE, generators(1))
    near.simulation.positions[0, 15:17] = 0
    for act in np.random.default_rng(0).uniform(-1, 1, (10, 1, 8)):
        for env in (near, far):
            env.step(ONE, act)
    ant = [env.simulation.positions[0, :15] for env in (near, far)]
    np.testing.assert_allclose(*ant, rtol=0, atol=1e-6)
    for env in (near, far):
        env.close()


@pytest.mark.parametrize("end_on_success", [True, False])
@pytest.mark.parametrize(("distance", "reached"), [(0.48, True), (0.52, False)])
def test_success_is_within_half_a_metre_and_remains(*, distance: float, reached: bool, end_on_success: bool) -> None:
    env = AntReachBatch(1, start_noise=0.0, end_on_success=end_on_success)
    env.reset(ONE, generators(1))
    env.goals[0] = distance, 0
    outcome = env.step(ONE, REST)
    assert bool(outcome.success[0]) == reached
    assert bool(outcome.ended[0]) == (reached and end_on_success)
    assert outcome.reward[0] == pytest.approx(1 - distance / 5, abs=0.002)
    env.goals[0] = 4, 0
    assert bool(env.step(ONE, REST).success[0]) == reached
    env.reset(ONE, generators(1))
    assert not env.solved[0]
    env.close()


def test_the_cost_of_an_action_is_not_clipped() -> None:
    env, rows = AntReachBatch(2, start_noise=0.0), np.arange(2)
    env.reset(rows, [np.random.default_rng(0) for _ in rows])
    outcome = env.step(rows, np.stack([np.ones(8), np.full(8, 2.0)]))
    assert np.array_equal(env.simulation.positions[0], env.simulation.positions[1])
    assert outcome.reward[0] - outcome.reward[1] == pytest.approx(0.005 * (32 - 8))
    env.close()


def test_an_episode_has_fifty_steps_even_after_success() -> None:
    env = gym.make("diffclone/AntReach-v0")
    env.reset(seed=0)
    single = env.unwrapped
    assert isinstance(single, TaskEnv)
    assert isinstance(single.batch, AntReachBatch)
    single.batch.solved[:] = True
    ends = [env.step(np.zeros(8, dtype=np.float32))[2:4] for _ in range(50)]
    assert ends == [(False, False)] * 49 + [(False, True)]
    env.close()


def test_a_step_is_a_tenth_of_a_second() -> None:
    env = AntReachBatch(1)
    env.reset(ONE, generators(1))
    env.step(ONE, REST)
    assert env.simulation.states[0, 0] == pytest.approx(0.1)
    assert env.simulation.model.opt.timestep == pytest.approx(0.02)
    env.close()
