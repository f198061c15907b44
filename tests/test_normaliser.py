import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclone import Demonstrations, Normaliser
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
