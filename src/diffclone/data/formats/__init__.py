"""Files of demonstrations, one module a format. A reader's answer is the arguments of `Demonstrations.from_arrays`."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.d4rl import read_d4rl
from diffclone.data.formats.found import check_meta
from diffclone.data.formats.hdf5 import opened
from diffclone.data.formats.lerobot import find_lerobot, read_lerobot, write_lerobot
from diffclone.data.formats.minari import ID, find_minari, read_minari, store, write_minari
from diffclone.data.formats.npz import read_npz, write_npz
from diffclone.data.formats.pt import read_pt
from diffclone.data.formats.robomimic import read_robomimic, write_robomimic
from diffclone.data.formats.zarr_buffer import read_zarr
from diffclone.errors import DiffcloneError, InvalidData, MissingPackage
from diffclone.files import create_path, refuse_existing

Reader: TypeAlias = Callable[[Path], dict[str, Any]]

PREFIXES = ("minari:", "lerobot:")
"""What names a dataset that is not a plain path."""
NAMES = "*.npz, *.pt, *.hdf5, *.zarr.zip; folders of Minari, LeRobot or zarr; and minari:ID, lerobot:FOLDER"
HDF5 = (".hdf5", ".h5")
LINE = 1000
"""Letters of the longest line that is said of a file."""


def read(source: str | Path) -> Demonstrations:
    """Demonstrations from a file, a folder, or a name with a prefix. Whatever is wrong with them is one line."""
    path, label, reader = _recognise(str(source))
    try:
        demos = _made(source, reader(path))
    except MissingPackage:
        raise
    except DiffcloneError as fault:
        raise InvalidData(_one_line(str(fault))) from None
    except Exception as fault:  # what a damaged file makes a package raise is anything
        reason = _one_line(str(fault) or type(fault).__name__)[:160]
        raise InvalidData(f"{source} is not a readable {label} ({reason}).") from fault
    return demos


def write(demos: Demonstrations, target: str | Path) -> None:
    """A new file or folder, in the format that its name asks for; whole or not at all, and never over another."""
    name = str(target)
    plain = name.partition(":")[2] if name.startswith(PREFIXES) else name
    path = Path(plain)
    if name.startswith("minari:") and ID.fullmatch(plain):
        with create_path(store() / plain) as folder:
            write_minari(demos, folder, plain)
    elif name.startswith("minari:"):
        with create_path(path) as folder:
            write_minari(demos, folder, path.name if ID.fullmatch(path.name) else f"{path.name}-v0")
    elif name.startswith("lerobot:"):
        with create_path(path) as folder:
            write_lerobot(demos, folder)
    elif path.suffix in HDF5:
        with create_path(path) as file:
            write_robomimic(demos, file)
    elif path.suffix == ".npz":
        refuse_existing(path)
        write_npz(demos, path)
    else:
        raise InvalidData(
            f"demonstrations are saved as .npz; or as .hdf5 (robomimic), minari:ID-v0 and lerobot:FOLDER. "
            f"{path} ends in {path.suffix or 'nothing'}."
        )


def describe(demos: Demonstrations) -> str:
    """One line for a person: what was understood of a file."""
    known = demos.meta.get("understood", {})
    obs = known.get("observations") or {"obs": [demos.obs.shape[1]]}
    parts = [
        f"{demos.num_episodes} episodes, {demos.num_steps} steps",
        f"observations {_keys(obs)} in {demos.obs.min():g} … {demos.obs.max():g}",
        f"actions ({demos.act.shape[1]}) in {demos.act.min():g} … {demos.act.max():g}",
    ]
    if left_out := known.get("left_out"):
        parts.append(f"left out {_keys(left_out)}")
    return _one_line(f"{known.get('format', 'demonstrations')}: {'; '.join(parts)}")


def _made(source: str | Path, arguments: dict[str, Any]) -> Demonstrations:
    try:
        demos = Demonstrations.from_arrays(**arguments)
    except InvalidData as fault:
        raise InvalidData(f"{source}: {fault}") from None
    check_meta(source, demos.meta)
    return demos


def _one_line(text: str) -> str:
    """Names in a file may hold line ends and commands to a terminal, and may be many."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= LINE else f"{shown[: LINE - 1]}…"


def _keys(shapes: dict[str, list[int]]) -> str:
    return ", ".join(f"{key} ({', '.join(map(str, shape))})" for key, shape in shapes.items())


def _recognise(source: str) -> tuple[Path, str, Reader]:
    """Where the data lies, what it is called, and who reads it: by a prefix, else by content, else by suffix."""
    prefix, _, name = source.partition(":")
    if prefix == "minari":
        return find_minari(name), "Minari dataset", read_minari
    if prefix == "lerobot":
        return find_lerobot(name), "LeRobot dataset", read_lerobot
    path, _, chosen = (source, "", "") if Path(source).exists() else source.partition("#")
    path = Path(path)
    if not path.exists():
        raise InvalidData(f"no such file: {path}.")
    if path.is_dir():
        return _recognise_folder(path)
    if path.stat().st_size == 0:
        raise InvalidData(f"{path} is empty (0 bytes).")
    with path.open("rb") as file:
        head = file.read(8)
    if head == b"\x89HDF\r\n\x1a\n" or path.suffix in HDF5:
        return path, "HDF5 file of robomimic or D4RL", lambda file: _read_hdf5(file, chosen or None)
    names = _zip_names(path) if head.startswith(b"PK") else []
    if any(name.endswith((".zarray", "zarr.json")) for name in names) or path.name.endswith(".zarr.zip"):
        return path, "zip of a zarr replay buffer", read_zarr
    if any(name.endswith("/data.pkl") for name in names) or path.suffix == ".pt":
        return path, ".pt file of tensors", read_pt
    if any(name.endswith(".npy") for name in names) or path.suffix == ".npz":
        return path, ".npz file", read_npz
    raise InvalidData(f"cannot tell the format of {path}; known are files named {NAMES}.")


def _recognise_folder(path: Path) -> tuple[Path, str, Reader]:
    if (path / "meta" / "info.json").is_file():
        return path, "LeRobot dataset", read_lerobot
    if (path / "metadata.json").is_file() or (path / "data" / "metadata.json").is_file():
        return path, "Minari dataset", read_minari
    if (path / "meta" / "episode_ends").is_dir():
        return path, "zarr replay buffer", read_zarr
    raise InvalidData(f"cannot tell the format of {path}; known are files named {NAMES}.")


def _read_hdf5(path: Path, chosen: str | None) -> dict[str, Any]:
    """Three formats share a suffix; what lies on top tells them apart."""
    with opened(path) as file:
        top = list(file)
    if "data" in top:
        return read_robomimic(path, chosen)
    if "observations" in top and "actions" in top:
        return read_d4rl(path)
    if "episode_0" in top:
        raise InvalidData(f"{path} is a part of a Minari dataset; give its folder, {path.parent}.")
    raise InvalidData(
        f"{path} has {', '.join(top[:12]) or 'nothing'} on top; robomimic has data, D4RL has observations and actions."
    )


def _zip_names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as file:
            return file.namelist()
    except Exception:  # damaged: the reader that the suffix names will say so
        return []
