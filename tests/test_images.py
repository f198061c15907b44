import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffclone import BC, DBC, Demonstrations, Policy, Training, fit
from diffclone.data import Normaliser
from diffclone.errors import InvalidSettings
from diffclone.fit import FitOptions, Fitted, fit_with_options
from diffclone.guides import DiffusionGuide
from diffclone.methods import METHODS
from diffclone.model import Batch, Dims, Method
from diffclone.nn import MLP, Network, policy_net
from diffclone.nn.encoder import Encoder
from diffclone.nn.images import LAYERS, ConvNet, Convolution, pool
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training import Progress

IMAGE = (2, 36, 40)
SIZE = 2 * 36 * 40
NETWORK = Network(width=8, depth=1, activation="relu", image=IMAGE)
BRIEF = Training(updates=3, batch=4, lr=1e-3)
GUIDE = DiffusionGuide(training=BRIEF, width=8, depth=1, steps=20)
ENCODER = Encoder(training=BRIEF, network=NETWORK, features=5, pool=4)
EVERY: dict[str, Method[Any]] = {
    "bc": BC(training=BRIEF, network=NETWORK),
    "dbc": DBC(training=BRIEF, network=NETWORK, guide=GUIDE, encoder=ENCODER),
}
methods = pytest.mark.parametrize("name", EVERY)


def make_demos() -> Demonstrations:
    """Return images of a bright spot on a dark background; the action is its position."""
    rng = np.random.default_rng(0)
    obs, act = np.zeros((60, *IMAGE), dtype=np.uint8), np.zeros((60, 2))
    for k in range(60):
        row, column = rng.integers(36), rng.integers(40)
        obs[k, :, row, column] = 255
        act[k] = row / 36, column / 40
    return Demonstrations.from_arrays(obs.reshape(60, SIZE), act, episode_ends=[30, 60])


DEMOS = make_demos()


def fit64(
    method: Method[Any], seeds: tuple[int, ...], progress: Callable[[Progress], None] = lambda now: None, **more: Any
) -> Fitted:
    return fit_with_options(method, DEMOS, FitOptions(seeds=seeds, dtype=torch.float64, device="cpu", **more), progress)


def rows(fitted: Fitted) -> Tensor:
    return torch.cat([p.detach().flatten(1) for p in fitted.trained.net.parameters()], 1)


def double(*seeds: int) -> Rng:
    return Rng(seeds, dtype=torch.float64)


# The network.


def test_a_convolution_equals_torchs_for_each_member() -> None:
    layer = Convolution(3, 5, 4, 2, dataclasses.replace(NETWORK, init="default"), double(0, 1))
    x = double(2, 3)["x"].normal(7, 3, 11, 9)
    found = layer(x)
    for member in range(2):
        weight, bias = layer.weight[member], layer.bias[member].flatten()
        expected = torch.nn.functional.conv2d(x[member], weight, bias, stride=2)
        torch.testing.assert_close(found[member], expected, rtol=1e-12, atol=1e-12)


def test_the_network_is_three_convolutions_and_an_mlp() -> None:
    net = ConvNet(IMAGE, 3, NETWORK, double(0, 1))
    x = double(2, 3)["x"].normal(6, SIZE)
    found = net(x)
    assert found.shape == (2, 6, 3)
    for member in range(2):
        h = x[member].reshape(6, *IMAGE)
        for layer, (_, _, stride) in zip(net.convolutions, LAYERS, strict=True):
            assert isinstance(layer, Convolution)
            h = torch.conv2d(h, layer.weight[member], layer.bias[member].flatten(), stride=stride).relu()
        hidden, out = net.mlp.hidden[0], net.mlp.out
        h = (h.flatten(1) @ hidden.weight[member] + hidden.bias[member]).relu()  # pyright: ignore
        torch.testing.assert_close(found[member], h @ out.weight[member] + out.bias[member], rtol=1e-12, atol=1e-12)


def test_an_image_without_a_member_axis_is_shared() -> None:
    net = ConvNet(IMAGE, 3, NETWORK, double(0, 1))
    x = double(2)["x"].normal(4, SIZE)
    assert torch.equal(net(x), net(x.expand(2, -1, -1)))
    assert torch.equal(net(x[0]), net(x))


def test_members_can_share_one_network() -> None:
    net = ConvNet(IMAGE, 3, NETWORK, double(0))
    x = torch.cat([double(seed)["x"].normal(4, SIZE) for seed in (1, 2)])
    torch.testing.assert_close(net(x), torch.cat([net(x[:1]), net(x[1:])]), rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_convolution_by_finite_differences() -> None:
    layer = Convolution(2, 3, 3, 2, dataclasses.replace(NETWORK, init="default"), double(0, 1))
    x = double(2, 3)["x"].normal(2, 2, 6, 5).requires_grad_()
    parameters = [layer.weight, layer.bias]

    def run(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradcheck(run, (x, *parameters))


def test_a_members_gradient_is_its_own() -> None:
    net = ConvNet(IMAGE, 3, NETWORK, double(0, 1))
    net(double(2, 3)["x"].normal(4, SIZE))[0].square().sum().backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert parameter.grad[0].abs().max() > 0
        assert parameter.grad[1].abs().max() == 0


def test_a_nan_member_does_not_change_the_others() -> None:
    x, found = double(2, 3)["x"].normal(4, SIZE), list[list[Tensor]]()
    for poison in (1.0, float("nan")):
        net = ConvNet(IMAGE, 3, NETWORK, double(0, 1))
        for parameter in net.parameters():
            parameter.data[0] *= poison
        act = net(x)
        gradients = torch.autograd.grad(act.square().sum(), list(net.parameters()))
        found.append([act[1], *(gradient[1] for gradient in gradients)])
    assert all(torch.equal(sound, beside) for sound, beside in zip(*found, strict=True))


def test_orthogonal_kernels_are_orthogonal() -> None:
    layer = Convolution(2, 32, 8, 4, NETWORK, double(0, 1))
    flat = layer.weight.flatten(2)
    torch.testing.assert_close(flat @ flat.mT, 2 * torch.eye(32, dtype=torch.float64).expand(2, -1, -1))
    assert layer.bias.abs().max() == 0


def test_a_network_without_images_is_an_mlp() -> None:
    assert isinstance(policy_net(6, 2, Network(), Rng([0])), MLP)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(image=(2, 35, 64)), "at least 1, 36 and 36; it is"),
        (lambda: Network(image=(0, 64, 64)), "at least 1, 36 and 36; it is"),
        (lambda: Encoder(network=NETWORK, pool=7), r"multiples of pool, .*\(2, 36, 40\), 7"),
        (lambda: Encoder(network=Network()), "needs network.image"),
        (lambda: policy_net(7, 2, NETWORK, Rng([0])), r"has 7 numbers; an image of 2 × 36 × 40 .* has 2880"),
        (lambda: ENCODER.init(Dims(7, 2), Rng([0])), r"has 7 numbers; an image of 2 × 36 × 40 .* has 2880"),
    ],
)
def test_wrong_image_sizes_are_named(make: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        make()


# Features, for a guide.


def test_pooling_by_hand() -> None:
    # Two channels of 2 × 4 pixels; squares of 2 × 2.
    picture = torch.tensor([[1.0, 3, 10, 20, 5, 7, 30, 40, 0, 0, 1, 1, 0, 4, 1, 1]])
    assert pool(picture, (2, 2, 4), 2).tolist() == [[4.0, 25.0, 1.0, 1.0]]
    assert torch.equal(pool(picture.expand(3, 1, -1), (2, 2, 4), 2), torch.tensor([[[4.0, 25, 1, 1]]] * 3))
    assert torch.equal(pool(picture, (2, 2, 4), 1), picture)


def test_the_encoders_loss_by_hand() -> None:
    weights = ENCODER.init(Dims(SIZE, 2), double(0, 1)["init"])
    for head, value in ((weights.act, 0.5), (weights.coarse, -1.0)):
        head.weight.data.zero_()
        head.bias.data.fill_(value)
    obs, act = torch.ones(2, 3, SIZE).double(), torch.zeros(2, 3, 2).double()
    losses = ENCODER.loss(weights, Batch(obs, act), double(0, 1), {})
    # The predicted action is 0.5, the expert's 0; the predicted squares are −1, the true ones 1.
    assert losses.logs["L_act"].tolist() == [0.25, 0.25]
    assert losses.logs["L_coarse"].tolist() == [4.0, 4.0]
    assert losses.total.tolist() == [4.25, 4.25]


def test_features_are_few_and_bounded_and_each_members_own() -> None:
    weights = ENCODER.init(Dims(SIZE, 2), double(0, 1)["init"])
    obs = torch.tensor(DEMOS.obs, dtype=torch.float64)
    features = ENCODER.encode(weights, obs)
    assert features.shape == (2, 60, 5)
    assert features.abs().max() < 1
    assert not torch.allclose(features[0], features[1])
    assert torch.allclose(features[:, 7:9], ENCODER.encode(weights, obs[7:9]))


def test_the_guide_receives_features_of_its_members_encoder() -> None:
    seen: list[Dims] = []

    original = DiffusionGuide.init

    def init(self: DiffusionGuide, dims: Dims, rng: Rng) -> Any:
        seen.append(dims)
        return original(self, dims, rng)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DiffusionGuide, "init", init)
        fitted = fit64(EVERY["dbc"], (0, 1))
    assert {(dims.obs, dims.act) for dims in seen} == {(5, 2)}
    assert set(fitted.trained.parts) == {"encoder", "guide"}


def test_encoders_are_cached_with_their_guides(tmp_path: Path) -> None:
    stages: list[list[str]] = []
    for coefficient in (1.0, 2.0):
        found: list[Progress] = []
        method = dataclasses.replace(EVERY["dbc"], coefficient=coefficient)
        fit64(method, (0, 1), cache=tmp_path, progress=found.append)
        stages.append(list(dict.fromkeys(now.stage for now in found)))
    assert stages == [["encoder", "guide", "policy"], ["policy"]]
    assert len(list(tmp_path.iterdir())) == 4


# Training.


@methods
def test_a_member_is_the_same_alone_or_stacked(name: str) -> None:
    stacked = rows(fit64(EVERY[name], (0, 1, 2)))
    for seed in (0, 2):
        alone = rows(fit64(EVERY[name], (seed,)))[0]
        assert (stacked[seed] - alone).abs().max() < 1e-9 * alone.abs().max()
    assert torch.pdist(stacked).min() > 1e-5


def test_a_guide_with_coefficient_0_changes_no_bit() -> None:
    dbc = dataclasses.replace(EVERY["dbc"], coefficient=0.0)
    assert torch.equal(rows(fit64(EVERY["bc"], (0, 1))), rows(fit64(dbc, (0, 1))))


def test_the_position_of_a_spot_can_be_learned() -> None:
    losses: list[float] = []
    method = BC(training=Training(updates=192, batch=32, lr=2e-3), network=dataclasses.replace(NETWORK, width=32))
    policy = fit(method, DEMOS, device="cpu", progress=lambda now: losses.append(float(now.losses["loss"][0])))
    assert losses[-1] < 0.3 * losses[0]
    assert policy(DEMOS.obs).shape == (60, 2)


@methods
def test_settings_round_trip_through_json(name: str) -> None:
    values = to_dict(EVERY[name])
    assert json.loads(json.dumps(values)) == values
    assert from_dict(METHODS, values) == EVERY[name]


def test_an_image_policy_is_the_same_after_saving_and_choosing(tmp_path: Path) -> None:
    policy = fit(EVERY["dbc"], DEMOS, seeds=(0, 1), device="cpu")
    policy.save(tmp_path / "policy")
    again = Policy.load(tmp_path / "policy")
    assert again.method == policy.method
    # Loaded weights lie elsewhere in memory, for which a convolution may choose another order of adding up.
    assert np.allclose(again(DEMOS.obs), policy(DEMOS.obs), rtol=0, atol=1e-6)
    assert np.allclose(policy[1](DEMOS.obs), policy(DEMOS.obs)[1], atol=1e-5)


# Demonstrations with images.


def test_bytes_stay_bytes_through_a_file(tmp_path: Path) -> None:
    DEMOS.save(tmp_path / "a.npz")
    again = Demonstrations.load(tmp_path / "a.npz")
    for demos in (DEMOS, again, again.take([1]), again.split(0.5)[0]):
        assert (demos.obs.dtype, demos.act.dtype) == (np.uint8, np.float32)
    assert np.array_equal(again.obs, DEMOS.obs)
    assert again.fingerprint == DEMOS.fingerprint
    as_floats = Demonstrations.from_arrays(DEMOS.obs.astype(float), DEMOS.act, episode_ends=[30, 60])
    assert as_floats.obs.dtype == np.float32
    assert as_floats.fingerprint != DEMOS.fingerprint


def test_actions_are_never_bytes() -> None:
    demos = Demonstrations.from_arrays(DEMOS.obs, np.ones((60, 1), dtype=np.uint8), episode_ends=[60])
    assert demos.act.dtype == np.float32


def test_pixels_share_a_mean_and_a_standard_deviation() -> None:
    normaliser = Normaliser.from_demonstrations(DEMOS)
    values = DEMOS.obs.astype(np.float64)
    assert torch.allclose(normaliser.obs_mean, torch.tensor(values.mean(), dtype=torch.float32))
    assert torch.allclose(normaliser.obs_std, torch.tensor(values.std(ddof=1), dtype=torch.float32))
    assert normaliser.obs_mean.shape == normaliser.obs_std.shape == (SIZE,)
