"""Small policies and batches; nothing here uses a network."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from typing import Any

import numpy as np
import pytest
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from torch import Tensor

from diffclone import Demonstrations
from lerobot_policy_diffclone import DiffcloneConfig

OBS, ACT, ROWS = 3, 2, 16
SMALL = {
    "type": "dbc",
    "network": {"width": 8, "depth": 2},
    "guide": {"type": "diffusion", "width": 8, "depth": 1, "steps": 20},
}


def make_config(**changes: Any) -> DiffcloneConfig:
    values: dict[str, Any] = {
        "method": SMALL,
        "guide_steps": 4,
        "input_features": {"observation.state": PolicyFeature(FeatureType.STATE, (OBS,))},
        "output_features": {"action": PolicyFeature(FeatureType.ACTION, (ACT,))},
        "device": "cpu",
    }
    return DiffcloneConfig(**(values | changes))


@pytest.fixture
def batch() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    return {
        "observation.state": torch.randn(ROWS, OBS, generator=g),
        "action": torch.randn(ROWS, 1, ACT, generator=g),
    }


@pytest.fixture
def demos() -> Demonstrations:
    rng = np.random.default_rng(0)
    obs = rng.normal(2, 3, (200, OBS))
    return Demonstrations.from_arrays(obs, np.sin(obs[:, :ACT]), episode_ends=range(10, 201, 10))


def stats_of(demos: Demonstrations) -> dict[str, dict[str, Any]]:
    """Return statistics as LeRobot computes them."""
    columns = {"observation.state": demos.obs, "action": demos.act}
    return {key: {"mean": v.mean(0), "std": v.std(0), "min": v.min(0), "max": v.max(0)} for key, v in columns.items()}
