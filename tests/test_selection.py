import numpy as np
import pytest
import torch
from torch import Tensor, nn

from diffclone.data import Demonstrations, Normaliser
from diffclone.fit import fit
from diffclone.guides import DiffusionGuide
from diffclone.methods import BC, DBC
from diffclone.model import Batch, Dims, Losses, Method, Parts, Training
from diffclone.nn import Network
from diffclone.policy import Policy
from diffclone.rng import Rng
from diffclone.training.dynamics import MODELS, DynamicsModel, Scale, learn_dynamics
from diffclone.training.holdout import hold_out
from diffclone.training.selection import NAMES, SelectionContext, same_settings, selection_metrics

QUICK = DynamicsModel(training=Training(updates=1500, lr=3e-3), network=Network(32, 2, "relu", "default"))


def line_demonstrations(episodes: int = 8, steps: int = 12, seed: int = 0) -> Demonstrations:
    """Return episodes of s' = s + a with the expert a = −0.2 s, in two dimensions."""
    rng, obs, act, ends = np.random.default_rng(seed), list[np.ndarray](), list[np.ndarray](), list[int]()
    for _ in range(episodes):
        s = rng.normal(size=2)
        for _ in range(steps):
            obs.append(s)
            act.append(-0.2 * s)
            s = s - 0.2 * s
        ends.append(len(obs))
    return Demonstrations.from_arrays(np.array(obs), np.array(act), episode_ends=ends)


class Gains(nn.Module):
    def __init__(self, gains: list[float]):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(gains)[:, None, None])


class Linear(Method[Gains]):
    """π(s) = −g s, with one g per member."""

    def init(self, dims: Dims, rng: Rng) -> Gains:
        return Gains([0.0] * len(rng.seeds))

    def loss(self, weights: Gains, batch: Batch, rng: Rng, parts: Parts) -> Losses:
        raise NotImplementedError

    def act(self, weights: Gains, obs: Tensor, rng: Rng) -> Tensor:
        return -weights.gain * obs


def linear_policy(
    gains: list[float], demos: Demonstrations, members: list[dict[str, int | float]] | None = None
) -> Policy:
    members = members or [{"seed": k} for k in range(len(gains))]
    return Policy(Linear(normalisation="none"), Gains(gains), Normaliser.identity(demos), members)


@pytest.fixture(scope="module")
def context() -> SelectionContext:
    return SelectionContext.prepare(line_demonstrations(), line_demonstrations(3, seed=1), dynamics=QUICK)


def test_errors_are_those_of_the_equations(context: SelectionContext) -> None:
    demos, held_out = line_demonstrations(), line_demonstrations(3, seed=1)
    found = selection_metrics(linear_policy([0.2, 0.5], demos), context)
    errors = 0.3 * np.abs(held_out.obs) / demos.act.std(0)
    assert found["error_absolute"] == pytest.approx([0, errors.mean()], abs=1e-5)
    assert found["error_squared"] == pytest.approx([0, (errors**2).mean()], rel=1e-4, abs=1e-9)
    assert found["error_median"][1] == pytest.approx(np.median(np.sort(errors.mean(1))[:-1]), rel=0.05)
    rows = np.sort((errors**2).mean(1))
    assert found["error_trimmed"][1] == pytest.approx(rows[: round(0.9 * len(rows))].mean(), rel=1e-4)
    # ∂π/∂s is −g in raw units; here states and actions are scaled by their standard deviations.
    ratio = np.mean(demos.obs.std(0)) / np.mean(demos.act.std(0))
    assert found["sensitivity"][1] == pytest.approx(0.5 * ratio, rel=0.05)
    assert found["sensitivity"][0] == pytest.approx(0.4 * found["sensitivity"][1], rel=1e-3)


def test_rollouts_prefer_the_expert(context: SelectionContext) -> None:
    found = selection_metrics(linear_policy([0.2, -0.3, 0.0], line_demonstrations()), context)
    for name in ("track_5", "recover_5", "follow_5", "near_absolute"):
        expert, away, still = found[name]
        assert expert < still < away, name
    assert found["model_5"][0] < 0.2, "the dynamics were learned"
    expert, _, still = found["lag_5"]
    assert expert < 0.2, "as many steps left as in the demonstration"
    assert still > 0.4, "it stays where it starts"
    assert found["track_5"][0] == pytest.approx(found["model_5"][0], abs=0.02), "the expert's own actions"
    assert np.isnan(found["track_20"]).all(), "no episode is that long"


def test_a_member_is_measured_the_same_alone(context: SelectionContext) -> None:
    policy = linear_policy([0.2, 0.5, -0.3], line_demonstrations())
    together, alone = selection_metrics(policy, context), selection_metrics(policy[1], context)
    assert list(together) == list(NAMES)
    for name in set(NAMES) - {"disagreement", "near_disagreement"}:
        assert together[name][1] == pytest.approx(alone[name][0], rel=1e-3, abs=1e-5, nan_ok=True), name


def test_disagreement_is_among_seeds_of_the_same_settings(context: SelectionContext) -> None:
    demos = line_demonstrations()
    members: list[dict[str, int | float]] = [
        {"seed": 0, "coefficient": 0.0},
        {"seed": 0, "coefficient": 1.0},
        {"seed": 1, "coefficient": 0.0},
        {"seed": 0, "coefficient": 2.0},
    ]
    assert same_settings(members) == [[0, 2], [1], [3]]
    found = selection_metrics(linear_policy([0.2, 0.7, 0.5, 0.9], demos, members), context)["disagreement"]
    held_out = line_demonstrations(3, seed=1)
    expected = np.sqrt(np.mean((0.3 * held_out.obs / demos.act.std(0)) ** 2))
    assert found[0] == pytest.approx(expected, rel=1e-4)
    assert found[2] == pytest.approx(expected, rel=1e-4)
    assert np.isnan(found[1])
    assert np.isnan(found[3])


def test_costs_need_a_guide() -> None:
    train, held_out = line_demonstrations(12), line_demonstrations(3, seed=1)
    context = SelectionContext.prepare(train, held_out, dynamics=QUICK)
    short = Training(updates=300, lr=3e-3)
    dbc = DBC(
        training=short, network=Network(32, 1), guide=DiffusionGuide(width=64, depth=2, training=short), coefficient=1.0
    )
    policy = fit(dbc, train, seeds=(0, 1), vary={"coefficient": [0.0, 1.0]}, suggest=False)
    found = selection_metrics(policy, context)
    assert np.isfinite(found["cost"]).all()
    assert np.isfinite(found["near_cost"]).all()
    assert len(set(found["cost"])) == 4
    bc = fit(BC(training=short, network=Network(32, 1)), train, suggest=False)
    assert np.isnan(selection_metrics(bc, context)["cost"]).all()


def test_images_have_errors_only() -> None:
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 255, (40, 3 * 36 * 36)).astype(np.uint8)
    demos = Demonstrations.from_arrays(obs, rng.normal(size=(40, 2)), episode_ends=[20, 40])
    context = SelectionContext.prepare(demos.take([0]), demos.take([1]))
    assert context.reference is None
    zero = Policy(ZeroAction(normalisation="none"), Gains([0.0]), Normaliser.identity(demos), [{"seed": 0}])
    found = selection_metrics(zero, context)
    assert np.isfinite(found["error_absolute"]).all()
    assert np.isnan(found["track_5"]).all()
    assert np.isnan(found["sensitivity"]).all()


class ZeroAction(Linear):
    """π(s) = 0, of two numbers."""

    def act(self, weights: Gains, obs: Tensor, rng: Rng) -> Tensor:
        return torch.zeros(len(weights.gain), obs.shape[1], 2)


def test_no_dynamics_without_consecutive_steps() -> None:
    demos = line_demonstrations(6, steps=1)
    assert learn_dynamics(demos, torch.device("cpu"), QUICK) is None
    context = SelectionContext.prepare(demos.take([0, 1, 2]), demos.take([3, 4, 5]), dynamics=QUICK)
    found = selection_metrics(linear_policy([0.2], demos), context)
    assert np.isnan(found["track_5"]).all()
    assert np.isfinite(found["near_absolute"]).all()
    thinned = line_demonstrations().subsample(0.5, by="transition")
    assert learn_dynamics(thinned, torch.device("cpu"), QUICK) is None


def test_nearly_constant_dimensions_do_not_dominate() -> None:
    demos = line_demonstrations()
    obs = np.concatenate([demos.obs, 1e-6 * demos.obs[:, :1], np.full((len(demos), 1), 3.0)], 1)
    scale = Scale.from_demonstrations(
        Demonstrations.from_arrays(obs, demos.act, episode_ends=demos.episode_ends), torch.device("cpu")
    )
    z = scale.scale_obs(torch.tensor(obs).float())
    assert z[:, 0].std() == pytest.approx(1, rel=0.02)
    assert z[:, 2:].abs().max() < 1e-4
    assert scale.restore_obs(z).numpy() == pytest.approx(obs, abs=1e-5)


def test_rollouts_of_a_row_use_one_network() -> None:
    dynamics = learn_dynamics(line_demonstrations(), torch.device("cpu"), QUICK)
    assert dynamics is not None
    z, a = torch.zeros(1, 2 * MODELS, 2), torch.zeros(1, 2 * MODELS, 2)
    states = dynamics.step(z, a)[0]
    assert torch.allclose(states[:MODELS], states[MODELS:], atol=1e-6)
    assert len({tuple(row) for row in states[:MODELS].tolist()}) == MODELS


def test_whole_episodes_are_held_out_if_there_are_enough() -> None:
    demos = line_demonstrations(10)
    parts = hold_out(demos)
    assert parts is not None
    train, held_out = parts
    assert (train.num_episodes, held_out.num_episodes) == (8, 2)
    assert not train.find_shared_episodes(held_out)
    four = hold_out(demos.take([0, 1, 2, 3]))
    assert four is not None
    assert four[1].num_episodes == 1


@pytest.mark.parametrize("episodes", [1, 2, 3])
def test_pieces_are_held_out_of_few_episodes(episodes: int) -> None:
    demos = line_demonstrations(episodes, steps=60)
    parts = hold_out(demos)
    assert parts is not None
    train, held_out = parts
    assert train.num_steps + held_out.num_steps == demos.num_steps
    assert held_out.num_steps == pytest.approx(0.2 * demos.num_steps, rel=0.05)
    rows = {tuple(row) for row in train.obs.tolist()}
    assert not any(tuple(row) in rows for row in held_out.obs.tolist())


def test_too_short_to_hold_out() -> None:
    assert hold_out(line_demonstrations(1, steps=1)) is None
    assert hold_out(line_demonstrations(3, steps=4)) is None
    assert hold_out(line_demonstrations(5, steps=1)) is not None
