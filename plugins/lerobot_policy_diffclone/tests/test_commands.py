"""LeRobot's own commands with this policy, on a dataset that LeRobot writes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.envs.factory import make_env
from lerobot.envs.utils import preprocess_observation
from safetensors.torch import load_file

from conftest import SMALL
from diffclone.errors import InvalidSettings
from lerobot_policy_diffclone import GymnasiumStateEnv
from lerobot_policy_diffclone.convert import to_diffclone


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
        "action": {"dtype": "float32", "shape": (1,), "names": None},
    }
    root, rng = tmp_path / "data", np.random.default_rng(0)
    writer = LeRobotDataset.create("local/pendulum", fps=20, features=features, root=root, use_videos=False)
    for _ in range(2):
        for _ in range(20):
            obs = rng.normal(size=3).astype(np.float32)
            writer.add_frame({"observation.state": obs, "action": np.sin(obs[:1]), "task": "swing up"})
        writer.save_episode()
    writer.finalize()
    return root


def lerobot(command: str, *arguments: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / f"lerobot-{command}", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_train_resume_and_play(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "train"
    options = [
        "--dataset.repo_id=local/pendulum",
        f"--dataset.root={dataset}",
        "--policy.type=diffclone",
        "--policy.device=cpu",
        "--policy.guide_steps=3",
        f"--policy.method={json.dumps(SMALL)}",
        "--batch_size=8",
        "--num_workers=0",
        "--steps=6",
        "--save_freq=4",
        f"--output_dir={out}",
    ]
    lerobot("train", *options)
    saved = out / "checkpoints" / "last" / "pretrained_model"
    whole = load_file(out / "checkpoints" / "000006" / "pretrained_model" / "model.safetensors")
    shutil.rmtree(out / "checkpoints" / "000006")
    config = out / "checkpoints" / "000004" / "pretrained_model" / "train_config.json"
    lerobot("train", f"--config_path={config}", "--resume=true")
    resumed = load_file(saved / "model.safetensors")
    assert int(resumed["updates"]) == 6
    assert all(torch.allclose(resumed[name], value, atol=1e-6) for name, value in whole.items())
    assert {"config.json", "model.safetensors", "policy_preprocessor.json"} <= {path.name for path in saved.iterdir()}
    assert to_diffclone(saved)(np.zeros((2, 3))).shape == (2, 1), "an action of one number"
    lerobot(
        "eval",
        f"--policy.path={saved}",
        "--policy.device=cpu",
        "--env.type=gymnasium_state",
        "--env.task=Pendulum-v1",
        '--env.kwargs={"max_episode_steps": 5}',
        "--eval.n_episodes=2",
        "--eval.batch_size=2",
        "--eval.use_async_envs=false",
        f"--output_dir={tmp_path / 'eval'}",
    )
    info = json.loads((tmp_path / "eval" / "eval_info.json").read_text())
    assert info["overall"]["n_episodes"] == 2
    assert info["overall"]["avg_sum_reward"] < 0


def test_the_environment_names_states_as_lerobot_does() -> None:
    config = GymnasiumStateEnv(task="Pendulum-v1", kwargs={"max_episode_steps": 3})
    env = make_env(config, n_envs=2)["gymnasium_state"][0]
    obs, _ = env.reset(seed=[1, 2], options={"lerobot_new_rollout": True})
    assert preprocess_observation(obs)["observation.state"].shape == (2, 3)
    for _ in range(3):
        _, _, _, truncated, info = env.step(np.zeros((2, 1), np.float32))
    assert truncated.all()
    assert info["final_info"]["is_success"].tolist() == [False, False]
    assert env.call("_max_episode_steps") == (3, 3)
    env.close()
    with pytest.raises(InvalidSettings, match="observations and actions must be rows of numbers; action is Discrete"):
        GymnasiumStateEnv(task="CartPole-v1")
