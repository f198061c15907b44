"""Observations that are an image and numbers: storage, networks, training, acting, files and mistakes."""

import base64
import dataclasses
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import pictures
from conftest import Command
from diffclone import BC, DBC, Demonstrations, Policy, Training, fit
from diffclone.data import Normaliser
from diffclone.data.layout import Layout, flatten_observation
from diffclone.deploy.calibration import Rule, calibrate
from diffclone.deploy.serving.bodies import JSON, RequestError, decode_observation
from diffclone.errors import DiffcloneWarning, InvalidData, InvalidSettings
from diffclone.guides import DiffusionGuide
from diffclone.methods import BCGMM
from diffclone.model import Dims, Method
from diffclone.nn import Network
from diffclone.nn.encoder import Encoder
from diffclone.nn.images import ConvNet, policy_net, shift_images, split_numbers
from diffclone.rng import Rng
from diffclone.training.session import prepare_session

SIDES, STEPS = (3, 36, 40), 40
PIXELS = 3 * 36 * 40
LAYOUT = Layout(SIDES, 2)
NETWORK = Network(width=8, depth=1, activation="relu", image=SIDES, state=2)
BRIEF = Training(updates=3, batch=4, lr=1e-3)
GUIDE = DiffusionGuide(training=BRIEF, width=8, depth=1, steps=20)
ENCODER = Encoder(training=BRIEF, network=NETWORK, features=5, pool=4)
CPU = torch.device("cpu")

GENERATOR = np.random.default_rng(0)
IMAGE = GENERATOR.integers(0, 256, (STEPS, *SIDES), dtype=np.uint8)
STATE = GENERATOR.normal(3.0, 2.0, (STEPS, 2)).astype(np.float32)
ACT = np.stack([STATE.sum(1), IMAGE[:, 0, 0, 0] / 255.0], 1)
ENDS = [15, STEPS]


def make_demos(**more: Any) -> Demonstrations:
    return Demonstrations.from_arrays({"image": IMAGE, "state": STATE}, ACT, episode_ends=ENDS, **more)


DEMOS = make_demos()


# Storage.


def test_a_row_has_one_byte_per_pixel_and_four_per_number() -> None:
    assert (DEMOS.obs.dtype, DEMOS.obs.shape) == (np.uint8, (STEPS, PIXELS + 8))
    assert (DEMOS.layout, DEMOS.obs_size) == (LAYOUT, PIXELS + 2)
    assert np.array_equal(DEMOS.obs[:, :PIXELS], IMAGE.reshape(STEPS, -1))
    assert np.array_equal(DEMOS.obs[:, PIXELS:].copy().view("<f4"), STATE)
    seen = DEMOS.observe(slice(3, 5))
    assert seen.dtype == np.float32
    assert np.array_equal(seen, np.concatenate([IMAGE[3:5].reshape(2, -1), STATE[3:5]], 1))
    assert np.array_equal(LAYOUT.pack(seen[:, :PIXELS], seen[:, PIXELS:]), DEMOS.obs[3:5])


def test_everything_that_copies_demonstrations_keeps_both_parts(tmp_path: Path) -> None:
    DEMOS.save(tmp_path / "a.npz")
    again = Demonstrations.load(tmp_path / "a.npz")
    assert again.fingerprint == DEMOS.fingerprint
    joined = DEMOS.take([1]).joined(again.take([0])).with_action_noise(0.0)
    assert np.array_equal(joined.observe(slice(None))[25:], DEMOS.observe(slice(0, 15)))
    with pytest.raises(InvalidData, match=r"saved as .npz only; .*a.hdf5 is not"):
        DEMOS.save(tmp_path / "a.hdf5")


def test_the_order_of_axes_and_of_parts_does_not_matter() -> None:
    other = {"state": STATE, "image": np.moveaxis(IMAGE, 1, 3)}
    assert Demonstrations.from_arrays(other, ACT, episode_ends=ENDS).fingerprint == DEMOS.fingerprint
    episodes = [{"obs": {"image": IMAGE[a:b], "state": STATE[a:b]}, "act": ACT[a:b]} for a, b in ((0, 15), (15, STEPS))]
    assert Demonstrations.from_episodes(episodes).fingerprint == DEMOS.fingerprint


def test_several_cameras_are_stacked_as_channels_and_grey_images_have_one() -> None:
    parts = {"left": IMAGE, "grey": IMAGE[:, 0], "state": STATE}
    demos = Demonstrations.from_arrays(parts, ACT, episode_ends=ENDS)
    assert demos.layout == Layout((4, 36, 40), 2)
    assert demos.meta["observation_keys"] == [["left", PIXELS], ["grey", 36 * 40], ["state", 2]]
    alone = Demonstrations.from_arrays({"image": IMAGE}, ACT, episode_ends=ENDS)
    assert (alone.layout, alone.obs.shape, alone.meta["image"]) == (None, (STEPS, PIXELS), list(SIDES))


@pytest.mark.parametrize("names", [("obs/image", "obs/state"), ("observations.image", "observations.state")])
def test_arrays_of_a_file_are_chosen_by_their_names(tmp_path: Path, names: tuple[str, str]) -> None:
    arrays: Any = {names[0]: IMAGE, names[1]: STATE, "act": ACT, "episode_ends": ENDS}
    np.savez(tmp_path / "a.npz", **arrays)
    read = Demonstrations.load(tmp_path / "a.npz", obs_keys=names)
    assert (read.fingerprint, read.layout) == (DEMOS.fingerprint, LAYOUT)
    with pytest.raises(InvalidData, match="has no obs/depth, which --obs-keys names; it has"):
        Demonstrations.load(tmp_path / "a.npz", obs_keys=["obs/depth"])


def test_small_images_are_plain_numbers_and_a_warning(tmp_path: Path) -> None:
    small = IMAGE[:, :, :16, :16]
    for parts in ({"image": small, "state": STATE}, {"image": small}):
        with pytest.warns(
            DiffcloneWarning, match=r"image looks like images of 3 × 16 × 16, .* at least 36 pixels.* 768"
        ):
            demos = Demonstrations.from_arrays(parts, ACT, episode_ends=ENDS)
        assert (demos.obs.dtype, demos.layout) == (np.float32, None)
        assert np.array_equal(demos.obs[:, :768], small.reshape(STEPS, -1))


def test_images_that_are_called_obs_are_read_if_they_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", obs=IMAGE, act=ACT, episode_ends=ENDS)
    with pytest.raises(InvalidData, match=r"it has obs \(3, 36, 40\)\. Images are read if --obs-keys names them"):
        Demonstrations.load(tmp_path / "a.npz")
    demos = Demonstrations.load(tmp_path / "a.npz", obs_keys=["obs"])
    assert demos.meta["image"] == list(SIDES)
    assert np.array_equal(demos.obs, IMAGE.reshape(STEPS, -1))


def test_images_of_robomimic_and_minari_are_read_if_they_are_named(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    bounds = list(zip([0, 15], ENDS, strict=True))
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for k, (a, b) in enumerate(bounds):
            group = file.create_group(f"data/demo_{k}")
            group["actions"], group["obs/image"] = ACT[a:b], np.moveaxis(IMAGE[a:b], 1, 3)
            group["obs/state"] = STATE[a:b]
    found = Demonstrations.load(tmp_path / "a.hdf5", obs_keys=["image", "state"])
    assert found.fingerprint == DEMOS.fingerprint
    assert Demonstrations.load(tmp_path / "a.hdf5").layout is None
    (tmp_path / "m" / "data").mkdir(parents=True)
    spaces = {"image": {"type": "Box", "dtype": "uint8", "shape": [36, 40, 3]}, "state": {"type": "Box", "shape": [2]}}
    about = {"data_format": "hdf5", "observation_space": json.dumps({"type": "Dict", "subspaces": spaces})}
    (tmp_path / "m" / "data" / "metadata.json").write_text(json.dumps(about))
    with h5py.File(tmp_path / "m" / "data" / "main_data.hdf5", "w") as file:
        for k, (a, b) in enumerate(bounds):
            again = [*range(a, b), b - 1]
            group = file.create_group(f"episode_{k}")
            group["actions"], group["observations/state"] = ACT[a:b], STATE[again]
            group["observations/image"] = np.moveaxis(IMAGE[again], 1, 3)
    found = Demonstrations.load(tmp_path / "m", obs_keys=["image", "state"])
    assert found.fingerprint == DEMOS.fingerprint
    assert Demonstrations.load(tmp_path / "m").obs.shape == (STEPS, 2)


def test_images_of_lerobot_are_decoded_if_they_are_named(tmp_path: Path) -> None:
    parquet, pa, image = (pytest.importorskip(name) for name in ("pyarrow.parquet", "pyarrow", "PIL.Image"))
    (tmp_path / "meta").mkdir()
    (tmp_path / "data" / "chunk-000").mkdir(parents=True)
    features = {"observation.image": {"dtype": "image"}, "observation.video": {"dtype": "video"}}
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"features": features}))

    def write(pictures: list[Any]) -> None:
        files = [io.BytesIO() for _ in pictures]
        for file, picture in zip(files, pictures, strict=True):
            image.fromarray(np.moveaxis(picture, 0, 2)).save(file, "PNG")
        episode = np.repeat([0, 1], [15, STEPS - 15])
        table: Any = pa.table(
            {
                "observation.image": [{"bytes": file.getvalue(), "path": None} for file in files],
                "observation.state": list(STATE),
                "action": list(ACT.astype(np.float32)),
                "episode_index": episode,
                "frame_index": np.arange(STEPS) - 15 * episode,
            }
        )
        parquet.write_table(table, tmp_path / "data" / "chunk-000" / "file-000.parquet")

    write(list(IMAGE))
    names = ["observation.image", "observation.state"]
    assert Demonstrations.load(tmp_path, obs_keys=names).fingerprint == DEMOS.fingerprint
    assert Demonstrations.load(tmp_path).obs.shape == (STEPS, 2)
    with pytest.raises(InvalidData, match=r"observation.video is a video, and videos are not decoded"):
        Demonstrations.load(tmp_path, obs_keys=["observation.video"])
    write([*IMAGE[:-1], IMAGE[-1, :, :, :38]])
    with pytest.raises(InvalidData, match=r"images of observation.image differ in size: 36 × 38 and 36 × 40"):
        Demonstrations.load(tmp_path, obs_keys=names)


def episodes_with(**second: Any) -> list[Any]:
    first = {"image": IMAGE[:2], "state": STATE[:2]}
    return [(obs, ACT[:2]) for obs in (first, {k: v for k, v in (first | second).items() if v is not None})]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Demonstrations.from_episodes(episodes_with(image=IMAGE[:2, :, :, :38])), "obs/image has shape .*38"),
        (lambda: Demonstrations.from_episodes(episodes_with(image=None)), "1 has observations obs/state; the first .*"),
        (lambda: Demonstrations.from_episodes(episodes_with(state=STATE[:1])), "obs/state of shape .* for 2 actions"),
        (
            lambda: Demonstrations.from_episodes([({"image": [IMAGE[0], IMAGE[1, :, :, :38]]}, ACT[:2])]),
            "rows of obs/image differ in length or shape",
        ),
        (
            lambda: Demonstrations.from_arrays({"a": IMAGE, "b": IMAGE[:, :, :, 2:]}, ACT, episode_ends=ENDS),
            "images differ in size: a 36 × 40, b 36 × 38. Resize them",
        ),
        (
            lambda: Demonstrations.from_arrays({"image": IMAGE / 255, "state": STATE}, ACT, episode_ends=ENDS),
            r"image has 3 × 36 × 40 values per step, like an image, and the type float64; images must be bytes",
        ),
        (
            lambda: Demonstrations.from_arrays(
                {"image": np.moveaxis(IMAGE, 1, 2), "state": STATE}, ACT, episode_ends=ENDS
            ),
            r"has the shape \(36, 3, 40\); an image is \(channels, height, width\)",
        ),
        (
            lambda: Demonstrations.from_arrays(DEMOS.obs, ACT, episode_ends=ENDS, meta={**DEMOS.meta, "state_size": 3}),
            "image 3 × 36 × 40 and 3 numbers are 4332 bytes, but a row of obs has 4328",
        ),
        (lambda: DEMOS.joined(Demonstrations.from_arrays(STATE, ACT, episode_ends=ENDS)), "image 3 × 36 × 40 and 2"),
        (lambda: Demonstrations.from_arrays({}, ACT, episode_ends=ENDS), "obs is an empty dict"),
    ],
)
def test_wrong_demonstrations_are_one_clear_line(make: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({"state_size": 2}, "None and 2"),
        ({"state_size": "2", "image": [3, 36, 40]}, r"\[3, 36, 40\] and 2"),
        ({"state_size": -2, "image": [3, 36, 40]}, r"\[3, 36, 40\] and -2"),
        ({"state_size": 2, "image": [36, 40]}, r"\[36, 40\] and 2"),
        ({"state_size": 2, "image": 3}, "3 and 2"),
    ],
)
def test_a_wrong_layout_in_meta_is_one_clear_line(meta: Any, found: str) -> None:
    with pytest.raises(InvalidData, match=rf"image in meta must be .* they are {found}\. Correct or remove them"):
        Demonstrations.from_arrays(DEMOS.obs, ACT, episode_ends=ENDS, meta=meta)


def test_numbers_beside_an_image_must_be_finite() -> None:
    state = STATE.copy()
    state[7, 1] = np.nan
    stored = LAYOUT.pack(IMAGE.reshape(STEPS, -1), state)
    with pytest.raises(InvalidData, match=r"obs, beside the image, contains 1 NaN .* first in row 7, column 1\."):
        Demonstrations.from_arrays(stored, ACT, episode_ends=ENDS, meta=DEMOS.meta)


# Parts of an observation.


@pytest.mark.parametrize("sides", [(3, 36, 40), (36, 40, 3), (36, 40), (1, 36, 40)])
@pytest.mark.parametrize("rows", [(), (1,), (4,)])
def test_a_part_with_one_number_may_have_an_axis_of_its_own(sides: tuple[int, ...], rows: tuple[int, ...]) -> None:
    image = GENERATOR.integers(0, 256, (4, *sides), dtype=np.uint8)
    gripper, state = np.arange(4.0)[:, None], STATE[:4]
    demos = Demonstrations.from_arrays({"image": image, "gripper": gripper, "state": state}, ACT[:4], episode_ends=[4])
    part: Any = slice(rows[0]) if rows else 0
    for one in (gripper, gripper[:, 0]):
        found = flatten_observation({"image": image[part], "gripper": one[part], "state": state[part]}, demos.meta)
        assert np.array_equal(found, demos.observe(part))


def test_images_alone_have_their_channels_ordered_too() -> None:
    alone = Demonstrations.from_arrays({"image": IMAGE}, ACT, episode_ends=ENDS)
    assert np.array_equal(flatten_observation({"image": np.moveaxis(IMAGE[0], 0, 2)}, alone.meta), alone.obs[0])


@pytest.mark.parametrize("sides", [(36, 40), (1, 36, 40), (36, 40, 1)])
def test_grey_images_alone_are_one_observation_or_a_batch_as_they_were_recorded(sides: tuple[int, ...]) -> None:
    image = IMAGE[:5, 0].reshape(5, *sides)
    demos = Demonstrations.from_arrays({"image": image}, ACT[:5], episode_ends=[5])
    assert demos.meta.get("images_without_channels") == (["image"] if len(sides) == 2 else None)
    for part in (0, slice(5), slice(1)):
        found = flatten_observation({"image": image[part]}, demos.meta)
        assert np.array_equal(found, demos.obs[part])
    policy = fit(BC(training=BRIEF), demos, seeds=range(5), device="cpu")
    assert policy[0]({"image": image[0]}).shape == (2,)
    assert policy[0]({"image": image[:1]}).shape == (1, 2)
    assert policy({"image": image}).shape == (5, 5, 2)  # every member has acted on every row


def test_a_recording_knows_images_without_channels() -> None:
    gym = pytest.importorskip("gymnasium")
    from diffclone.tasks.observations import Flattener

    names = {"a": (36, 40), "b": (1, 36, 40), "c": (8, 8)}
    spaces = {name: gym.spaces.Box(0, 255, shape, np.uint8) for name, shape in names.items()}
    assert Flattener(gym.spaces.Dict(spaces)).images_without_channels == ["a"]
    assert Flattener(spaces["a"]).images_without_channels == []


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_arrays_that_demonstrations_are_made_from_stay_their_owners(dtype: Any) -> None:
    x = np.zeros((STEPS, 2), dtype)
    view = x[:]
    demos = Demonstrations.from_arrays({"state": x}, ACT, episode_ends=ENDS)
    view += 1
    assert x.flags.writeable
    assert not demos.obs.any()


# Normalisation and batches.


def test_pixels_are_divided_by_255_and_numbers_are_z_scores() -> None:
    normaliser = Normaliser.from_demonstrations(DEMOS)
    z = normaliser.normalise_obs(torch.tensor(DEMOS.observe(slice(None)))).numpy()
    assert np.allclose(z[:, :PIXELS], IMAGE.reshape(STEPS, -1) / 255, atol=1e-6)
    assert np.allclose(z[:, PIXELS:], (STATE - STATE.mean(0)) / STATE.std(0, ddof=1), atol=1e-5)
    plain = Normaliser.identity(DEMOS).normalise_obs(torch.tensor(DEMOS.observe(slice(None)))).numpy()
    assert np.array_equal(plain[:, PIXELS:], STATE)
    assert plain[:, :PIXELS].max() <= 1
    raised = Normaliser.robust(make_demos()).obs_std
    assert (raised[:PIXELS] == 255).all()
    assert (raised[PIXELS:] >= normaliser.obs_std[PIXELS:]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_device_holds_bytes_and_a_batch_has_normalised_numbers(dtype: torch.dtype) -> None:
    method = BC(history=2)
    normaliser, session = prepare_session(DEMOS, "z-score", CPU, dtype, method.chunks)
    assert session.data.obs.dtype == torch.uint8
    assert session.data.obs.data_ptr() == DEMOS.obs.ctypes.data  # not even copied
    assert session.dims.obs == 2 * (PIXELS + 2)
    found = session.data.observe(torch.tensor([[0, 16]]))
    windows = DEMOS.observe(np.array([0, 0, 15, 16])).reshape(1, 2, -1)
    expected = normaliser.windows(method.chunks).normalise_obs(torch.tensor(windows).to(dtype))
    assert found.dtype == dtype
    assert torch.equal(found, expected)


def test_plain_images_are_bytes_on_the_device_and_give_the_same_batches_as_before() -> None:
    demos = Demonstrations.from_arrays(IMAGE.reshape(STEPS, -1), ACT, episode_ends=ENDS)
    normaliser, session = prepare_session(demos, "z-score", CPU, torch.float32)
    assert session.data.obs.dtype == torch.uint8
    before = normaliser.normalise_obs(torch.tensor(demos.obs).float())
    index = torch.tensor([[3, 39], [0, 3]])
    assert torch.equal(session.data.observe(index), before[index])


# Networks.


def double(*seeds: int) -> Rng:
    return Rng(seeds, dtype=torch.float64)


def test_numbers_join_the_output_of_the_convolutions() -> None:
    net = policy_net(PIXELS + 2, 3, NETWORK, double(0, 1))
    assert isinstance(net, ConvNet)
    x = double(2, 3)["x"].normal(4, PIXELS + 2)
    found = net(x)
    for member in range(2):
        hidden = x[member, :, :PIXELS].reshape(1, 4, *SIDES).expand(2, -1, -1, -1, -1)
        for layer in net.convolutions:
            hidden = layer(hidden).relu()
        joined = torch.cat([hidden[member].flatten(1), x[member, :, PIXELS:]], -1)
        torch.testing.assert_close(found[member], net.mlp(joined)[member], rtol=1e-12, atol=1e-12)


def test_a_history_stacks_images_and_numbers_apart() -> None:
    # Two steps of two pixels and one number.
    x = torch.tensor([[1.0, 2, 9, 3, 4, 8]])
    pixels, numbers = split_numbers(x, 2, 1)
    assert pixels.tolist() == [[1.0, 2, 3, 4]]
    assert numbers is not None
    assert numbers.tolist() == [[9.0, 8]]
    assert split_numbers(x, 2, 0) == (x, None)
    net = policy_net(2 * (PIXELS + 2), 3, NETWORK, double(0))
    assert isinstance(net, ConvNet)
    assert (net.image, net.steps) == ((6, 36, 40), 2)


def test_the_guide_receives_features_and_then_the_numbers() -> None:
    weights = ENCODER.init(Dims(PIXELS + 2, 2), double(0, 1)["init"])
    obs = double(2, 3)["x"].normal(4, PIXELS + 2)
    f = ENCODER.encode(weights, obs)
    assert f.shape == (2, 4, 7)
    assert torch.equal(f[..., 5:], obs[..., PIXELS:])
    assert torch.equal(f[..., :5], torch.tanh(weights.features(obs[..., :PIXELS])))
    assert weights.coarse.weight.shape[-1] == PIXELS // 16


def test_a_shift_moves_whole_images_and_repeats_their_edge() -> None:
    images = torch.arange(2 * 5 * 2 * 6 * 7.0).reshape(2, 5, 2, 6, 7)
    shifted = shift_images(images, 2, Rng([0, 1])["shift"])
    moves = Rng([0, 1])["shift"].integers(5, 5, 2) - 2
    assert len(torch.unique(moves)) > 2
    for m in range(2):
        for k in range(5):
            down, right = (int(step) for step in moves[m, k])
            rows, columns = (np.arange(6) + down).clip(0, 5), (np.arange(7) + right).clip(0, 6)
            assert torch.equal(shifted[m, k], images[m, k][:, rows][:, :, columns])
    alone = shift_images(images[1:], 2, Rng([1])["shift"])
    assert torch.equal(alone[0], shifted[1])  # a member is the same alone


def test_images_are_shifted_in_training_and_not_in_acting() -> None:
    net = policy_net(PIXELS + 2, 3, dataclasses.replace(NETWORK, shift=4), double(0))
    x = double(1)["x"].normal(4, PIXELS + 2)
    assert not torch.allclose(net(x, double(0)["dropout"]), net(x))
    plain = policy_net(PIXELS + 2, 3, NETWORK, double(0))
    assert torch.equal(net(x), plain(x))
    assert torch.equal(plain(x, double(0)["dropout"]), plain(x))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Network(state=3), "image, state and shift are None, 3, 0"),
        (lambda: Network(shift=3), "image, state and shift are None, 0, 3"),
        (lambda: Network(image=(3, 40, 36), shift=36), "shift is less than a side"),
        (lambda: policy_net(PIXELS, 2, NETWORK, Rng([0])), r"and 2 numbers \(`state`\) has 4322"),
    ],
)
def test_wrong_networks_are_one_clear_line(make: Any, message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        make()


# Training and acting.

EVERY: dict[str, Method[Any]] = {
    "bc": BC(training=BRIEF, network=dataclasses.replace(NETWORK, shift=2)),
    "dbc": DBC(training=BRIEF, network=NETWORK, guide=GUIDE, encoder=ENCODER, horizon=2, history=2),
    "bc-gmm": BCGMM(training=BRIEF, network=NETWORK),
}


@pytest.mark.parametrize("name", EVERY)
def test_a_policy_takes_a_dict_and_is_the_same_after_saving(name: str, tmp_path: Path) -> None:
    policy = fit(EVERY[name], DEMOS, device="cpu")
    policy.save(tmp_path / "policy")
    found: list[Any] = []
    for own in (policy, Policy.load(tmp_path / "policy")):
        act: Any = own.session() if own.chunks.has_memory else own
        found.append(act({"state": STATE[0], "image": np.moveaxis(IMAGE[0], 0, 2)}))
    assert found[0].shape == (2,)
    assert np.allclose(*found, atol=1e-5)
    if name == "bc":
        batch = policy({"image": IMAGE, "state": STATE})
        assert np.allclose(batch[0], found[0], atol=1e-5)
        assert np.array_equal(policy(DEMOS.obs), batch)
        assert np.array_equal(policy(DEMOS.observe(slice(None))), batch)


def test_a_member_is_the_same_alone_with_shifts_and_numbers() -> None:
    stacked = fit(EVERY["bc"], DEMOS, seeds=(0, 1), device="cpu")
    alone = fit(EVERY["bc"], DEMOS, seeds=(1,), device="cpu")
    assert np.allclose(stacked[1](DEMOS.obs), alone(DEMOS.obs), atol=1e-5)
    assert not np.allclose(stacked[0](DEMOS.obs), alone(DEMOS.obs), atol=1e-3)


def test_sizes_are_suggested_and_the_loss_falls() -> None:
    losses: list[float] = []
    method = BC(training=Training(updates=96, batch=8, lr=2e-3))
    policy = fit(method, DEMOS, device="cpu", progress=lambda now: losses.append(float(now.losses["loss"][0])))
    assert isinstance(policy.net, ConvNet)
    assert (policy.net.image, policy.net.numbers) == (SIDES, 2)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"image": IMAGE[0]}, "the observation lacks state; it has image"),
        ({"image": IMAGE[0] / 255, "state": STATE[0]}, "image is float64; images must be bytes"),
        ({"image": IMAGE[0, :, :, :38], "state": STATE[0]}, r"image has the shape \(3, 36, 38\); .* 4320 numbers"),
        ({"image": IMAGE, "state": STATE[0]}, "the parts of the observation differ in length"),
        (np.zeros(7), "observations have 7 numbers; the policy was trained on 4322"),
    ],
)
def test_wrong_observations_are_one_clear_line(obs: Any, message: str) -> None:
    with pytest.raises(InvalidData, match=message):
        trained()(obs)


@cache
def trained() -> Policy:
    return fit(EVERY["bc"], DEMOS, device="cpu")


def test_an_exported_policy_has_both_parts(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    from diffclone.deploy.export import export

    method = BC(training=BRIEF, network=NETWORK, history=2, horizon=2)
    policy = fit(method, DEMOS, device="cpu")
    assert export(policy, tmp_path / "a.onnx", "onnx") < 1e-5
    with pytest.raises(InvalidSettings, match="NumPy runtime has no convolutions"):
        export(policy, tmp_path / "a.npz", "numpy")


# The command line.


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    arrays: Any = {"obs/image": IMAGE, "obs/small": IMAGE[:, :, :, :38], "obs/state": STATE, "act": ACT}
    np.savez(tmp_path / "a.npz", **arrays, episode_ends=ENDS)
    return tmp_path / "a.npz"


SHORT = ("--method", "bc", "--seeds", "1", "--held-out", "0", "--training.updates", "2", "--network.width", "8")
BOTH = ("--obs-keys", "obs/image", "obs/state")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--obs-keys", "obs/image", "obs/small"), "images differ in size: obs/image 36 × 40, obs/small 36 × 38"),
        (("--obs-keys", "obs/image", "obs/depth"), "has no obs/depth, which --obs-keys names"),
        ((*BOTH, "--horizon", "26"), "horizon is 26, but the longest episode has 25 steps"),
        ((*BOTH, "--history", "26"), "history is 26, but the longest episode has 25 steps"),
        ((*BOTH, "--horizon", "4", "--execute", "5"), "execute is 5, but a call returns 4"),
        ((*BOTH, "--network.shift", "36"), "shift is less than a side"),
        ((*BOTH, "--network.state", "7"), r"and 7 numbers \(`state`\) has 4327"),
    ],
)
def test_wrong_trainings_are_one_line_and_make_no_folder(
    diffclone: Command, frames: Path, flags: tuple[str, ...], message: str
) -> None:
    out = frames.parent / "run"
    result = diffclone("train", frames, *flags, *SHORT, "--out", out)
    assert result.code == 2
    *read, error = result.err.splitlines()
    assert len(read) <= 1  # what was read from the file
    assert re.fullmatch(rf"diffclone: .*{message}.*", error), result.err
    assert not out.exists()


def test_a_run_with_images_and_numbers_is_inspected_trained_and_calibrated(diffclone: Command, frames: Path) -> None:
    found = diffclone("inspect", frames, *BOTH, "--json")
    assert found.code == 0, found.err
    assert len(json.loads(found.out)["ranges"]["obs"]["mean"]) == 2
    out = frames.parent / "run"
    assert diffclone("train", frames, *BOTH, *SHORT, "--out", out).code == 0
    policy = Policy.load(out)
    assert isinstance(policy.net, ConvNet)
    assert policy({"image": IMAGE[0], "state": STATE[0]}).shape == (2,)
    episodes = [({"image": IMAGE[[k, k + 1]], "state": STATE[[k, k + 1]] + 1}, ACT[:2]) for k in range(39)]
    held_out = Demonstrations.from_episodes(episodes)
    watched = calibrate(policy, held_out, 0.2, training=DEMOS, rule=Rule(scores=("nearest",)))
    score = watched.monitor({"image": IMAGE[0], "state": STATE[0] + 100}, ACT[0])
    assert score.alarm is not None
    assert bool(score.alarm.both)


def test_many_images_stay_bytes_while_they_are_trained_on() -> None:
    found = pictures.measure(4_000, 2)
    grown = found["peak_bytes"] - found["before_bytes"]
    assert found["stored_bytes"] < grown < found["stored_bytes"] + 0.6 * (found["float_bytes"] - found["stored_bytes"])


# The server.

META = {"observation_keys": [["obs/image", PIXELS], ["obs/state", 2]], "image": list(SIDES), "state_size": 2}
LAST = np.moveaxis(IMAGE, 1, 3)


def request(observation: Any, meta: Any = META) -> Any:
    return decode_observation(JSON, json.dumps({"observation": observation}).encode(), PIXELS + 2, meta)


@pytest.mark.parametrize("names", [("obs/image", "obs/state"), ("observation.image", "observation.state")])
def test_a_request_has_an_image_in_base64_or_in_lists(names: tuple[str, str]) -> None:
    meta = {**META, "observation_keys": [[names[0], PIXELS], [names[1], 2]]}
    expected = np.concatenate([IMAGE.reshape(STEPS, -1), STATE], 1)
    for image in (base64.b64encode(IMAGE[0].tobytes()).decode(), IMAGE[0].tolist(), LAST[0].tolist()):
        for keys in (("image", "state"), names):
            found = request(dict(zip(keys, (image, STATE[0].tolist()), strict=True)), meta)
            assert np.array_equal(found, expected[0])
    assert np.array_equal(request({"image": LAST[:2].tolist(), "state": STATE[:2].tolist()}, meta), expected[:2])


def test_a_request_may_have_more_pixels_than_rows_are_allowed() -> None:
    image = GENERATOR.integers(0, 256, (68, 66, 3), dtype=np.uint8)
    meta = {"observation_keys": [["image", image.size], ["state", 1]], "image": [3, 68, 66], "state_size": 1}
    body = json.dumps({"observation": {"image": image.tolist(), "state": 7}}).encode()
    found = decode_observation(JSON, body, image.size + 1, meta)
    assert np.array_equal(found, np.append(np.moveaxis(image, 2, 0).reshape(-1), 7))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"image": "!"}, "image must be numbers, in lists of equal length, or the bytes of an image in base64"),
        ({"image": "AAAA"}, r"image has the shape \(3,\); its last axes must have 4320 numbers"),
        ({"image": (IMAGE[0] / 255).tolist()}, r"image is float64; images must be bytes, 0 … 255 \(uint8\)"),
        ({"image": (IMAGE[0] + 1.0).tolist()}, "image is float64; images must be bytes"),
        ({"image": [[1, 2], [3]]}, "image must be numbers, in lists of equal length"),
        ({"image": None}, "image must be numbers"),
        ({"state": ["1", "2"]}, r"state must be numbers, in lists of equal length\."),
        ({"state": "AAA="}, "state must be numbers"),
        ({"state": [1e60, 0]}, "NaN or infinity"),
        ({"state": [float("nan"), 0]}, "NaN or infinity"),
        ({"state": [10**400, 0]}, "the body must be JSON"),
    ],
)
def test_wrong_requests_are_one_clear_line(wrong: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request({"image": IMAGE[0].tolist(), "state": STATE[0].tolist(), **wrong})


def test_parts_of_a_request_with_equal_ends_are_not_mixed_up() -> None:
    parts = [["obs/image", PIXELS], ["obs/left/pos", 1], ["obs/right/pos", 1]]
    meta = {**META, "observation_keys": parts}
    found = request({"image": IMAGE[0].tolist(), "right/pos": [8], "left/pos": [7]}, meta)
    assert found[PIXELS:].tolist() == [7, 8]
    nested = request({"obs": {"image": IMAGE[0].tolist()}, "right": {"pos": [8]}, "left": {"pos": [7]}}, meta)
    assert np.array_equal(nested, found)
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"a": deep}
    with pytest.raises(RequestError, match=r"lacks obs/image|nested too deeply"):
        request({"other": deep}, meta)
    with pytest.raises(RequestError, match="has pos, and the policy needs obs/left/pos and obs/right/pos; name both"):
        request({"image": IMAGE[0].tolist(), "pos": [7]}, meta)


def test_requests_need_every_part_and_a_policy_with_parts() -> None:
    with pytest.raises(RequestError, match="the observation lacks obs/state; it has image"):
        request({"image": IMAGE[0].tolist()})
    with pytest.raises(RequestError, match="no named parts; send numbers"):
        request({"image": [1]}, {})


def test_the_server_answers_images_as_the_policy_does() -> None:
    pytest.importorskip("starlette")
    from diffclone.deploy.server import Server

    application = Server(trained()).application()
    body = json.dumps({"observation": {"image": LAST[0].tolist(), "state": STATE[0].tolist()}}).encode()
    obs = decode_observation(JSON, body, application.size, application.meta)
    assert np.array_equal(trained()(obs), trained()({"image": LAST[0], "state": STATE[0]}))
