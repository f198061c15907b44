import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclone import BC, Demonstrations, Network, Normaliser, Policy, Training, fit
from diffclone.data.robust import raise_small
from diffclone.deploy.monitors.base import Context
from diffclone.errors import InvalidData


def fitted(obs: list[list[float]], act: list[list[float]]) -> Normaliser:
    return Normaliser.from_demonstrations(Demonstrations.from_arrays(obs, act, episode_ends=[len(obs)]))


def test_z_scores_by_hand() -> None:
    # Means 2 and 20; sums of squares 2 and 200 over n − 1 = 2, so standard deviations 1 and 10.
    normaliser = fitted([[1, 10], [2, 20], [3, 30]], [[0], [4], [8]])
    assert normaliser.normalise_obs(torch.tensor([[4.0, 15.0]])).tolist() == [[2.0, -0.5]]
    assert normaliser.normalise_act(torch.tensor([[6.0]])).tolist() == [[0.5]]
    assert normaliser.restore_act(torch.tensor([[0.5], [-1.0]])).tolist() == [[6.0], [0.0]]


def test_observations_are_clipped_and_actions_are_not() -> None:
    normaliser = fitted([[1], [2], [3]], [[1], [2], [3]])
    far = torch.tensor([[100.0], [-100.0]])
    assert normaliser.normalise_obs(far).flatten().tolist() == [10.0, -10.0]
    assert normaliser.normalise_act(far).flatten().tolist() == [98.0, -102.0]


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e4, 1e-6, 1e20])
def test_a_constant_dimension_is_0_and_is_restored_as_the_mean(constant: float) -> None:
    rows = [[constant, float(k)] for k in range(1000)]
    normaliser = fitted(rows, rows)
    seen = torch.tensor([[constant, 0.0], [constant + 5.0, 0.0]])
    assert normaliser.normalise_obs(seen)[:, 0].tolist() == [0.0, 0.0]
    assert normaliser.normalise_act(seen)[:, 0].tolist() == [0.0, 0.0]
    assert normaliser.restore_act(torch.tensor([[0.7, 0.0]]))[0, 0].item() == np.float32(constant)


def test_a_small_standard_deviation_is_kept() -> None:
    normaliser = fitted([[1.0], [1.0 + 1e-5]], [[1e-9], [3e-9]])
    assert normaliser.normalise_act(torch.tensor([[3e-9]])).item() == pytest.approx(math.sqrt(0.5), rel=1e-5)
    assert normaliser.normalise_obs(torch.tensor([[1.0 + 1e-5]])).item() > 0.1


def test_a_single_step_has_standard_deviation_0() -> None:
    normaliser = fitted([[5.0, 6.0]], [[7.0]])
    assert normaliser.normalise_obs(torch.tensor([[9.0, 9.0]])).tolist() == [[0.0, 0.0]]
    assert normaliser.restore_act(torch.tensor([[0.0]])).tolist() == [[7.0]]


numbers = st.floats(-1e3, 1e3, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=20))
@settings(deadline=None)
def test_actions_round_trip(rows: list[tuple[float, float]]) -> None:
    normaliser = fitted([[0.0]] * len(rows), [list(row) for row in rows]).to("cpu", torch.float64)
    act = torch.tensor(rows, dtype=torch.float64)
    back = normaliser.restore_act(normaliser.normalise_act(act))
    assert torch.allclose(back, act, rtol=1e-6, atol=1e-6)


def rows(obs: int, act: int) -> Demonstrations:
    return Demonstrations.from_arrays(np.zeros((2, obs)), np.zeros((2, act)), episode_ends=[2])


def test_a_wrong_size_is_named_on_both_sides() -> None:
    with pytest.raises(InvalidData, match="observations have 2 numbers; the policy was trained on 3"):
        Normaliser.identity(rows(3, 1)).normalise_obs(torch.zeros(4, 2))


def test_identity_changes_no_number() -> None:
    normaliser, x = Normaliser.identity(rows(2, 2)), torch.tensor([[1.5, -9.0], [11.0, 0.0]])
    assert torch.equal(normaliser.normalise_obs(x), x)  # no limit either: the numbers have no common scale
    assert torch.equal(normaliser.normalise_act(x), x)
    assert torch.equal(normaliser.restore_act(x), x)


def spread(*std: float) -> list[list[float]]:
    """Return two rows whose columns have these standard deviations."""
    return [[5.0 - s * math.sqrt(0.5) for s in std], [5.0 + s * math.sqrt(0.5) for s in std]]


def test_robust_scales_by_hand() -> None:
    # The median of 0.001, 0.02, 0.05, 2 and 3 (the constant does not count) is 0.05, and the floor 0.005.
    rows, act = spread(0.001, 0.02, 0.05, 2.0, 3.0, 0.0), [[1.0, 0.0], [2.0, 1e-3]]
    demos = Demonstrations.from_arrays(rows, act, episode_ends=[2])
    robust, plain = Normaliser.robust(demos), Normaliser.from_demonstrations(demos)
    assert robust.obs_std.tolist() == pytest.approx([0.005, 0.02, 0.05, 2.0, 3.0, 0.0], rel=1e-3)
    assert robust.obs_std[1:].equal(plain.obs_std[1:])
    # A dimension that hardly varies has small numbers, instead of ±0.7.
    assert robust.normalise_obs(torch.tensor(rows))[:, 0].tolist() == pytest.approx([-0.1414, 0.1414], abs=1e-3)
    assert robust.normalise_obs(torch.tensor(rows))[:, 5].tolist() == [0.0, 0.0]
    far = torch.full((1, 6), 100.0)
    assert robust.normalise_obs(far)[0, :5].tolist() == [3.0] * 5
    assert plain.normalise_obs(far)[0, :5].tolist() == [10.0] * 5
    # Means, actions and the box are those of z-scores.
    changed = {name for name, t in robust.tensors().items() if not t.equal(plain.tensors()[name])}
    assert changed == {"obs_std", "obs_limit"}


def test_dimensions_in_another_unit_keep_their_scale() -> None:
    pixels_and_an_angle = np.array([140.0, 120.0, 150.0, 130.0, 1.5])
    assert np.array_equal(raise_small(pixels_and_an_angle), pixels_and_an_angle)
    # Beside pixels, a gripper in metres is raised to 0.05 only.
    assert raise_small(np.array([140.0, 120.0, 150.0, 130.0, 0.03]))[-1] == 0.05


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30))
def test_robust_scales_change_half_of_the_dimensions_at_most(values: list[float]) -> None:
    std = np.array(values)
    scales = raise_small(std)
    assert (scales > std).sum() <= len(std) / 2
    assert np.array_equal(scales[std >= 0.05], std[std >= 0.05])
    assert np.all(scales >= std)
    assert np.all(np.diff(scales[np.argsort(std)]) >= 0)  # a larger standard deviation has no smaller scale


def test_robust_scales_of_images_and_constants_are_those_of_z_scores() -> None:
    images = np.random.default_rng(0).integers(0, 255, (4, 12)).astype(np.uint8)
    for obs in (images, np.ones((4, 3))):
        demos = Demonstrations.from_arrays(obs, np.arange(4.0)[:, None], episode_ends=[4])
        assert Normaliser.robust(demos).obs_std.equal(Normaliser.from_demonstrations(demos).obs_std)


def test_a_policy_keeps_its_robust_scales(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(0, [1, 1, 1, 1e-3], (50, 4))
    demos = Demonstrations.from_arrays(rows, rows[:, :1], episode_ends=[50])
    method = BC(training=Training(updates=2), network=Network(width=4, depth=1), normalisation="robust")
    policy = fit(method, demos, device="cpu")
    policy.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    assert loaded.normaliser.obs_std.equal(Normaliser.robust(demos).obs_std)
    assert np.allclose(loaded(rows), policy(rows), atol=1e-5)


def test_a_monitor_sees_how_far_an_observation_is_where_the_policy_clips_it() -> None:
    demos = Demonstrations.from_arrays(spread(1.0, 2.0), [[0.0], [1.0]], episode_ends=[2])
    far = [5.0 + 6.0, 5.0]  # six standard deviations of the first number
    for normaliser, expected in ((Normaliser.robust(demos), 6.0), (Normaliser.identity(demos), 11.0)):
        ((seen, _),) = Context(BC(), normaliser).batches(far, [0.0])
        assert seen[0, 0] == pytest.approx(expected, rel=1e-5)
    assert Normaliser.robust(demos).normalise_obs(torch.tensor(far))[0] == 3.0
