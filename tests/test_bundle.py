from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone.data import Demonstrations
from diffclone.data.formats.npz import join_planes, split_planes
from diffclone.errors import InvalidData, InvalidFile
from diffclone.tasks import TASKS
from scripts.bundle import bundle


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_planes_are_the_bytes_of_the_numbers(dtype: Any) -> None:
    values = np.random.default_rng(0).normal(size=(7, 3)).astype(dtype)
    planes = split_planes(values)
    assert planes.shape == (values.itemsize, 3, 7)
    assert planes[1, 2, 5] == values[5, 2].tobytes()[1]
    assert np.array_equal(join_planes(planes), values)
    assert join_planes(planes).flags.c_contiguous


def test_a_bundled_file_has_the_same_numbers_in_fewer_bytes(tmp_path: Path) -> None:
    demos = TASKS["spiral"].demonstrations()
    demos.save(tmp_path / "plain.npz")
    bundle(demos, tmp_path / "small.npz")
    small = Demonstrations.load(tmp_path / "small.npz")
    assert (small.fingerprint, small.meta) == (demos.fingerprint, demos.meta)
    assert (tmp_path / "small.npz").stat().st_size < (tmp_path / "plain.npz").stat().st_size
    with pytest.raises(InvalidFile, match="exists already"):
        bundle(demos, tmp_path / "small.npz")


def test_half_precision_is_in_the_metadata(tmp_path: Path) -> None:
    demos = TASKS["spiral"].demonstrations()
    bundle(demos, tmp_path / "half.npz", half=True)
    half = Demonstrations.load(tmp_path / "half.npz")
    assert half.meta["precision"] == "half"
    assert half.obs.dtype == np.float32
    assert np.array_equal(half.obs, demos.obs.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    "planes", [np.zeros((3, 2, 5), np.uint8), np.zeros((4, 2), np.uint8), np.zeros((4, 2, 5), np.int8)]
)
def test_invalid_planes_are_one_line(tmp_path: Path, planes: Any) -> None:
    np.savez(tmp_path / "bad.npz", obs_planes=planes, act=np.zeros((5, 1)), episode_ends=np.array([5]))
    with pytest.raises(InvalidData) as error:
        Demonstrations.load(tmp_path / "bad.npz")
    assert "uint8 (2 or 4, size, steps) was expected" in str(error.value)
    assert "\n" not in str(error.value)
