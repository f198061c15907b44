import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.factory import get_policy_class, make_pre_post_processors
from torch import Tensor

from conftest import ACT, OBS, ROWS, SMALL, make_config, stats_of
from diffclone import Demonstrations, fit
from diffclone.errors import InvalidSettings
from diffclone.rng import Rng
from diffclone.training.session import prepare_session
from diffclone.training.step import Dataset
from lerobot_policy_diffclone import DiffclonePolicy


def train(policy: DiffclonePolicy, batches: list[dict[str, Tensor]]) -> list[dict[str, float]]:
    """Do what LeRobot's update_policy does, with a batch per step."""
    preset = policy.config.get_optimizer_preset()
    optimizer = preset.build(policy.get_optim_params())
    schedule = policy.config.get_scheduler_preset().build(optimizer, len(batches))
    logs: list[dict[str, float]] = []
    for batch in batches:
        policy.train()
        loss, log = policy.forward(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), preset.grad_clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        policy.update()
        logs.append(log)
    return logs


def weights(net: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_equal_batches_give_the_weights_of_diffclone(demos: Demonstrations) -> None:
    updates = {"guide": 5, "policy": 6}
    training = {"batch": ROWS, "lr": 1e-2}
    method = {
        **SMALL,
        "training": {**training, "updates": updates["policy"]},
        "guide": {**SMALL["guide"], "training": {**training, "updates": updates["guide"]}},
    }
    config = make_config(method=method, guide_steps=updates["guide"])
    expected = fit(config.make_method(), demos, seeds=[7], suggest=False)

    policy = DiffclonePolicy(config)
    policy.seed.fill_(7)
    dims, seeds = config.dims, [7]
    policy.net = policy.method.init(dims, Rng(seeds, path="policy")["init"])
    policy.guide = policy.guide_model.init(dims, Rng(seeds, path="guide")["init"])
    _, session = prepare_session(demos, "z-score", torch.device("cpu"), torch.float32)
    batches = []
    for stage, count in updates.items():  # the batches that diffclone draws
        rng = Rng(seeds, path=stage)
        for n in range(count):
            rng.clock.start(torch.tensor(n), 1)
            drawn = Dataset(session.data.obs, session.data.act).sample(ROWS, rng["batch"])
            batches.append({"observation.state": drawn.obs[0], "action": drawn.act[0][:, None]})
    logs = train(policy, batches)
    assert [sorted(log) for log in logs] == [["L_diff"]] * 5 + [["L_BC", "L_DM", "L_agent", "L_away", "L_expert"]] * 6
    assert expected.guide is not None
    assert torch.allclose(weights(policy.guide), weights(expected.guide.weights), atol=1e-5)
    assert torch.allclose(weights(policy.net), weights(expected.net), atol=1e-5)


def test_each_stage_trains_one_network(batch: dict[str, Tensor]) -> None:
    policy = DiffclonePolicy(make_config())
    states: list[tuple[Tensor, Tensor]] = []
    preset = policy.config.get_optimizer_preset()
    optimizer = preset.build(policy.get_optim_params())
    for _ in range(6):
        states.append((weights(policy.guide), weights(policy.net)))
        policy.train()
        policy.forward(batch)[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        policy.update()
    changed = [tuple(not torch.equal(a, b) for a, b in zip(x, y, strict=True)) for x, y in pairwise(states)]
    assert changed == [(True, False)] * 4 + [(False, True)]


def test_learning_rates_decrease_in_their_own_stage() -> None:
    policy = DiffclonePolicy(make_config())
    optimizer = policy.config.get_optimizer_preset().build(policy.get_optim_params())
    schedule = policy.config.get_scheduler_preset().build(optimizer, 12)
    rates = []
    for _ in range(12):
        rates.append([group["lr"] / group["initial_lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    assert [group["stage"] for group in optimizer.param_groups] == ["guide", "policy"]
    assert [guide for guide, _ in rates] == pytest.approx([1, 0.75, 0.5, 0.25] + [0] * 8)
    assert [own for _, own in rates] == pytest.approx([1] * 4 + [1 - k / 8 for k in range(8)])
    with pytest.raises(InvalidSettings, match="the guide takes the first 4 steps, and --steps is 4"):
        policy.config.get_scheduler_preset().build(optimizer, 4)


def test_training_resumes_from_a_saved_policy(batch: dict[str, Tensor], tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy = DiffclonePolicy(make_config(guide_steps=2))
    for _ in range(3):
        policy.update()
    policy.save_pretrained(tmp_path)
    again = DiffclonePolicy.from_pretrained(tmp_path)
    assert not again.training
    for one in (policy, again):
        one.train()
    (loss, log), (loss_again, log_again) = policy.forward(batch), again.forward(batch)
    assert "L_DM" in log  # the third step belongs to the policy
    assert loss == loss_again
    assert log == log_again
    assert all(parameter.is_contiguous() for parameter in again.parameters())  # or no checkpoint can be saved
    assert get_policy_class("diffclone") is DiffclonePolicy
    assert json.loads((tmp_path / "config.json").read_text())["type"] == "diffclone"
    assert PreTrainedConfig.from_pretrained(tmp_path).method == SMALL


CHUNKS = {"type": "bc", "network": {"width": 8}, "horizon": 3, "execute": 2, "history": 2}


def test_chunks_are_played_action_by_action(batch: dict[str, Tensor]) -> None:
    config = make_config(method=CHUNKS)
    policy = DiffclonePolicy(config)
    assert (config.observation_delta_indices, config.action_delta_indices) == ([-1, 0], [0, 1, 2])
    assert (config.n_obs_steps, config.n_action_steps, config.chunk_size) == (2, 2, 3)
    first, second, third = (batch["observation.state"] + k for k in range(3))

    def plan(*steps: Tensor) -> Tensor:
        return policy.predict_action_chunk({"observation.state": torch.stack(steps, 1)})

    actions = [policy.select_action({"observation.state": obs}) for obs in (first, second, third)]
    assert torch.equal(actions[0], plan(first, first)[:, 0])  # the first observation is repeated
    assert torch.equal(actions[1], plan(first, first)[:, 1])
    assert torch.equal(actions[2], plan(second, third)[:, 0])
    assert plan(first, first).shape == (ROWS, 3, ACT)
    policy.reset()
    assert torch.equal(policy.select_action({"observation.state": third}), plan(third, third)[:, 0])


def test_actions_after_the_end_of_an_episode_have_no_loss(batch: dict[str, Tensor]) -> None:
    policy = DiffclonePolicy(make_config(method=CHUNKS))
    obs, act = torch.stack([batch["observation.state"]] * 2, 1), torch.randn(ROWS, 3, ACT)
    padded = torch.zeros(ROWS, 3, dtype=torch.bool)
    padded[:4, 1:] = True
    error = policy.predict_action_chunk({"observation.state": obs}) - act
    policy.train()
    loss, _ = policy.forward({"observation.state": obs, "action": act, "action_is_pad": padded})
    assert loss.item() == pytest.approx((error.square() * ~padded[..., None]).mean().item(), rel=1e-5)


def test_features_of_one_number_have_no_axis_in_lerobot() -> None:
    features = {"observation.state": PolicyFeature(FeatureType.STATE, (1,))}
    actions = {"action": PolicyFeature(FeatureType.ACTION, (1,))}
    policy = DiffclonePolicy(make_config(input_features=features, output_features=actions))
    pre, _ = make_pre_post_processors(policy.config, dataset_stats={})
    s, a = torch.randn(ROWS), torch.randn(ROWS)
    (loss, _), (expected, _) = (
        policy.forward(batch)
        for batch in (
            pre({"observation.state": s, "action": a}),
            {"observation.state": s[:, None], "action": a[:, None]},
        )
    )
    assert loss == expected


def test_numbers_that_never_vary_are_ignored_and_observations_are_clipped(demos: Demonstrations) -> None:
    stats = stats_of(demos)
    stats["observation.state"]["std"][1] = 0.0
    policy = DiffclonePolicy(make_config(), dataset_stats=stats)
    obs = torch.tensor([[1.0, 5.0, -99.0]])
    assert policy.windows({"observation.state": obs}).tolist() == [[[1.0, 0.0, -10.0]]]


def test_features_are_joined_as_diffclone_reads_them() -> None:
    names = ["observation.environment_state", "observation.extra", "observation.state"]
    features = {name: PolicyFeature(FeatureType.STATE, (1,)) for name in names}
    policy = DiffclonePolicy(make_config(input_features=features))
    obs = policy.windows({name: torch.tensor([[float(k)]]) for k, name in enumerate(names)})
    assert obs.tolist() == [[[2.0, 0.0, 1.0]]]


def test_processors_normalise_with_the_statistics_of_the_dataset(demos: Demonstrations, tmp_path: Path) -> None:
    config = make_config(action_bounds=[[-0.5] * ACT, [0.5] * ACT])
    stats = stats_of(demos)
    pre, post = make_pre_post_processors(config, dataset_stats=stats)
    out = pre({"observation.state": torch.tensor(demos.obs), "action": torch.tensor(demos.act)})
    assert torch.allclose(out["observation.state"].std(0, correction=0), torch.ones(OBS), atol=1e-4)
    assert torch.allclose(out["action"].mean(0), torch.zeros(ACT), atol=1e-4)
    raw = post(out["action"])
    assert torch.allclose(raw, torch.tensor(demos.act).clamp(-0.5, 0.5), atol=1e-4)
    pre.save_pretrained(tmp_path)
    post.save_pretrained(tmp_path)
    _, again = make_pre_post_processors(config, str(tmp_path))
    assert torch.equal(again(out["action"]), raw)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": {"type": "ibc"}}, "policy.method.type must be bc or dbc; it is 'ibc'"),
        ({"method": {"type": "dbc", "guide": {"type": "gan"}}}, "alongside the policy: guide"),
        ({"method": {"type": "dbc", "coeficient": 1}}, "DBC has no coeficient"),
        ({"method": {"type": "dbc", "execute": 2}}, "execute is 2, but a call returns 1"),
        ({"method": {"type": "dbc", "horizon": 2, "ensemble": 0.01}}, "ensemble must be null"),
        ({"guide_steps": -1}, "guide_steps must not be negative"),
    ],
)
def test_settings_are_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message) as error:
        make_config(**changes)
    assert "\n" not in str(error.value)


def test_images_are_refused_in_one_line() -> None:
    images = {"observation.images.top": PolicyFeature(FeatureType.VISUAL, (3, 64, 64))}
    config = make_config(input_features=make_config().input_features | images)
    with pytest.raises(InvalidSettings, match=r"takes states, and the dataset has images: observation\.images\.top"):
        DiffclonePolicy(config)


def test_a_schedule_that_the_loop_cannot_follow_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="the training of the policy must have decay linear"):
        make_config(method={**SMALL, "training": {"decay": "constant"}}).get_optimizer_preset()
