import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from diffclone import methods
from diffclone.experiments import measure_samples
from diffclone.experiments.measure import MEASURES
from diffclone.experiments.measurement import MeasureInput
from diffclone.files import read_lines
from diffclone.fit import FitOptions, fit
from diffclone.guides import DiffusionGuide
from diffclone.model import Dims, Training
from diffclone.nn import Network
from diffclone.rng import Rng
from diffclone.tasks import TASKS
from diffclone.training.runs import train_run


def trained_on_spiral(folder: Path) -> MeasureInput:
    """Train a small diffusion model and its policies."""
    guide = DiffusionGuide(training=Training(updates=320, lr=1e-2), width=64, steps=50)
    method = methods.DBC(
        training=Training(updates=32), network=Network(width=16, depth=1), coefficient=1.0, guide=guide
    )
    demos = TASKS["spiral"].demonstrations()
    run = train_run(
        folder, method, demos, FitOptions(seeds=[0, 1], vary={"imitation": [0.0, 1.0]}, device="cpu"), task="spiral"
    )
    return MeasureInput("spiral", {}, demos, demos, run.policy().choose([2, 3]), run.metrics, [2, 3])


def test_measurements_of_a_diffusion_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_samples, "STATES", 64)
    given = trained_on_spiral(tmp_path / "run")
    found = MEASURES["reconstruction"](given).results
    variance = float(given.demos.act.var(0).mean())
    curve = MEASURES["reconstruction-curve"](given).results
    assert curve["steps"][-1] == 50
    means = [float(np.mean(errors)) for errors in curve["curve"]]
    assert means[0] < 0.1 * variance, "little noise changes little"
    assert means[-1] > 5 * means[0]
    assert len(found["mse"]) == 2
    assert max(found["mse"]) < 0.7 * variance, "actions depend on the state"
    assert found["action_noise"] == 0.0
    noisy = dataclasses.replace(given, demos=given.demos.with_action_noise(0.05))
    assert MEASURES["reconstruction"](noisy).results["mse"] == found["mse"], "the error is to the clean actions"
    assert MEASURES["reconstruction"](noisy).results["action_noise"] == 0.05
    samples = MEASURES["samples"](noisy).results
    assert not np.isin(np.unique(np.round(samples["expert"], 3)), [0.5, 0, -0.7]).all(), "the noisy actions are stored"
    curves = MEASURES["curves"](given).results
    assert np.array(curves["losses"]["L_DM"]).shape == (len(curves["updates"]), 2)
    assert given.metrics is not None
    last = read_lines(given.metrics)[-1]
    assert curves["losses"]["L_BC"][-1] == [round(last["L_BC"][member], 6) for member in given.members]


def test_the_gradient_field_points_to_the_data() -> None:
    """The denoiser is exact for pairs at one position."""
    from diffclone.tasks.maze import CELLS

    demos = TASKS["maze"].demonstrations()
    place = torch.tensor([2.0, 2.0])

    class Exact(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))  # the guide of one member

        def forward(self, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            k = int(t.flatten()[0])
            middle = (place - normaliser.obs_mean[:2]) / normaliser.obs_std[:2]
            gap = torch.zeros_like(x_t)
            gap[..., :2] = x_t[..., :2] - model.signal[k] * middle
            return gap / model.noise[k]

    guide = DiffusionGuide(training=Training(updates=1), width=8, steps=100)
    method = methods.DBC(training=Training(updates=1), network=Network(width=8, depth=1), coefficient=1.0, guide=guide)
    policy = fit(method, demos, device="cpu")
    normaliser = policy.normaliser
    model = guide.init(Dims(6, 2), Rng([0])["init"])
    model.denoiser = Exact()  # pyright: ignore[reportAttributeAccessIssue]
    assert policy.guide is not None
    policy = dataclasses.replace(policy, guide=dataclasses.replace(policy.guide, load=lambda: {"guide": model}))
    given = MeasureInput("maze", {}, demos, demos, policy, quick=True)
    found = MEASURES["field"](given).results
    points, arrows = np.array(found["positions"]), np.array(found["directions"])
    assert len(points) == 25 * len(CELLS)
    np.testing.assert_allclose(points + arrows, np.tile(place.numpy(), (len(points), 1)), atol=2e-3)
