from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.lerobot_types import TransitionKey
from lerobot.policies.factory import make_pre_post_processors

from conftest import ACT, OBS
from diffclone import BC, DBC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy.calibration import calibrate
from diffclone.errors import DiffcloneError, InvalidData, InvalidFile
from diffclone.fit import FitOptions
from diffclone.guides import DiffusionGuide
from diffclone.training.runs import train_run
from lerobot_policy_diffclone import DiffclonePolicy, MonitorProcessorStep, attach_monitor
from lerobot_policy_diffclone.convert import to_diffclone, to_lerobot


@pytest.fixture
def policy(demos: Demonstrations) -> Policy:
    guide = DiffusionGuide(width=8, depth=1, steps=20, training=Training(updates=20))
    bounded = replace(demos, meta={**demos.meta, "action_bounds": [[-0.2] * ACT, [0.2] * ACT]})
    return fit(DBC(Training(updates=20), network=Network(width=8, depth=1), guide=guide), bounded, seeds=[3])


def test_a_policy_acts_the_same_in_lerobot_and_after_it(policy: Policy, demos: Demonstrations, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy")
    to_lerobot(tmp_path / "policy", tmp_path / "lerobot")
    converted = DiffclonePolicy.from_pretrained(tmp_path / "lerobot")
    pre, post = make_pre_post_processors(converted.config, str(tmp_path / "lerobot"))
    obs = torch.tensor(np.concatenate([demos.obs, 100 * demos.obs]))
    act = post(converted.select_action(pre({"observation.state": obs})))
    assert torch.allclose(act, torch.tensor(policy(obs.numpy())), atol=1e-4)
    back = to_diffclone(tmp_path / "lerobot")
    assert back.guide is None  # the folder of a policy has none
    assert np.allclose(back(obs.numpy()), policy(obs.numpy()), atol=1e-4)
    assert policy.bounds is not None
    assert back.bounds is not None
    assert back.bounds[0].tolist() == policy.bounds[0].tolist()
    with pytest.raises(InvalidFile, match="exists already"):
        to_lerobot(tmp_path / "policy", tmp_path / "lerobot")


def test_a_run_is_converted_with_its_guide(demos: Demonstrations, tmp_path: Path) -> None:
    guide = DiffusionGuide(width=8, depth=1, steps=20, training=Training(updates=5))
    method = DBC(Training(updates=5), network=Network(width=8, depth=1), guide=guide)
    run = train_run(tmp_path / "run", method, demos, FitOptions(seeds=[3, 4], device="cpu"))
    to_lerobot(tmp_path / "run", tmp_path / "lerobot", member=1)
    back, expected = to_diffclone(tmp_path / "lerobot"), run.policy()[1]
    assert back.guide is not None
    assert expected.guide is not None
    costs = [one.cost(demos.obs[:5], demos.act[:5]) for one in (back.guide, expected.guide)]
    assert np.allclose(*costs, rtol=1e-3)
    assert back.members[0]["seed"] == 4


def test_chunks_are_converted(demos: Demonstrations, tmp_path: Path) -> None:
    method = BC(Training(updates=5), network=Network(width=8), horizon=3, execute=2, history=2)
    policy = fit(method, demos)
    policy.save(tmp_path / "policy")
    to_lerobot(tmp_path / "policy", tmp_path / "lerobot")
    converted = DiffclonePolicy.from_pretrained(tmp_path / "lerobot")
    pre, post = make_pre_post_processors(converted.config, str(tmp_path / "lerobot"))
    sessions = policy.session(), to_diffclone(tmp_path / "lerobot").session()
    for obs in demos.obs[:4]:
        act = post(converted.select_action(pre({"observation.state": torch.tensor(obs[None])})))[0].numpy()
        for session in sessions:
            assert np.allclose(session(obs), act, atol=1e-4)


@pytest.fixture
def calibrated(policy: Policy, demos: Demonstrations, tmp_path: Path) -> Path:
    held_out = Demonstrations.from_arrays(demos.obs + 0.01, demos.act, episode_ends=demos.episode_ends)
    calibrate(policy, held_out, alpha=0.2).save(tmp_path / "calibrated")
    return tmp_path / "calibrated"


def test_the_monitor_scores_what_the_policy_does(calibrated: Path, demos: Demonstrations, tmp_path: Path) -> None:
    to_lerobot(calibrated, tmp_path / "lerobot")
    robot = DiffclonePolicy.from_pretrained(tmp_path / "lerobot")
    pre, post = make_pre_post_processors(robot.config, str(tmp_path / "lerobot"))
    step = MonitorProcessorStep(str(calibrated))
    attach_monitor(pre, post, step)
    obs = torch.tensor(np.stack([demos.obs[0], demos.obs[0] + 1000]))
    act = post(robot.select_action(pre({"observation.state": obs})))
    assert step.last is not None
    assert step.last["alarm"]["both"] == [False, True]
    expected = Policy.load(calibrated).monitor(obs.numpy(), act.numpy()).to_dict()
    assert step.last["both"] == pytest.approx(expected["both"], rel=1e-3)
    step.reset()
    with pytest.raises(InvalidData, match="an action but no observation"):
        post(torch.zeros(1, ACT))


def test_a_transition_with_both_gets_scores_in_its_info(calibrated: Path, demos: Demonstrations) -> None:
    step = MonitorProcessorStep(**MonitorProcessorStep(str(calibrated)).get_config())
    transition = {
        TransitionKey.OBSERVATION: {"observation.state": torch.tensor(demos.obs[:5])},
        TransitionKey.ACTION: torch.tensor(demos.act[:5]),
        TransitionKey.INFO: {"kept": 1},
    }
    result = step(transition)
    assert result[TransitionKey.INFO]["kept"] == 1
    assert len(result[TransitionKey.INFO]["diffclone_monitor"]["state"]) == 5
    assert "diffclone_monitor" not in transition[TransitionKey.INFO]


def test_a_policy_without_a_monitor_is_refused(policy: Policy, tmp_path: Path) -> None:
    policy.save(tmp_path / "plain")
    with pytest.raises(DiffcloneError, match="has no calibrated monitor"):
        MonitorProcessorStep(str(tmp_path / "plain"))
    assert policy.dims.obs == OBS
