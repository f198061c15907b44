"""Files that are written completely or not at all, and that never replace another file by accident.

This module imports torch only to read or write tensors, so that Records can be read without it.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import warnings
import zlib
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from diffclone.errors import DiffcloneWarning, InvalidFile

if TYPE_CHECKING:
    from torch import Tensor


def home_folder(variable: str) -> Path:
    """Return the user's home folder; `variable` is the environment variable that can be set if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidFile(f"this user has no home folder. Set {variable} to a folder.") from None


def refuse_existing(path: Path, way_out: str = "Choose another name or remove it.") -> None:
    """Raise `InvalidFile` if `path` exists: nothing is overwritten."""
    if path.exists() or path.is_symlink():
        raise InvalidFile(f"{path} exists already and is not overwritten. {way_out}")


@contextmanager
def replace_path(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside `path`, which is renamed to `path` if the block succeeds and removed if it fails.

    The block may write a file or a folder. A reader sees the old content of `path` or the new one, nothing between. An
    error of the operating system names `path`, not the temporary one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and (name := str(error.filename or temporary)).startswith(str(temporary)):
            error.filename = f"{path}{name.removeprefix(str(temporary))}"
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def is_temporary(path: Path) -> bool:
    """Return whether `replace_path` makes such a name: `.NAME.PID`."""
    return re.fullmatch(r"\..+\.\d+", path.name) is not None


def remove_temporary_files(folder: Path) -> None:
    """Remove what processes that were killed left below a folder. No other process may write there meanwhile."""
    for path in sorted(folder.rglob(".*")):
        if is_temporary(path) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif is_temporary(path):
            path.unlink(missing_ok=True)


@contextmanager
def create_path(path: Path, *, allow_empty_folder: bool = False) -> Generator[Path, None, None]:
    """Do the same as `replace_path`, but refuse a path that exists, also if it appears while the block runs."""

    def check() -> None:
        if not (allow_empty_folder and path.is_dir() and not any(path.iterdir())):
            refuse_existing(path)

    check()
    with replace_path(path) as temporary:
        yield temporary
        check()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, replacing an older one."""
    with replace_path(path) as temporary, temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a file of JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} is not JSON ({error}).") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file with one JSON object per line, compressed if its name ends in .gz.

    A last line that has no newline and cannot be parsed was cut off while it was written, by a power cut or a full
    disk. It is dropped with a warning.
    """
    try:
        content = path.read_bytes()
        lines = (gzip.decompress(content) if path.suffix == ".gz" else content).split(b"\n")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidFile(f"{path} is not a gzip file ({error}).") from None
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None
    values: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            # A disk may keep the length of a lost write, and fill it with zeros.
            if number == len(lines) and line.strip(b"\0")[:1] in (b"{", b""):
                warnings.warn(f"{path}: the last line is incomplete and is ignored.", DiffcloneWarning, stacklevel=2)
                return values
            raise InvalidFile(f"{path}: line {number} is not JSON ({error}). Correct or remove that line.") from None
        if not isinstance(value, dict):
            raise InvalidFile(f"{path}: line {number} is not a JSON object. Correct or remove that line.")
        values.append(value)
    return values


def write_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Write a file with one JSON object per line, compressed if its name ends in .gz."""
    content = "".join(json.dumps(value) + "\n" for value in values).encode()
    write_atomically(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Append one JSON object as a line. An incomplete last line is removed first, with a warning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _ends_with_newline(path):
        write_lines(path, read_lines(path))
    with path.open("ab") as file:
        file.write((json.dumps(value) + "\n").encode())


def _ends_with_newline(path: Path) -> bool:
    """Return whether another line can follow. It can in a file that is empty or does not exist."""
    if not path.exists():
        return True
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read(1) in (b"", b"\n")


NO_CHECKSUM = "0" * 64
"""What the header contains in place of the checksum while it is computed."""


def write_tensors(path: Path, tensors: "dict[str, Tensor]", about: Any) -> None:
    """Write a safetensors file with `about`, a JSON value, and a checksum of the whole file in its header."""
    from safetensors.torch import save

    cpu = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    # One key: safetensors writes several in a random order, and equal tensors must give equal files.
    content = save(cpu, metadata={"about": json.dumps({"sha256": NO_CHECKSUM, "value": about})})
    checksum = hashlib.sha256(content).hexdigest()
    write_atomically(path, content.replace(NO_CHECKSUM.encode(), checksum.encode(), 1))


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], Any]":
    """Read the tensors of a safetensors file, and the value `about` of its header. A damaged file is refused."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = path.read_bytes()
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about = json.loads((header.get("__metadata__") or {}).get("about", "null"))
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise InvalidFile(f"{path} is damaged or no safetensors file ({error}).") from None
    if not isinstance(about, dict) or set(cast(dict[str, Any], about)) != {"sha256", "value"}:
        return tensors, about  # files of older versions and of other programs have no checksum
    checksum = str(about["sha256"])
    if hashlib.sha256(content.replace(checksum.encode(), NO_CHECKSUM.encode(), 1)).hexdigest() != checksum:
        raise InvalidFile(f"{path} is damaged: its content does not match its checksum.")
    return tensors, about["value"]
