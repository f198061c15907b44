import importlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from diffclone import BC, Demonstrations, Network, Training, evaluate, fit
from diffclone.cli.sweep import print_records
from diffclone.experiments.sweep import SWEPT, choose_record
from diffclone.experiments.sweep_options import SweepOptions
from diffclone.records import Record
from diffclone.tasks.cheetah import CheetahBatch
from diffclone.tasks.locomotion import RunnerBatch
from diffclone.tasks.mujoco import find_asset
from diffclone.tasks.walker import WalkerBatch
from diffclone.testing.tasks import generators

AUTHORS_WALKER = Path(__file__).parents[2] / "shared/demos/walker.pt"

ONE = np.zeros(1, dtype=np.int64)
REST = np.zeros((1, 6))

both = pytest.mark.parametrize("runner", [CheetahBatch, WalkerBatch], ids=["cheetah", "walker"])


@both
def test_a_step_is_that_of_mujoco(runner: type[RunnerBatch]) -> None:
    mujoco: Any = importlib.import_module("mujoco")
    path = find_asset("gymnasium", "walker", f"envs/mujoco/assets/{runner.model_file}")
    model = mujoco.MjModel.from_xml_path(str(path))
    data, ours = mujoco.MjData(model), runner(1)
    ours.reset(ONE, generators(1))
    data.qpos[:], data.qvel[:] = ours.simulation.positions[0], ours.simulation.velocities[0]
    for act in np.random.default_rng(0).uniform(-1, 1, (40, 6)):
        ours.step(ONE, act[None])
        data.ctrl[:] = act
        mujoco.mj_step(model, data, nstep=runner.substeps)
        np.testing.assert_allclose(ours.simulation.positions[0], data.qpos, rtol=0, atol=1e-7)
        np.testing.assert_allclose(ours.simulation.velocities[0], data.qvel, rtol=0, atol=1e-6)
    ours.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("runner", "name"), [(CheetahBatch, "HalfCheetah-v5"), (WalkerBatch, "Walker2d-v4")], ids=["cheetah", "walker"]
)
def test_observation_reward_and_fall_are_those_of_gymnasium(runner: type[RunnerBatch], name: str) -> None:
    theirs: Any = gym.make(name).unwrapped
    ours = runner(1)
    ours.reset(ONE, generators(1))
    theirs.reset(seed=0)
    theirs.set_state(ours.simulation.positions[0].copy(), ours.simulation.velocities[0].copy())
    for act in np.random.default_rng(1).uniform(-1, 1, (40, 6)):
        outcome = ours.step(ONE, act[None])
        seen, reward, fallen, _, _ = theirs.step(act)
        np.testing.assert_allclose(ours.observe(ONE)[0], seen, rtol=0, atol=1e-6)
        assert bool(outcome.ended[0]) == fallen
        if fallen:
            break
        assert outcome.reward[0] == pytest.approx(reward, abs=1e-6)
    theirs.close()
    ours.close()


@both
def test_the_cost_of_an_action_is_not_clipped(runner: type[RunnerBatch]) -> None:
    seconds, cost, bonus = (0.05, 0.1, 0.0) if runner is CheetahBatch else (0.008, 1e-3, 1.0)
    within, beyond = runner(1), runner(1)
    for env in (within, beyond):
        env.reset(ONE, generators(1))
    assert within.step_seconds == pytest.approx(seconds)
    before = within.simulation.positions[0, 0]
    small, large = (env.step(ONE, np.full((1, 6), size)) for env, size in ((within, 1.0), (beyond, 3.0)))
    speed = (within.simulation.positions[0, 0] - before) / seconds
    # The motors clip actions to ±1, so both rows move alike, but the cost is that of the unclipped action.
    assert np.array_equal(within.simulation.states, beyond.simulation.states)
    assert small.reward[0] == pytest.approx(speed + bonus - cost * 6)
    assert large.reward[0] == pytest.approx(speed + bonus - cost * 54)
    assert not small.success[0]
    for env in (within, beyond):
        env.close()


@both
def test_the_observation_is_the_state_without_x(runner: type[RunnerBatch]) -> None:
    env = runner(2)
    env.reset(np.arange(2), generators(2))
    env.simulation.positions[1], env.simulation.velocities[1] = env.simulation.positions[0], np.arange(9) - 20
    env.simulation.positions[1, 0] += 5
    obs = env.observe(np.arange(2))
    assert np.array_equal(obs[0, :8], obs[1, :8])
    assert np.array_equal(obs[0, :8], env.simulation.positions[0, 1:])
    # Only Walker's velocities are clipped, and only in the observation.
    assert obs[1, 8:].tolist() == ([*range(-20, -11)] if runner is CheetahBatch else [-10] * 9)
    assert env.simulation.velocities[1].min() == -20
    env.close()


def test_starts_have_gymnasiums_spread() -> None:
    count, rows = 1000, np.arange(1000)
    cheetah, walker, still = CheetahBatch(count), WalkerBatch(count), WalkerBatch(2, start_noise=0.0)
    for env in (cheetah, walker):
        env.reset(rows, generators(count))
        off = env.simulation.positions - env.simulation.model.qpos0
        widest = 0.1 if env is cheetah else 0.005
        assert np.abs(off).max() <= widest
        assert np.ptp(off, axis=0).min() > 1.9 * widest
    assert cheetah.simulation.velocities.std(0) == pytest.approx(0.1, rel=0.1)
    assert np.abs(cheetah.simulation.velocities).max() > 0.3  # normal
    assert np.abs(walker.simulation.velocities).max() <= 0.005  # uniform
    still.reset(np.arange(2), generators(2))
    assert np.array_equal(still.observe(np.arange(2))[0], [1.25, *[0] * 16])
    for env in (cheetah, walker, still):
        env.close()


@pytest.mark.parametrize(
    ("height", "angle", "upright"),
    [
        (1.25, 0.0, True),
        (0.81, 0.0, True),
        (0.79, 0.0, False),
        (1.99, 0.0, True),
        (2.01, 0.0, False),
        (1.25, 0.99, True),
        (1.25, -1.01, False),
        (1.25, 1.01, False),
    ],
)
def test_a_walker_falls_by_height_or_angle(*, height: float, angle: float, upright: bool) -> None:
    env = WalkerBatch(1)
    env.reset(ONE, generators(1))
    env.simulation.positions[0, 1:3] = height, angle
    assert bool(env.is_upright(ONE)[0]) == upright
    env.close()


def test_a_walker_that_does_nothing_falls_and_a_cheetah_never_does() -> None:
    walker, cheetah = WalkerBatch(1), CheetahBatch(1)
    for env in (walker, cheetah):
        env.reset(ONE, generators(1))
    steps = next(k for k in range(1000) if walker.step(ONE, REST).ended[0])
    assert 50 < steps < 300
    cheetah.simulation.positions[0, 2] = 3.0  # upside down
    assert not any(cheetah.step(ONE, REST).ended[0] for _ in range(20))
    for env in (walker, cheetah):
        env.close()


def test_running_has_no_success() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 17))
    demos = Demonstrations.from_arrays(rows, rows[:, :6], episode_ends=[20])
    policy = fit(BC(training=Training(updates=1), network=Network(width=4, depth=1)), demos, device="cpu")
    scores = evaluate(policy, "walker", episodes=2)
    assert "success" not in repr(scores)
    assert scores.summary()["success_rate"] is None


@pytest.mark.parametrize("success_rate", [0.0, None])  # older Records have 0
def test_a_sweep_shows_returns_with_their_sign(success_rate: float | None, capsys: pytest.CaptureFixture[str]) -> None:
    def record(width: int, mean: float) -> Record:
        results = {"snapshot": 500, SWEPT: {"width": width}, "success_rate": success_rate, "mean_return": mean}
        return Record("evaluation", {"type": "bc"}, [{"seed": 0}], {}, results, "cpu", 1.0)

    records = [record(128, -250.0), record(256, 900.0), record(512, 3000.0)]
    print_records(records, choose_record(records, SweepOptions(BC(), {}, (500,), task="cheetah")), "cheetah")
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[3:] if line]
    assert lines == [
        ["width", "512", "500", "3000", "chosen"],
        ["width", "256", "500", "900"],
        ["width", "128", "500", "-250"],
    ]


@pytest.mark.skipif(not AUTHORS_WALKER.exists(), reason="the authors' demonstrations are not available")
def test_a_step_is_close_to_the_authors_data() -> None:
    data = torch.load(AUTHORS_WALKER, weights_only=True)
    obs, act = data["obs"].double().numpy(), data["actions"].double().numpy()
    assert obs.shape == (5000, 17)
    running = data["done"].numpy()[:-1] == 0
    known = np.abs(obs[:-1, 8:]).max(1) < 9.999  # without clipping the observation determines the state
    env = WalkerBatch(len(obs))
    env.reset(np.arange(len(obs)), generators(len(obs)))
    env.simulation.positions[:, 1:], env.simulation.velocities[:] = obs[:, :8], obs[:, 8:]
    env.step(np.arange(len(obs)), act)
    error = np.abs(env.observe(np.arange(len(obs)))[:-1] - obs[1:])
    env.close()
    assert np.count_nonzero(running & known) > 1000
    assert np.median(error[running][:, 8:]) < 0.05
    assert np.median(error[running & known][:, 8:]) < 0.035
    assert np.median(error[running][:, :8]) < 1e-3
