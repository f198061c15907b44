"""Damaged, shared and removed files: a training resumes bit for bit, or says in one line why it cannot."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from conftest import Command
from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Training, fit
from diffclone.errors import DiffcloneWarning, InvalidData, InvalidFile
from diffclone.files import read_tensors, write_tensors
from diffclone.fit import FitOptions
from diffclone.training import Progress
from diffclone.training.runs import train_run
from diffclone.training.search_state import open_search

SMALL = Training(updates=96, batch=8)
METHOD = DBC(
    training=SMALL,
    network=Network(width=4, depth=1),
    coefficient=1.0,
    guide=DiffusionGuide(training=SMALL, width=4, depth=1),
)


@pytest.fixture(scope="module")
def demos() -> Demonstrations:
    x = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    return Demonstrations.from_arrays(x, x[:, :1], episode_ends=[30, 60])


class Interrupted(Exception):
    """Raised by `interrupt_at`."""


def interrupt_at(stage: str, update: int) -> Any:
    def report(now: Progress) -> None:
        if (now.stage, now.update) == (stage, update):
            raise Interrupted

    return report


def options(folder: Path, *, seeds: tuple[int, ...] = (0, 1, 2), cache: bool = True) -> FitOptions:
    return FitOptions(seeds=seeds, device="cpu", cache=folder / "cache" if cache else None, checkpoint_seconds=0.0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(folder / "policy" / "model.safetensors")[0]


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


@pytest.fixture(scope="module")
def undisturbed(demos: Demonstrations, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("undisturbed")
    train_run(folder / "run", METHOD, demos, options(folder, cache=False))
    return weights(folder / "run")


@pytest.mark.parametrize("where", [("guide", 64), ("policy", 32)])
def test_a_training_resumes_although_another_one_filled_the_cache(
    demos: Demonstrations, tmp_path: Path, undisturbed: dict[str, torch.Tensor], where: tuple[str, int]
) -> None:
    with pytest.raises(Interrupted):
        train_run(tmp_path / "a", METHOD, demos, options(tmp_path), progress=interrupt_at(*where))
    train_run(tmp_path / "b", METHOD, demos, options(tmp_path, seeds=(1,)))
    train_run(tmp_path / "a", METHOD, demos, options(tmp_path))
    assert_equal(weights(tmp_path / "a"), undisturbed)


def test_a_training_resumes_after_it_was_killed_between_two_guides_of_the_cache(
    demos: Demonstrations, tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(Interrupted):
        train_run(tmp_path / "a", METHOD, demos, options(tmp_path), progress=interrupt_at("policy", 32))
    sorted((tmp_path / "cache").iterdir())[0].unlink()
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    with pytest.raises(Interrupted):  # some guides are in the cache, one is half trained
        train_run(tmp_path / "a", METHOD, demos, options(tmp_path), progress=interrupt_at("guide", 32))
    shutil.rmtree(tmp_path / "cache")
    train_run(tmp_path / "a", METHOD, demos, options(tmp_path))
    assert_equal(weights(tmp_path / "a"), undisturbed)


@pytest.mark.parametrize("stage", ["guide", "policy"])
@pytest.mark.parametrize("damaged", [("",), ("", ".previous")])
def test_training_resumes_from_the_newest_checkpoint_that_is_not_damaged(
    demos: Demonstrations, tmp_path: Path, undisturbed: dict[str, torch.Tensor], stage: str, damaged: tuple[str, ...]
) -> None:
    folder, without = tmp_path / "run", options(tmp_path, cache=False)
    with pytest.raises(Interrupted):
        train_run(folder, METHOD, demos, without, progress=interrupt_at(stage, 64))
    for suffix in damaged:
        flip_bit(folder / "checkpoints" / f"{stage}{suffix}.safetensors")
    seen: list[Progress] = []
    with pytest.warns(DiffcloneWarning, match=rf"{stage}{damaged[-1]}\.safetensors is damaged"):
        train_run(folder, METHOD, demos, without, progress=seen.append)
    assert next(now.update for now in seen if now.stage == stage) == (64 if damaged == ("",) else 32)
    assert_equal(weights(folder), undisturbed)


def test_a_damaged_guide_in_the_cache_is_trained_again(
    demos: Demonstrations, tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    train_run(tmp_path / "a", METHOD, demos, options(tmp_path))
    flip_bit(sorted((tmp_path / "cache").iterdir())[0])
    with pytest.warns(DiffcloneWarning, match=r"is damaged.* The guide is trained again\."):
        train_run(tmp_path / "b", METHOD, demos, options(tmp_path))
    assert_equal(weights(tmp_path / "b"), undisturbed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DiffcloneWarning)  # the cache is repaired
        train_run(tmp_path / "c", METHOD, demos, options(tmp_path))


def test_a_flipped_bit_in_a_file_of_tensors_is_found_or_changes_no_tensor(tmp_path: Path) -> None:
    path, x, refused = tmp_path / "x.safetensors", torch.arange(4.0), 0
    write_tensors(path, {"x": x}, {"seeds": [1]})
    original = path.read_bytes()
    bits = range(0, 8 * len(original), 3)
    for bit in bits:
        content = bytearray(original)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(content))
        try:
            tensors, about = read_tensors(path)
        except InvalidFile:
            refused += 1
        else:  # the bit was in the name of the checksum
            assert torch.equal(tensors["x"], x)
            assert about != {"seeds": [1]}
    assert refused > 0.8 * len(bits)


def test_a_file_of_tensors_may_have_no_metadata(tmp_path: Path) -> None:
    header = json.dumps({"__metadata__": None, "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    tensors, about = read_tensors(tmp_path / "x.safetensors")
    assert (tensors["x"].tolist(), about) == ([0.0], None)


def test_temporary_files_of_a_killed_process_do_not_block_a_folder(demos: Demonstrations, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (folder / ".policy.77").mkdir(parents=True)
    (folder / ".run.json.77").write_text("{")
    (folder / ".policy.77" / "config.json").write_text("{")
    assert train_run(folder, BC(training=SMALL), demos, FitOptions(device="cpu")).finished
    assert not list(folder.glob(".*"))


def test_temporary_files_do_not_block_the_folder_of_a_search(demos: Demonstrations, tmp_path: Path) -> None:
    (tmp_path / ".search.json.77").write_text("{")
    with open_search(tmp_path, demos, 60.0, [0]) as state:
        assert "identity" in state
    (tmp_path / "search.json").unlink()
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(InvalidFile, match="holds no search"), open_search(tmp_path, demos, 60.0, [0]):
        pass


def test_a_folder_removed_during_training_is_one_clear_line(demos: Demonstrations, tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def remove(now: Progress) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(InvalidFile, match=r"was removed.* Run the same command again"):
        train_run(folder, METHOD, demos, options(tmp_path), progress=remove)
    assert train_run(folder, METHOD, demos, options(tmp_path)).finished


def test_resuming_on_another_number_of_cores_is_reported(
    demos: Demonstrations, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    with pytest.raises(Interrupted):
        train_run(tmp_path / "a", METHOD, demos, options(tmp_path), progress=interrupt_at("policy", 32))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with pytest.warns(DiffcloneWarning, match="started on 2 CPU cores and is resumed on 1"):
        train_run(tmp_path / "a", METHOD, demos, options(tmp_path))


@pytest.mark.parametrize(("value", "normalisation"), [(np.nan, "z-score"), (np.nan, "none"), (np.inf, "none")])
def test_a_policy_refuses_observations_without_an_action(
    demos: Demonstrations, value: float, normalisation: Any
) -> None:
    method = BC(training=SMALL, network=Network(width=4, depth=0), normalisation=normalisation)
    policy = fit(method, demos, device="cpu")
    with pytest.raises(InvalidData, match="NaN or infinity"):
        policy(np.array([[value, -value]]))


def test_infinity_is_clipped_like_any_far_observation(demos: Demonstrations) -> None:
    policy = fit(BC(training=SMALL, network=Network(width=4, depth=1)), demos, device="cpu")
    assert np.array_equal(policy(np.array([np.inf, 0.0])), policy(np.array([1e9, 0.0])))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method", "bc", "--seeds", "1000000000"), "at most 100000 members; these would be 1000000000"),
        (("--seeds", "1000000000"), "at most 100000 members; these would be 1000000000"),
        (("--method", "bc", "--network.width", "10000000"), "network.width is 10000000; it can be at most 65536"),
        (("--method", "bc", "--network.depth", "1000000"), "network.depth is 1000000; it can be at most 1000"),
        (
            ("--method", "ibc", "--counter-examples", "10000000"),
            "counter_examples is 10000000; it can be at most 65536",
        ),
        (("--method", "bc", "--vary", "training.lr=1", "training.lr=2"), "--vary names training.lr twice; give all of"),
        (("--method", "bc", "--training.batch", "10000000"), "training.batch is 10000000; it can be at most 1048576"),
    ],
)
def test_sizes_that_no_machine_has_are_refused_before_a_folder_is_made(
    diffclone: Command, tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    result = diffclone("train", "spiral", "--device", "cpu", *flags, "--out", tmp_path / "run")
    assert result.code != 0
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_messages_that_quote_a_damaged_file_stay_on_one_printable_line(demos: Demonstrations, tmp_path: Path) -> None:
    train_run(tmp_path, BC(training=SMALL), demos, FitOptions(device="cpu"))
    run = tmp_path / "run.json"
    run.write_text(run.read_text().replace('"width"', '"wi\x7fdth\\u001b[2J\\n"'))
    with pytest.raises(InvalidFile, match="holds another run") as error:
        train_run(tmp_path, BC(training=SMALL), demos, FitOptions(device="cpu"))
    assert r"wi\x7fdth\x1b[2J\n" in str(error.value)
    assert str(error.value).isprintable()
