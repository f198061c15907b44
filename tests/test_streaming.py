"""Demonstrations larger than memory: read in blocks, with the same numbers and the same laws."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.reading import FORMATS
from diffclone import Demonstrations, Training, fit
from diffclone.cli.main import main
from diffclone.data import Normaliser, Streamed
from diffclone.data.formats import open_blocks
from diffclone.data.formats.memory import format_bytes, parse_bytes
from diffclone.data.formats.options import NO_OPTIONS
from diffclone.data.moments import Moments
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidData, InvalidSettings
from diffclone.fit import FitOptions, fit_with_options
from diffclone.methods import DiffusionPolicy
from diffclone.model import Method
from diffclone.rng import Rng
from diffclone.training.feed import Feed, Flow
from diffclone.training.session import SINGLE_STEPS
from diffclone.training.step import Dataset
from diffclone.training.windows import Windows
from streaming_examples import (
    BC_SMALL,
    DBC_SMALL,
    DEMOS,
    EVERY,
    LONGER,
    MEMORY,
    SHORT,
    stream,
    write_shards,
)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffclone.training.feed.EVERY", EVERY)


@pytest.fixture(name="shards", scope="module")
def _shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shards(DEMOS, tmp_path_factory.mktemp("shards") / "npz")


def train(method: Method[Any], demos: Any, seeds: tuple[int, ...] = (0, 1), **options: Any) -> dict[str, Tensor]:
    chosen = FitOptions(seeds=seeds, device="cpu", dtype=torch.float64, **options)
    found = fit_with_options(method, demos, chosen).trained
    nets = {"policy": found.net, **found.parts}
    return {name: torch.cat([p.detach().flatten(1) for p in net.parameters()], 1) for name, net in nets.items()}


NAMES = (
    "npz shards",
    "compressed npz shards",
    *(name for name in FORMATS if name.split()[0] not in ("npz", "npz,", "parquet")),
)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_in_blocks_has_the_numbers_of_the_whole(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("h5py", "pyarrow", "zarr", "minari"):
        pytest.importorskip(package)
    monkeypatch.setattr("diffclone.data.streamed.PASS", 5_000)  # many blocks, whose edges are within episodes
    if name in NAMES[:2]:
        path = str(write_shards(DEMOS, tmp_path / "npz", np.savez if name == NAMES[0] else np.savez_compressed))
    else:
        pattern, write = FORMATS[name]
        path = pattern.format(tmp_path / "file")
        write(DEMOS, path)
    whole, found = Demonstrations.load(path), stream(path)
    assert whole.fingerprint == DEMOS.fingerprint == found.fingerprint
    assert found.episode_fingerprints == whole.episode_fingerprints
    for part, whole_part in zip(found.split(0.3), whole.split(0.3), strict=True):
        assert part.fingerprint == whole_part.fingerprint
        assert part.episode_fingerprints == whole_part.episode_fingerprints
        rows = part.read(17, 140)
        assert np.array_equal(rows[0], whole_part.obs[17:140])
        assert np.array_equal(rows[1], whole_part.act[17:140])
    for kind in (Normaliser.from_demonstrations, Normaliser.robust, Normaliser.identity):
        ours, theirs = kind(found).tensors(), kind(whole).tensors()
        assert all(torch.allclose(ours[key], theirs[key], rtol=1e-6, atol=0) for key in ours), kind
        assert kind(found).obs_std[2] == theirs["obs_std"][2]


@pytest.mark.parametrize("cuts", [[100], [1, 2, 50], list(range(1, 200))])
def test_moments_of_parts_are_those_of_all(cuts: list[int]) -> None:
    rows = np.random.default_rng(0).standard_normal((200, 4)).astype(np.float32) * [1, 1e-3, 1e4, 0] + [0, 1e3, 0, 0.1]
    first, *parts = (Moments.of(part.astype(np.float32)) for part in np.split(rows, cuts))
    for part in parts:
        first = first.join(part)
    exact = rows.astype(np.float32).astype(np.float64)
    assert first.count == 200
    np.testing.assert_allclose(first.mean, exact.mean(0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(first.squares / 199, exact.var(0, ddof=1), rtol=1e-9, atol=1e-24)
    pooled = first.pool()
    np.testing.assert_allclose(pooled.squares / (pooled.count - 1), exact.var(ddof=1), rtol=1e-9)
    assert pooled.low == exact.min()
    assert pooled.high == exact.max()


def test_data_that_fits_is_trained_in_memory_as_before(shards: Path) -> None:
    read = open_blocks(shards, NO_OPTIONS, 10_000_000)
    assert isinstance(read, Demonstrations)
    ours = fit(BC_SMALL, shards, memory="10MB", device="cpu", progress=False)
    theirs = fit(BC_SMALL, Demonstrations.load(shards), device="cpu", progress=False)
    assert all(torch.equal(a, b) for a, b in zip(ours.net.parameters(), theirs.net.parameters(), strict=True))
    with pytest.raises(InvalidSettings, match="in memory already"):
        fit(BC_SMALL, DEMOS, memory="1GB")


def make_feed(demos: Streamed, chunks: Chunks = SINGLE_STEPS) -> Feed:
    return Feed.of(demos, Normaliser.from_demonstrations(demos), chunks, torch.float32)


@pytest.mark.parametrize("chunks", [Chunks(), Chunks(horizon=4), Chunks(history=3), Chunks(horizon=16, history=2)])
def test_pairs_of_blocks_respect_the_ends_of_episodes(shards: Path, chunks: Chunks) -> None:
    found, whole = stream(shards).split(0.2)[0], Demonstrations.load(shards).split(0.2)[0]
    feed = make_feed(found, chunks)
    obs = feed.normaliser.normalise_obs(torch.tensor(whole.obs))
    act = feed.normaliser.normalise_act(torch.tensor(whole.act))
    data, steps = Dataset(obs, act, Windows.of(whole, chunks, torch.device("cpu"))), torch.arange(whole.num_steps)
    expected = [data.observe(steps), *((act, None) if data.windows is None else data.windows.gather_act(act, steps))]
    for start in range(0, whole.num_steps, 37):
        stop = min(start + 37, whole.num_steps)
        pairs = feed.read_pairs(start, stop)
        assert len(pairs) == (3 if chunks.horizon > 1 else 2)
        for ours, theirs in zip(pairs, expected, strict=False):
            assert theirs is not None
            assert torch.equal(ours, theirs[start:stop])


def test_each_pair_is_in_the_buffer_once_per_epoch_and_for_equally_long(shards: Path) -> None:
    found = stream(shards)
    feed = make_feed(found)
    total = found.num_steps
    keys = {tuple(row): number for number, row in enumerate(np.concatenate(found.read(0, total), 1).tolist())}
    assert len(keys) == total
    buffer = feed.make_buffer(torch.device("cpu"))
    flow = Flow(feed, [buffer], "policy", batch=16)
    scale, shift = feed.normaliser.obs_std, feed.normaliser.obs_mean
    order = np.concatenate([pairs[0].numpy() for pairs in flow._read(0, 3 * total)])  # pyright: ignore[reportPrivateUsage]
    raw = torch.tensor(order) * scale + shift
    # Three epochs have each pair once, in orders that differ.
    episodes = raw[:, 0].round().int().numpy().reshape(3, total)
    assert (np.sort(episodes, 1) == DEMOS.obs[:, 0]).all()
    assert len({tuple(row) for row in episodes.tolist()}) == 3
    assert all(len(np.unique(epoch, axis=0)) == total for epoch in order.reshape(3, total, -1))
    # The buffer is a window of this order that moves by c pairs each time, wherever it starts.
    for moved in (0, 1, 2, 3, 40, 41, 7):
        assert flow.advance(moved * EVERY + 5) == EVERY - 5
        start = moved * flow.count
        window = order[start : start + feed.size]
        assert np.array_equal(np.sort(buffer[0].numpy(), 0), np.sort(window, 0))
        assert np.array_equal(buffer[0].numpy()[(start + 3) % feed.size], window[3])
    flow.close()


def test_batches_are_distributed_like_uniform_draws(shards: Path) -> None:
    """Draws of all pairs over epochs, and the spread within batches, against uniform sampling in memory."""
    found = stream(shards, 40_000)
    feed, batch, total = make_feed(found), 64, found.num_steps
    assert feed.size < total / 4
    buffer = feed.make_buffer(torch.device("cpu"))
    flow = Flow(feed, [buffer], "policy", batch)
    assert flow.count == feed.size // 8  # a slow turn-over, the harder case
    data, rng = Dataset(buffer[0], buffer[1]), Rng([3], path="policy")["batch"]
    updates = EVERY * (4 * total // flow.count)  # four epochs
    seen: list[Any] = []
    for done in range(0, updates, EVERY):
        flow.advance(done)
        rng.clock.start(torch.tensor(done), 4)  # the buffer stays the same until the next `advance`
        for _ in range(4):
            seen.append(data.sample(batch, rng).obs[0, :, 0].numpy().copy())
            rng.clock.advance()
    flow.close()
    std, mean = float(feed.normaliser.obs_std[0]), float(feed.normaliser.obs_mean[0])
    episodes = (np.stack(seen) * std + mean).round().astype(int)  # (updates, batch): the episode of each draw
    lengths = DEMOS.lengths
    # 1. Every episode is drawn in proportion to its length. Without the first and the last filling of the buffer,
    #    each pair has the same expectation; 5 % are many standard errors of what remains at the ends.
    share = np.bincount(episodes.reshape(-1), minlength=len(lengths)) / episodes.size * total / lengths
    assert share.min() > 0.85
    assert share.max() < 1.15
    assert abs(share - 1).mean() < 0.05
    # 2. A batch has nearly as many episodes as a uniform one.
    uniform = np.random.default_rng(0).choice(DEMOS.obs[:, 0].astype(int), episodes.shape)
    kinds = [np.mean([len(np.unique(row)) for row in rows[::16]]) for rows in (episodes, uniform)]
    assert kinds[0] > 0.55 * kinds[1]
    # 3. The means of batches over an epoch have the expectation of uniform ones.
    epoch = len(episodes) // 4
    means = [rows[: 4 * epoch].reshape(4, -1).mean(1) for rows in (episodes, uniform)]
    assert abs(means[0][1:-1].mean() - DEMOS.obs[:, 0].mean()) < 0.02 * DEMOS.obs[:, 0].std()


def test_a_training_in_blocks_is_the_same_interrupted_alone_and_in_a_stack(shards: Path, tmp_path: Path) -> None:
    training = stream(shards).split(0.2)[0]
    method = replace(DBC_SMALL, horizon=4, history=2)
    whole = train(method, training)
    alone = train(method, training, seeds=(1,))
    assert all(torch.allclose(alone[name][0], whole[name][1], rtol=1e-9) for name in whole)

    class Stopped(Exception):
        pass

    stops = iter([("guide", 32), ("policy", 32)])
    wanted = next(stops)

    def stop(now: Any) -> None:
        nonlocal wanted
        if (now.stage, now.update) == wanted:
            wanted = next(stops, ("", 0))
            raise Stopped

    options = FitOptions(seeds=(0, 1), device="cpu", dtype=torch.float64, checkpoints=tmp_path / "checkpoints")
    for _ in range(2):
        with pytest.raises(Stopped):
            fit_with_options(method, training, options, stop)
    assert wanted == ("", 0)
    resumed = train(method, training, checkpoints=tmp_path / "checkpoints")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.slow
def test_a_policy_from_blocks_learns_what_one_in_memory_learns(shards: Path) -> None:
    method = DiffusionPolicy(training=replace(SHORT, updates=64), width=16, steps=20)
    assert torch.isfinite(train(method, stream(shards))["policy"]).all()
    long = replace(BC_SMALL, training=Training(updates=256, batch=64, lr=3e-3))
    errors: list[float] = []
    for demos in (stream(shards), Demonstrations.load(shards)):
        policy = fit(long, demos, device="cpu", progress=False, suggest=False)
        errors.append(float(np.abs(policy(DEMOS.obs) - DEMOS.act).mean()))
    assert errors[0] < 1.5 * errors[1] + 0.005


@pytest.fixture(name="whole", scope="module")
def _whole(shards: Path) -> Tensor:
    """The weights of a training that was not disturbed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diffclone.training.feed.EVERY", EVERY)
        return train(LONGER, stream(shards))["policy"]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-400])


def write_again(path: Path) -> None:
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (Path.unlink, "cannot be read any more"),
        (truncate, "changed after training began: it had"),
        (write_again, "changed after training began: it was written again"),
    ],
    ids=["missing", "truncated", "written again"],
)
def test_a_shard_that_changes_while_training_stops_it_and_it_resumes(
    harm: Callable[[Path], object], message: str, whole: Tensor, tmp_path: Path
) -> None:
    folder = write_shards(DEMOS, tmp_path / "npz")
    shard = folder / "part-3.npz"
    content, harmed = shard.read_bytes(), False

    def progress(now: Any) -> None:
        nonlocal harmed
        if now.update >= 32 and not harmed:
            harmed = True
            harm(shard)

    options = FitOptions(seeds=(0, 1), device="cpu", dtype=torch.float64, checkpoints=tmp_path / "checkpoints")
    with pytest.raises(InvalidData, match=message) as found:
        fit_with_options(LONGER, stream(folder), options, progress)
    assert "\n" not in str(found.value)
    assert str(shard) in str(found.value)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("diffclone-feed")]
    shard.write_bytes(content)
    assert torch.equal(train(LONGER, stream(folder), checkpoints=tmp_path / "checkpoints")["policy"], whole)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"obs": np.zeros((5, 4)), "act": np.zeros((5, 2))}, r"obs has shape \(4\) per step in episode 9, and \(3\)"),
        ({"obs": np.zeros((5, 3)), "act": np.zeros((3, 2))}, "Row i of both must be the same step"),
        ({"obs": np.zeros((5, 3)), "act": np.zeros((5, 1))}, r"actions has shape \(1\) per step"),
        ({"obs": np.full((5, 3), np.nan), "act": np.zeros((5, 2))}, "contains 15 NaN or infinite values"),
        (b"PK\x03\x04 and no more", "is not a readable folder"),
    ],
    ids=["columns", "rows", "actions", "NaN", "no zip"],
)
def test_a_shard_of_another_shape_is_refused_in_one_line(arrays: Any, message: str, tmp_path: Path) -> None:
    folder = write_shards(DEMOS, tmp_path / "npz")
    if isinstance(arrays, bytes):
        (folder / "part-9.npz").write_bytes(arrays)
    else:
        np.savez(folder / "part-9.npz", **arrays)
    with pytest.raises(InvalidData, match=message) as found:
        fit(BC_SMALL, folder, memory=MEMORY, progress=False)
    assert "\n" not in str(found.value)


def test_the_command_trains_in_blocks_and_says_what_it_cannot_do(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    common = ["train", str(shards), f"--out={out}", f"--memory={MEMORY}", "--seeds=1", "--no-cache", "--device=cpu"]
    main([*common, "--method=bc", "--training.updates=64", "--network.width=16"])
    output = capsys.readouterr()
    assert "read in blocks within 60 kB of memory" in output.out + output.err
    episodes = json.loads((out / "episodes.json").read_text())
    training, rest = DEMOS.split(0.1)
    assert episodes["trained"] == list(training.episode_fingerprints)
    assert episodes["held_out"] == list(rest.episode_fingerprints)
    assert json.loads((out / "run.json").read_text())["data"]["fingerprint"] == training.fingerprint
    assert any("held_out/loss" in line for line in (out / "metrics.jsonl").read_text().splitlines())
    for words, message in (
        ([], "a search for method and settings needs it in memory"),
        (["--method=bc", "--action-noise=0.1"], "need all demonstrations in memory"),
        (["--method=bc", "--memory=300"], "Use a larger --memory"),
        (["--method=bc", "--memory=lots"], "memory is a size such as 4GB"),
    ):
        with pytest.raises(SystemExit):
            main([*common[:2], f"--out={tmp_path / 'other'}", *common[3:], *words])
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
    DEMOS.save(tmp_path / "one.npz")
    with pytest.raises(SystemExit):
        main(["train", str(tmp_path / "one.npz"), f"--out={tmp_path / 'other'}", "--memory=20kB", "--plain"])
    assert "read in blocks: robomimic, d4rl, minari, lerobot, zarr, npz-folder." in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "size"), [("4GB", 4e9), ("500 MB", 5e8), ("2GiB", 2 * 2**30), ("1.5k", 1500), (12345, 12345)]
)
def test_sizes(text: str | int, size: float) -> None:
    assert parse_bytes(text) == size
    assert [format_bytes(n) for n in (20_000_000_000, 1_500_000, 999)] == ["20 GB", "1.5 MB", "999 bytes"]
    for wrong in ("", "GB", "-1GB", "0", "4 PB", "4G8"):
        with pytest.raises(InvalidSettings, match="is a size such as"):
            parse_bytes(wrong)
