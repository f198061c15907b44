"""Damaged or malicious files give a valid result or one line of text, in limited memory and time."""

import io
import json
import os
import pickle
import random
import resource
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import Demonstrations
from diffclone.data.formats import describe
from diffclone.data.formats.memory import ALWAYS_ALLOWED, MAXIMUM, RATIO, MemoryBudget
from diffclone.errors import DiffcloneError, InvalidData
from faults.damage import damage_path
from test_formats import (
    ACT,
    ENDS,
    LENGTHS,
    STATE,
    d4rl,
    h5py,
    lerobot,
    minari_store,
    pa,
    parquet,
    robomimic,
    zarr,
    zarr_buffer,
)
from test_robot_formats import extract_lerobot, extract_robomimic

pytestmark = pytest.mark.filterwarnings("ignore")

GROWTH_MIB, SECONDS = 1024, 5.0
FEW, MANY = 30, 500


class Bomb:
    """An object that creates a folder when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def npz(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"obs": STATE, "act": ACT, "episode_ends": np.array(ENDS), "meta": '{"task": "maze"}'}
    np.savez_compressed(path, **(arrays | changes))
    return path


def pt(path: Path, *, zipped: bool = True) -> Path:
    done = torch.zeros(8)
    done[[2, 3]] = 1
    torch.save(
        {"obs": torch.tensor(STATE), "actions": torch.tensor(ACT), "done": done},
        path,
        _use_new_zipfile_serialization=zipped,
    )
    return path


def zarr_folder(path: Path) -> Path:
    zarr_buffer(path)
    return path


def zarr_zip(path: Path) -> Path:
    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr_buffer(store, version=3)
    return path


def minari_folder(path: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return minari_store(path, patch)


def lerobot_keys(path: Path) -> Path:
    """Return a folder that lerobot wrote, without the files that are not read."""
    folder = extract_lerobot(path) / "keys"
    shutil.rmtree(folder / "meta" / "episodes")
    (folder / "meta" / "stats.json").unlink()
    return folder


def robomimic_file(path: Path) -> Path:
    return robomimic(path, state=STATE, goal=STATE[:, :2].astype(np.float64))


def table_of_steps() -> Any:
    rows = {"observation": pa.array(list(STATE)), "action": pa.array(list(ACT))}
    return pa.table(rows | {"episode": pa.array(np.repeat(np.arange(3), LENGTHS))})


def csv(path: Path) -> Path:
    values = np.column_stack([STATE, ACT, np.repeat(np.arange(3), LENGTHS)])
    np.savetxt(path, values, delimiter=",", header="obs_0,obs_1,obs_2,action_0,action_1,episode", comments="", fmt="%g")
    return path


def parquet_file(path: Path) -> Path:
    parquet.write_table(table_of_steps(), path)
    return path


def hugging_face(path: Path) -> Path:
    path.mkdir()
    (path / "state.json").write_text("{}")
    with pa.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as file:
        table = table_of_steps()
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    return path


def npz_folder(path: Path) -> Path:
    path.mkdir()
    for number, end in enumerate(ENDS):
        start = end - LENGTHS[number]
        np.savez_compressed(path / f"{number}.npz", obs=STATE[start:end], act=ACT[start:end])
    return path


def minari_arrow(path: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        return minari_store(path, patch, storage="arrow")


FORMATS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "npz": ("a.npz", npz),
    "pt": ("a.pt", pt),
    "pt-legacy": ("a.pt", lambda path: pt(path, zipped=False)),
    "robomimic": ("a.hdf5", robomimic_file),
    "d4rl": ("a.hdf5", d4rl),
    "minari": ("store", minari_folder),
    "lerobot": ("set", lerobot),
    "lerobot-own": ("set", lerobot_keys),
    "robomimic-own": ("a.hdf5", extract_robomimic),
    "zarr": ("a.zarr", zarr_folder),
    "zarr-zip": ("a.zarr.zip", zarr_zip),
    "csv": ("a.csv", csv),
    "parquet": ("a.parquet", parquet_file),
    "hf": ("set", hugging_face),
    "npz-folder": ("set", npz_folder),
    "minari-arrow": ("store", minari_arrow),
}


def load_safely(source: Path | str) -> str:
    """Load a file, check memory and time, and return the error message or an empty string."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    message = ""
    try:
        demos = Demonstrations.load(source)
        assert np.isfinite(demos.obs).all()
        assert len(demos.obs) == len(demos.act) == demos.episode_ends[-1]
        json.dumps(demos.meta)
        _ = demos.action_bounds
    except DiffcloneError as error:
        message = str(error)
        assert message
        assert len(message) < 1500
        assert message.isprintable()
    assert time.monotonic() - begun < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < GROWTH_MIB
    return message


def fuzz(folder: Path, name: str, count: int) -> None:
    """Load many damaged files of one format, and check that no file is created."""
    filename, make = FORMATS[name]
    (folder / "good").mkdir()
    good = make(folder / "good" / filename)
    assert load_safely(good) == ""
    work = folder / "work"
    refused = 0
    for number in range(count):
        rng = random.Random(f"{name} {number}")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        bad = work / good.name
        _ = shutil.copytree(good, bad) if good.is_dir() else shutil.copy(good, bad)
        damage_path(bad, rng)
        before = sorted(folder.rglob("*"))
        refused += load_safely(bad) != ""
        assert sorted(folder.rglob("*")) == before, f"damaged file {number} created a file"
    assert refused > count // 10, "too few of the damaged files are refused"


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files(tmp_path: Path, name: str) -> None:
    fuzz(tmp_path, name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files(tmp_path: Path, name: str) -> None:
    fuzz(tmp_path, name, MANY)


def npy_declaring(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """Return the header of a .npy file with this shape, and other content."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


@pytest.mark.parametrize("shape", [(2**40, 3), (2**60, 2**60), (2**24, 8), (0, 2**62)])
def test_npz_headers_with_wrong_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    npz(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as file:
        for name in ("obs", "act", "episode_ends"):
            file.writestr(f"{name}.npy", npy_declaring(shape))
    assert load_safely(tmp_path / "b.npz")


@pytest.mark.parametrize(
    ("name", "inner"), [("a.npz", "obs.npy"), ("a.pt", "archive/data.pkl"), ("a.zarr.zip", "meta/episode_ends/.zarray")]
)
def test_zip_bombs(tmp_path: Path, name: str, inner: str) -> None:
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as file:
        buffer = ("data/action/.zarray", "data/state/.zarray")
        for other in buffer if "zarr" in name else ("act.npy", "episode_ends.npy"):
            file.writestr(other, npy_declaring((1, 1), bytes(4)))
        with file.open(inner, "w") as entry:  # 320 MiB of zeros in about 300 KiB
            entry.write(npy_declaring((5 * 2**22, 4)))
            for _ in range(20):
                entry.write(bytes(2**24))
    assert "declares 320 MiB in a file of 3" in load_safely(tmp_path / name)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_compression_methods_with_unknown_memory_use_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(npz(tmp_path / "a.npz")) as good, zipfile.ZipFile(tmp_path / "b.npz", "w", method) as file:
        for name in good.namelist():
            file.writestr(name, good.read(name))
    assert "deflate was expected" in load_safely(tmp_path / "b.npz")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    mark, bomb = tmp_path / "mark", Bomb(tmp_path / "mark")
    np.savez(tmp_path / "a.npz", obs=np.array([bomb]), act=ACT, episode_ends=ENDS, allow_pickle=True)
    torch.save({"obs": bomb, "actions": torch.ones(1), "done": torch.ones(1)}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(bomb))
    zarr_buffer(tmp_path / "a.zarr")
    about = json.loads((tmp_path / "a.zarr/data/state/.zarray").read_text())
    for number, change in enumerate(
        [{"filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}}, {"dtype": "|O"}]
    ):
        folder = tmp_path / f"{number}.zarr"
        shutil.copytree(tmp_path / "a.zarr", folder)
        (folder / "data/state/.zarray").write_text(json.dumps(about | change))
        for chunk in (folder / "data/state").glob("[0-9]*"):
            chunk.write_bytes(pickle.dumps(bomb))
        assert load_safely(folder)
    for name in ("a.npz", "a.pt", "b.pt"):
        assert load_safely(tmp_path / name)
    assert not mark.exists()


def test_tensors_that_are_larger_than_their_storage(tmp_path: Path) -> None:
    one = torch.ones(1, 1).expand(2**33, 4)
    torch.save({"obs": one, "actions": one, "done": one[:, 0]}, tmp_path / "a.pt")
    assert "obs declares 256 GiB" in load_safely(tmp_path / "a.pt")


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_hdf5_datasets_with_wrong_shapes(tmp_path: Path, compression: str | None) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        # Nothing is stored: the file is a few KiB and declares a terabyte.
        file.create_dataset("actions", shape=(2**35, 8), dtype="f4", chunks=(1024, 8), compression=compression)
        file["observations"], file["terminals"] = STATE, np.ones(8)
    assert "/actions declares 1024 GiB in a file of" in load_safely(tmp_path / "a.hdf5")
    with h5py.File(tmp_path / "b.hdf5", "w") as file:
        file.create_dataset("actions", (2, 2), "f4", chunks=(2**27, 2), maxshape=(None, 2), compression=compression)
        file["observations"], file["terminals"] = STATE[:2], np.ones(2)
    assert "/actions declares 1 GiB" in load_safely(tmp_path / "b.hdf5")


def test_hdf5_links_to_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(1000))
    d4rl(tmp_path / "outside.hdf5")
    for name, message in (
        ("link", "is a link."),
        ("soft", "is a link."),
        ("raw", "other files"),
        ("virtual", "other files"),
    ):
        path = d4rl(tmp_path / f"{name}.hdf5", observations=None)
        with h5py.File(path, "a") as file:
            if name == "link":
                file["observations"] = h5py.ExternalLink("outside.hdf5", "/observations")
            elif name == "soft":
                file["observations"] = h5py.SoftLink("/observations")
            elif name == "raw":
                file.create_dataset("observations", (8, 3), "f4", external=[(str(tmp_path / "secret"), 0, 96)])
            else:
                layout = h5py.VirtualLayout((8, 3), "f4")
                layout[:] = h5py.VirtualSource(str(tmp_path / "outside.hdf5"), "observations", (8, 3))
                file.create_virtual_dataset("observations", layout)
        assert message in load_safely(path)


@pytest.mark.parametrize(("place", "value"), [(24, 0), (24, 2**64 - 16), (96, 0), (96, 2**63)])
def test_hdf5_heaps_that_the_library_would_read_for_ever(tmp_path: Path, place: int, value: int) -> None:
    content = bytearray(robomimic_file(tmp_path / "a.hdf5").read_bytes())
    heap = content.index(b"GCOL")
    content[heap + place : heap + place + 8] = value.to_bytes(8, "little")
    (tmp_path / "b.hdf5").write_bytes(content)
    assert "is damaged: an object of the heap at byte" in load_safely(tmp_path / "b.hdf5")


def test_hdf5_heaps_with_free_space_are_read(tmp_path: Path) -> None:
    path = d4rl(tmp_path / "a.hdf5")
    with h5py.File(path, "a") as file:
        for k in range(300):
            file.attrs[f"text {k % 7}"] = "é" * (13 * k % 997)
            if k % 3 == 0:
                del file.attrs[f"text {k % 7}"]
    assert path.read_bytes().count(b"GCOL") > 3
    assert load_safely(path) == ""


def test_hdf5_groups_that_contain_themselves(tmp_path: Path) -> None:
    folder = minari_folder(tmp_path)
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        group = file["episode_0/observations"]
        group["again"] = group
    assert "levels deep" in load_safely(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_nan_and_infinite_numbers(tmp_path: Path, value: float) -> None:
    wrong = STATE.astype(np.float64)
    wrong[5, 1] = value
    sources: list[Path] = [
        npz(tmp_path / "a.npz", obs=wrong),
        robomimic(tmp_path / "a.hdf5", state=wrong),
        d4rl(tmp_path / "b.hdf5", observations=wrong),
        lerobot(tmp_path / "set", **{"observation.state": pa.array(list(wrong))}),
    ]
    for source in sources:
        where = "cannot hold, such as 1e+300 in column 1" if value == 1e300 else "first in row 5, column 1"
        assert where in load_safely(source)


@pytest.mark.parametrize("wrong", [np.array(["text"] * 8), STATE.astype(complex), np.zeros(8, dtype="M8[s]")])
def test_arrays_of_other_types_than_numbers(tmp_path: Path, wrong: Any) -> None:
    assert load_safely(npz(tmp_path / "a.npz", act=wrong))
    if wrong.dtype.kind == "c":
        assert load_safely(d4rl(tmp_path / "a.hdf5", actions=wrong))


@pytest.mark.parametrize(
    "meta",
    [
        '{"action_bounds": "abc"}',
        '{"action_bounds": [[-1], [1, 2, 3]]}',
        '{"action_bounds": [[1, 1], [-1, -1]]}',
        '{"action_bounds": [NaN, NaN]}',
        '{"action_bounds": 3}',
        '{"task": ["maze"]}',
        '{"understood": "all"}',
        '{"understood": {"observations": {"a": "b"}}}',
        '{"image": ["a", 2, 3]}',
        '{"observation_keys": [["a", -1]]}',
        '{"observation_keys": 3}',
        "[" * 100_000,
        "9" * 10_000,
        '"' + "x" * 100,
    ],
)
def test_invalid_metadata(tmp_path: Path, meta: str) -> None:
    message = load_safely(npz(tmp_path / "a.npz", meta=meta)).removeprefix(str(tmp_path))
    assert "meta" in message or "action_bounds" in message


def test_zarr_chunks_of_the_wrong_size(tmp_path: Path) -> None:
    import numcodecs

    codecs: dict[str, Any] = {"blosc": numcodecs.Blosc(), "zstd": numcodecs.Zstd(), "gzip": numcodecs.GZip()}
    for name, codec in codecs.items():
        zarr_buffer(tmp_path / f"{name}.zarr", compressors=codec)
        for size in (2**28, 4):  # too large, too small
            chunk = codec.encode(np.zeros(size, dtype=np.uint8))
            (tmp_path / f"{name}.zarr/data/state/0.0").write_bytes(chunk)
            message = load_safely(tmp_path / f"{name}.zarr")
            assert "state/0.0 does not decompress to 36 bytes" in message or "cannot reshape" in message


def test_zarr_chunks_of_several_compressed_parts(tmp_path: Path) -> None:
    import numcodecs

    codecs: dict[str, Any] = {"zstd": numcodecs.Zstd(), "gzip": numcodecs.GZip()}
    for name, codec in codecs.items():
        zarr_buffer(tmp_path / f"{name}.zarr", compressors=codec)
        path = tmp_path / f"{name}.zarr/data/state/0.0"
        path.write_bytes(path.read_bytes() + codec.encode(np.zeros(2**28, dtype=np.uint8)))
        assert "state/0.0 does not decompress to 36 bytes" in load_safely(tmp_path / f"{name}.zarr")


@pytest.mark.parametrize("change", [{"compressor": {"id": "lzma"}}, {"filters": [{"id": "delta", "dtype": "<f4"}]}])
def test_zarr_codecs_that_are_not_allowed(tmp_path: Path, change: dict[str, Any]) -> None:
    zarr_buffer(tmp_path / "a.zarr")
    path = tmp_path / "a.zarr/data/state/.zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "one of blosc, gzip, lz4, zstd was expected" in load_safely(tmp_path / "a.zarr")


def test_zarr_links_out_of_the_folder(tmp_path: Path) -> None:
    zarr_buffer(tmp_path / "a.zarr")
    chunk = tmp_path / "a.zarr/data/state/0.0"
    chunk.rename(tmp_path / "outside")
    chunk.symlink_to(tmp_path / "outside")
    assert "data/state/0.0 is a link out of the folder" in load_safely(tmp_path / "a.zarr")


@pytest.mark.parametrize(
    "change", [{"shape": [2**40, 3]}, {"chunks": [1, 2**40]}, {"shape": [2**24, 1], "chunks": [1, 1]}]
)
def test_zarr_arrays_with_wrong_shapes(tmp_path: Path, change: dict[str, Any]) -> None:
    zarr_buffer(tmp_path / "a.zarr")
    path = tmp_path / "a.zarr/data/state/.zarray"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert "declares" in load_safely(tmp_path / "a.zarr")


def test_names_that_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    zarr_zip(tmp_path / "good.zarr.zip")
    with (
        zipfile.ZipFile(tmp_path / "good.zarr.zip") as good,
        zipfile.ZipFile(tmp_path / "inner" / "a.zarr.zip", "w") as file,
    ):
        for name in good.namelist():
            file.writestr(f"../../{name}", good.read(name))
    before = sorted(tmp_path.rglob("*"))
    load_safely(tmp_path / "inner" / "a.zarr.zip")
    assert sorted(tmp_path.rglob("*")) == before
    for source in ("minari:../../etc-v0", "minari:/etc", "lerobot:../../../etc", "lerobot:/etc"):
        assert load_safely(source)


def test_named_pipes_do_not_block(tmp_path: Path) -> None:
    zarr_buffer(tmp_path / "a.zarr")
    places = [
        ("a.npz", "is empty"),
        ("a.zarr/data/state/0.0", ""),
        ("store/mine/test-v0/data/main_data.hdf5", "no such file"),
        ("set/data/chunk-000/file-000.parquet", ""),
    ]
    minari_folder(tmp_path / "store")
    lerobot(tmp_path / "set")
    for (name, message), source in zip(places, ("a.npz", "a.zarr", "store/mine/test-v0", "set"), strict=True):
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
        assert message in load_safely(tmp_path / source)


def test_json_that_needs_much_memory_when_parsed(tmp_path: Path) -> None:
    bomb = '{"a": [' + "[]," * 8_000_000 + "[]]}"
    lerobot(tmp_path / "set")
    (tmp_path / "set/meta/info.json").write_text(bomb)
    for source in (npz(tmp_path / "a.npz", meta=bomb), tmp_path / "set"):
        assert "characters; at most 16777216 are read" in load_safely(source)


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("\x1b[2Jgone\n" + "x" * 5000, b"")
    message = load_safely(tmp_path / "a.npz")
    assert "gone" in message
    assert "\x1b" not in message
    hostile = robomimic(tmp_path / "a.hdf5", **{"\x1b[2J\n": STATE})
    assert describe(Demonstrations.load(hostile)).isprintable()


def test_parquet_files_that_compress_extremely_well(tmp_path: Path) -> None:
    folder = lerobot(tmp_path / "set")
    # 320 MiB of zeros, and as many indices, in about 100 KiB. This is noticed while rows are read.
    zero = pa.array(np.zeros(2**20, dtype=np.int64))
    table = pa.table({"action": zero.cast(pa.float64()), "episode_index": zero, "frame_index": zero})
    with parquet.ParquetWriter(folder / "data/chunk-000/file-000.parquet", table.schema, compression="zstd") as file:
        for _ in range(40):
            file.write_table(table)
    assert "may use 256 MiB at most" in load_safely(folder)


def test_the_memory_budget() -> None:
    assert MemoryBudget("a", 10).allowed == ALWAYS_ALLOWED
    assert MemoryBudget("a", ALWAYS_ALLOWED).allowed == RATIO * ALWAYS_ALLOWED
    assert MemoryBudget("a", MAXIMUM).allowed == MAXIMUM
    budget = MemoryBudget("a", 0)
    budget.reserve("x", (ALWAYS_ALLOWED // 8, 4), 2)
    with pytest.raises(InvalidData, match=r"a: x declares 4 bytes in a file of 0 bytes, which may use 256 MiB at most"):
        budget.reserve("x", (2, 1), 2)
