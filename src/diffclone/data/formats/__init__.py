"""Formats of demonstrations: a registry of those that are known, and functions that read and write any of them."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from diffclone.data.demonstrations import Demonstrations
from diffclone.data.formats.contents import format_shape, import_optional
from diffclone.data.formats.d4rl import D4RL
from diffclone.data.formats.episodes import NPZ_FOLDER
from diffclone.data.formats.format import Format
from diffclone.data.formats.hugging_face import HUGGING_FACE
from diffclone.data.formats.lerobot import LEROBOT
from diffclone.data.formats.memory import MemoryBudget, format_bytes
from diffclone.data.formats.meta import check_meta
from diffclone.data.formats.minari import MINARI
from diffclone.data.formats.names import list_names, sort_naturally
from diffclone.data.formats.npz import NPZ
from diffclone.data.formats.options import NO_OPTIONS, ReadOptions, to_flag
from diffclone.data.formats.pickles import refuse_pickle
from diffclone.data.formats.pt import PT
from diffclone.data.formats.robomimic import ROBOMIMIC
from diffclone.data.formats.tables import CSV, PARQUET
from diffclone.data.formats.zarr import ZARR
from diffclone.data.streamed import AnyDemonstrations, Streamed, available
from diffclone.errors import DiffcloneError, DiffcloneWarning, InvalidData, InvalidFile, MissingPackage
from diffclone.files import refuse_existing
from diffclone.registry import Registry

__all__ = [
    "FORMATS",
    "Format",
    "ReadOptions",
    "check_target",
    "describe",
    "has_format_prefix",
    "open_blocks",
    "read",
    "write",
]

D = TypeVar("D")

FORMATS: Registry[Format] = Registry(
    "format",
    {
        "npz": NPZ,
        "pt": PT,
        "robomimic": ROBOMIMIC,
        "d4rl": D4RL,
        "minari": MINARI,
        "lerobot": LEROBOT,
        "zarr": ZARR,
        "csv": CSV,
        "parquet": PARQUET,
        "hf": HUGGING_FACE,
        "npz-folder": NPZ_FOLDER,
    },
    group="diffclone.formats",
    instance_of=Format,
)
"""Formats by name. Where several fit a file equally well, the first is used."""
LONGEST_LIST = 12
"""Names in the longest list of a message."""
LONGEST_LINE = 1000
"""Characters of the longest message about a file."""


def read(source: str | Path, options: ReadOptions = NO_OPTIONS) -> Demonstrations:
    """Read demonstrations from a file, a folder, or `FORMAT:NAME`. Errors are `InvalidData` with one line of text."""

    def read_all(format: Format, path: Path, options: ReadOptions) -> Demonstrations:
        demos = format.read(path, options) if format.options else format.read(path)
        check_meta(demos.meta)
        return options.apply_bounds(demos)

    return _open(source, options, read_all)


def open_blocks(source: str | Path, options: ReadOptions, memory: int) -> AnyDemonstrations:
    """Open demonstrations for a training that may use `memory` bytes.

    They are read now if they fit, with the copy that training makes; otherwise in blocks, while training.
    """

    def open_some(format: Format, path: Path, options: ReadOptions) -> AnyDemonstrations:
        if format.open is None:
            stored = MemoryBudget.from_path(path).stored
            if 2 * stored > available(memory):
                raise InvalidData(
                    f"{path} has {format_bytes(stored)}, and --memory is {format_bytes(memory)}; a {format.label} is "
                    "read at once and needs at least twice its size. Formats that are read in blocks: "
                    f"{', '.join(name for name, known in FORMATS.items() if known.open is not None)}."
                )
            return read(source, options)
        with format.open(path, options) as contents:
            demos = contents.to_streamed(path, options)
        check_meta(demos.meta)
        if demos.bytes_in_memory <= available(memory):
            return read(source, options)
        return options.apply_bounds(replace(demos, memory=memory))

    return _open(source, options, open_some)


def _open(source: Any, options: ReadOptions, use: Callable[[Format, Path, ReadOptions], D]) -> D:
    """Find the format of a source and return what `use` makes of it. Errors are `InvalidData` with one line."""
    if not isinstance(source, str | Path):
        raise InvalidData(
            f"the name of a file or folder is needed; it is an object of type {type(source).__name__}. Arrays are "
            "given to Demonstrations.from_arrays."
        )
    format, path, subset = _find_source(str(source))
    options = options.with_subset(str(source), subset)
    try:
        _check_options(format, path, options)
        return use(format, path, options)
    except MissingPackage:
        raise
    except DiffcloneError as error:
        message = str(error)
        raise InvalidData(_to_line(message if str(path) in message else f"{source}: {message}")) from None
    except Exception as error:  # a damaged file can make a package raise anything
        reason = _to_line(str(error) or type(error).__name__)[:160]
        raise InvalidData(f"{source} is not a readable {format.label} ({reason}).") from error


def write(demos: Demonstrations, target: str | Path) -> None:
    """Write a new file or folder in the format that a prefix (`FORMAT:NAME`) or the suffix selects."""
    format, name = _find_target(str(target))
    assert format.write is not None
    if demos.layout is not None and format is not NPZ:
        raise InvalidData(f"observations with images and numbers are saved as .npz only; {target} is not.")
    format.write(demos, name)


def check_target(target: str | Path) -> None:
    """Raise the error that `write` would raise because of its target, before the work that makes demonstrations."""
    format, name = _find_target(str(target))
    for package in format.packages:
        import_optional(package)
    path = format.place(name)
    folder = next((parent for parent in path.absolute().parents if os.access(parent, os.F_OK)), Path("/"))
    if not folder.is_dir():
        raise InvalidFile(f"{path} cannot be written: {folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidFile(f"{path} cannot be written: the folder {folder} is read-only for this user.")
    refuse_existing(path)


def _find_target(target: str) -> tuple[Format, str]:
    """Return the format to write, and the name without a prefix."""
    format, name = _split_prefix(target)
    writable = {key: known for key, known in FORMATS.items() if known.write is not None}
    if format is None:
        format = next((known for known in writable.values() if name.endswith(known.suffixes)), None)
    if format is None or format.write is None:
        raise InvalidData(f"cannot save demonstrations as {target}. Formats to save: {_list_formats(writable)}.")
    return format, name


def has_format_prefix(source: str) -> bool:
    """Return whether `source` begins with the name of a format and a colon, so that it is not a plain path."""
    return _split_prefix(source)[0] is not None


def describe(demos: AnyDemonstrations) -> str:
    """Return one line that says what was read from a file."""
    known = demos.meta.get("understood", {})
    obs = known.get("observations") or {"obs": [demos.obs_size]}
    if isinstance(demos, Streamed):
        size = format_bytes(demos.num_steps * demos.row_bytes)
        return _to_line(
            f"{known.get('format', 'demonstrations')}: {demos.num_episodes} episodes, {demos.num_steps} steps; "
            f"observations {_list_shapes(obs)}; actions ({demos.act.shape[1]}); {size}, read in blocks within "
            f"{format_bytes(demos.memory)} of memory"
        )
    layout = demos.layout
    values = demos.obs if layout is None else layout.numbers_of(demos.obs)
    low_high = (
        f"in {values.min():g} … {values.max():g}"
        if layout is None
        else (
            f"(pixels {demos.obs[:, : layout.pixels].min():g} … {demos.obs[:, : layout.pixels].max():g}, numbers "
            f"{values.min():g} … {values.max():g})"
        )
    )
    parts = [
        f"{demos.num_episodes} episodes, {demos.num_steps} steps",
        f"observations {_list_shapes(obs)} {low_high}",
        f"actions ({demos.act.shape[1]}) in {demos.act.min():g} … {demos.act.max():g}",
    ]
    if left_out := known.get("left_out"):
        parts.append(f"left out {_list_shapes(left_out)}")
    if subsets := known.get("subsets"):
        parts.append(f"subsets for --filter-key: {', '.join(f'{name} ({n})' for name, n in subsets.items())}")
    return _to_line(f"{known.get('format', 'demonstrations')}: {'; '.join(parts)}")


def _find_source(source: str) -> tuple[Format, Path, str]:
    """Return format, path and subset. A prefix selects the format, or else content and suffix do."""
    format, name = _split_prefix(source)
    if format is not None:
        return format, format.find(name), ""
    plain, _, subset = (source, "", "") if Path(source).exists() else source.partition("#")
    if not plain:  # Path("") is the current folder
        raise InvalidData("the name of the data is empty; give a file, a folder or FORMAT:NAME.")
    path = Path(plain)
    if not path.exists():
        raise InvalidData(f"no such file: {path}.")
    if not any(path.iterdir()) if path.is_dir() else path.stat().st_size == 0:  # 0 for a named pipe, which would block
        raise InvalidData(f"{path} is {'an empty folder' if path.is_dir() else 'empty (0 bytes)'}.")
    refuse_pickle(path)
    # Content decides; the suffix helps where two formats share it, or where a damaged file is not recognised.
    score = {format: 2 * _recognises(format, path) + path.name.endswith(format.suffixes) for format in FORMATS.values()}
    format = max(score, key=lambda known: score[known])
    others = _list_others(path, format)
    if not score[format]:
        if others:
            raise InvalidData(
                f"{path} is a folder with {list_names(others, 3)}, and a folder of such files is not read. Give one of "
                "them, or read their arrays in Python and give them to Demonstrations.from_episodes."
            )
        raise InvalidData(f"cannot recognise the format of {path}. Known formats: {_list_formats(FORMATS)}.")
    if format.files and others:
        warnings.warn(
            f"{path} is read as {format.label}, without the other data in it: {list_names(others, 3)}. Give one of "
            "these files, or another format (FORMAT:FOLDER), if you meant that.",
            DiffcloneWarning,
            stacklevel=2,
        )
    return format, path, subset


def _list_others(path: Path, format: Format) -> list[str]:
    """Return the names of the data files in a folder that are not files of this format."""
    endings = {ending for known in FORMATS.values() for ending in known.suffixes} - {*format.files}
    names = (entry.name for entry in path.iterdir()) if path.is_dir() else ()
    return sort_naturally(name for name in names if name.endswith(tuple(endings)) and not name.startswith("."))


def _split_prefix(source: str) -> tuple[Format | None, str]:
    name, colon, rest = source.partition(":")
    return (FORMATS[name], rest) if colon and name in FORMATS else (None, source)


def _recognises(format: Format, path: Path) -> bool:
    try:
        return format.recognise(path)
    except MissingPackage:
        raise
    except Exception:  # a damaged file: the format that its suffix selects reports it
        return False


def _check_options(format: Format, path: Path, options: ReadOptions) -> None:
    """Refuse options that the format does not use."""
    usable = (*format.options, "action_bounds")
    unused = [name for name in options.given if name not in usable]
    if options.filter_key is not None and "filter_key" in unused:
        raise InvalidData(f"{path} has no named subsets, so that #{options.filter_key} cannot be read. Remove it.")
    if unused:
        raise InvalidData(
            f"{path} is read as {format.label}, which does not use {', '.join(map(to_flag, unused))}; it uses "
            f"{', '.join(map(to_flag, usable))}. Remove the others."
        )


def _list_formats(formats: Mapping[str, Format]) -> str:
    usage = {name: [f"*{suffix}" for suffix in f.suffixes] or [f"{name}:NAME"] for name, f in formats.items()}
    return ", ".join(f"{name} ({', '.join(ways)})" for name, ways in usage.items())


def _list_shapes(shapes: Mapping[str, Sequence[int]]) -> str:
    parts = [f"{key} {format_shape(shape or (1,))}" for key, shape in shapes.items()]
    return ", ".join(parts if len(parts) <= LONGEST_LIST else [*parts[:2], "…", f"{parts[-1]}: {len(parts)} in all"])


def _to_line(text: str) -> str:
    """Shorten a text and replace line breaks and terminal control characters, which names in a file may contain."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
