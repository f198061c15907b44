import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, final

import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest

from diffclone import BC, Demonstrations, Network, Policy, Scores, Training, evaluate, fit
from diffclone.errors import InvalidSettings, UnknownName
from diffclone.tasks import TASKS
from diffclone.tasks.batch import START_SEEDS, BatchEnv, Doubles, Outcome, Rows, Starts

EPISODES = 30


@pytest.fixture(scope="module")
def policy() -> Policy:
    """Three members that reach some goals and miss others."""
    method = BC(training=Training(updates=200, lr=5e-3), network=Network(width=32, depth=2))
    return fit(method, TASKS["maze"].demonstrations(), seeds=(0, 1, 2), device="cpu")


@pytest.fixture(scope="module")
def scores(policy: Policy) -> Scores:
    return evaluate(policy, "maze", episodes=EPISODES)


def table(scores: Scores) -> npt.NDArray[np.float64]:
    return np.stack([scores.success, scores.length, scores.returns]).astype(np.float64)


def first_observations(policy: Policy, episodes: int, **options: Any) -> npt.NDArray[np.float64]:
    """Return the first observation of each (member, episode)."""
    seen: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = []
    evaluate(
        policy, "maze", episodes=episodes, on_step=lambda rows, obs, act: seen.append((rows.copy(), obs)), **options
    )
    rows, obs = seen[0]
    assert rows.tolist() == list(range(len(policy) * episodes))
    return obs.reshape(len(policy), episodes, -1)


def test_every_episode_counts(scores: Scores) -> None:
    assert scores.success.shape == scores.length.shape == scores.returns.shape == (3, EPISODES)
    assert 0 < scores.success_rate < 1, "the fixture must have successes and failures"
    assert scores.length.min() >= 1
    assert scores.length.max() == 400
    assert np.all(scores.length[~scores.success] == 400)
    assert np.all((scores.returns > 0) & (scores.returns <= scores.length))


def test_a_member_scores_the_same_alone(policy: Policy, scores: Scores) -> None:
    for member in range(3):
        alone = evaluate(policy[member], "maze", episodes=EPISODES)
        assert np.array_equal(alone.success[0], scores.success[member])
        assert np.array_equal(alone.length[0], scores.length[member])
        np.testing.assert_allclose(alone.returns[0], scores.returns[member], rtol=1e-4)


def test_a_score_is_that_of_an_episode_run_by_hand(policy: Policy, scores: Scores) -> None:
    one, env, member = np.zeros(1, dtype=np.int64), TASKS["maze"].make(1), policy[1]
    for episode in range(6):
        env.reset(one, [np.random.default_rng(START_SEEDS["evaluation"] + episode)])
        length, total, outcome = 0, 0.0, None
        while outcome is None or not (outcome.ended[0] or length == 400):
            outcome = env.step(one, member(env.observe(one)))
            length, total = length + 1, total + float(outcome.reward[0])
        assert (bool(outcome.success[0]), length) == (scores.success[1, episode], scores.length[1, episode])
        assert total == pytest.approx(scores.returns[1, episode], rel=1e-4)
    env.close()


@pytest.mark.parametrize("protocol", ["fixed", "paper"])
def test_evaluation_is_deterministic(policy: Policy, protocol: Any) -> None:
    first, again = (table(evaluate(policy[0], "maze", episodes=5, protocol=protocol)) for _ in range(2))
    assert np.array_equal(first, again)


def test_more_episodes_start_with_the_same_ones(policy: Policy, scores: Scores) -> None:
    few = evaluate(policy, "maze", episodes=4)
    assert np.array_equal(few.success, scores.success[:, :4])
    assert np.array_equal(few.length, scores.length[:, :4])


def test_starts_are_the_same_for_every_member(policy: Policy) -> None:
    obs = first_observations(policy, 8)
    assert np.array_equal(obs[0], obs[1])
    assert np.array_equal(obs[0], obs[2])
    assert len(np.unique(obs[0], axis=0)) == 8


def test_lists_of_starts_are_disjoint(policy: Policy) -> None:
    starts: tuple[Starts, ...] = ("evaluation", "validation")
    evaluation, validation = (first_observations(policy[0], 20, starts=name)[0] for name in starts)
    assert len(np.unique(np.concatenate([evaluation, validation]), axis=0)) == 40
    assert sorted(START_SEEDS.values()) == [1_000_000, 2_000_000, 3_000_000, 4_000_000]


def test_options_reach_the_task(policy: Policy) -> None:
    scores = evaluate(policy[0], "maze", episodes=10, end_on_success=False)
    ended = evaluate(policy[0], "maze", episodes=10)
    assert np.all(scores.length == 400)
    assert np.array_equal(scores.success, ended.success)
    with pytest.raises(InvalidSettings, match="coverage"):
        evaluate(policy[0], "maze", episodes=10, coverage=0.0)


def test_progress_ends_at_the_number_of_episodes(policy: Policy) -> None:
    seen: list[tuple[int, int]] = []
    evaluate(policy, "maze", episodes=5, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (15, 15)


def test_the_papers_protocol_counts_a_hundred(policy: Policy) -> None:
    scores = evaluate(policy, "maze", episodes=7, protocol="paper")
    assert scores.success.shape == scores.length.shape == scores.returns.shape == (3, 100)
    assert scores.length.min() >= 1
    assert scores.length.max() <= 400
    alone = evaluate(policy[2], "maze", protocol="paper")
    assert np.array_equal(alone.success[0], scores.success[2])
    assert np.array_equal(alone.length[0], scores.length[2])


@final
class Lottery(BatchEnv):
    """Nineteen of twenty episodes succeed at the second step; the others never do."""

    def __init__(self, count: int):
        self.count, self.act_low, self.act_high = count, -np.ones(2), np.ones(2)
        self.wins, self.steps = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.int64)

    def reset(self, rows: Rows, rngs: Sequence[np.random.Generator]) -> None:
        self.wins[rows] = [rng.random() < 0.95 for rng in rngs]
        self.steps[rows] = 0

    def step(self, rows: Rows, act: npt.NDArray[Any]) -> Outcome:
        self.steps[rows] += 1
        won = self.wins[rows] & (self.steps[rows] == 2)
        return Outcome(np.ones(len(rows)), won, won)

    def observe(self, rows: Rows) -> Doubles:
        return np.zeros((len(rows), 6))


def test_the_papers_protocol_favours_short_episodes(policy: Policy) -> None:
    lottery = replace(TASKS["maze"], name="lottery", make_batch=Lottery, horizon=300)
    fair = evaluate(policy[0], lottery, episodes=1000)
    paper = evaluate(policy[0], lottery, protocol="paper")
    assert set(np.unique(fair.length)) == {2, 300}
    assert fair.success_rate == pytest.approx(0.95, abs=0.02)
    assert np.array_equal(fair.length == 2, fair.success)
    # Ten environments have a hundred successes before the first failure ends, so no failure is counted.
    assert paper.success_rate == 1
    assert paper.length.max() == 2


def test_the_error_for_a_policy_of_other_sizes_names_both() -> None:
    obs = np.random.default_rng(0).normal(size=(20, 3))
    demos = Demonstrations.from_arrays(obs, obs[:, :1], episode_ends=[20])
    method = BC(training=Training(updates=2), network=Network(width=4, depth=1))
    with pytest.raises(InvalidSettings, match="the policy maps 3 numbers to 1; maze gives 6 and takes 2"):
        evaluate(fit(method, demos, device="cpu"), "maze")


@pytest.mark.parametrize("episodes", [0, -3])
def test_fewer_than_one_episode_is_refused(policy: Policy, episodes: int) -> None:
    with pytest.raises(InvalidSettings, match=f"at least one episode must be run; {episodes} were requested"):
        evaluate(policy, "maze", episodes=episodes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "maze"}, "the first argument of evaluate must be a Policy; it is of type str"),
        ({"episodes": 2.5}, "at least one episode must be run; 2.5 were requested"),
        ({"protocol": "papr"}, "protocol must be fixed or paper; it is 'papr'"),
        ({"starts": "test"}, "starts must be evaluation or validation; it is 'test'"),
    ],
)
def test_arguments_of_a_wrong_kind_are_one_line(
    policy: Policy, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users have no type checks
    with pytest.raises(InvalidSettings, match=message):
        evaluate(**dict[str, Any](policy=policy, task="maze") | options)


def test_the_error_for_an_unknown_task_names_the_nearest(policy: Policy) -> None:
    with pytest.raises(UnknownName, match="unknown task 'mase'; did you mean 'maze'"):
        evaluate(policy, "mase")


def test_a_summary_is_json_and_agrees_with_the_arrays(scores: Scores) -> None:
    summary = json.loads(json.dumps(scores.summary()))
    assert summary["success_rate"] == scores.success_rate == pytest.approx(scores.success.mean())
    assert summary["member_success"] == pytest.approx(scores.success.mean(1))
    assert summary["success_sd_over_members"] == pytest.approx(np.std(scores.success.mean(1), ddof=1))
    assert summary["mean_length"] == pytest.approx(scores.length.mean())
    assert summary["mean_return"] == pytest.approx(scores.returns.mean())
    assert (summary["members"], summary["episodes"]) == (3, EPISODES)
    assert (summary["task"], summary["protocol"], summary["starts"]) == ("maze", "fixed", "evaluation")
    low, high = summary["success_interval"]
    assert 0 <= low < scores.success_rate < high <= 1


def test_a_summary_stores_every_outcome(scores: Scores) -> None:
    outcomes = json.loads(json.dumps(scores.summary()))["outcomes"]
    assert [[flag == "1" for flag in member] for member in outcomes["success"]] == scores.success.tolist()
    np.testing.assert_allclose(outcomes["returns"], scores.returns, rtol=1e-5)
    assert max(len(str(value)) for member in outcomes["returns"] for value in member) <= 8


def test_one_member_has_no_standard_deviation(policy: Policy) -> None:
    assert evaluate(policy[0], "maze", episodes=2).summary()["success_sd_over_members"] is None
