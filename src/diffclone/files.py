"""Files that are written whole or not at all, and never over something else."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from diffclone.errors import InvalidFile


def write_atomically(path: Path, content: bytes) -> None:
    """A temporary file beside the target, then a rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None


def write_json(path: Path, value: Any) -> None:
    """Indented, for people; atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as fault:
        raise InvalidFile(f"{path} is not JSON ({fault}).") from None


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], about: Any) -> None:
    """A safetensors file; `about` (JSON) travels in its header."""
    cpu = {name: t.detach().to("cpu", copy=True).contiguous() for name, t in tensors.items()}
    write_atomically(path, save(cpu, metadata={"about": json.dumps(about)}))


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], Any]:
    """What `write_tensors` wrote: the tensors, and what they are about."""
    try:
        content = path.read_bytes()
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except FileNotFoundError:
        raise InvalidFile(f"no such file: {path}.") from None
    except (SafetensorError, ValueError) as fault:
        raise InvalidFile(f"{path} is damaged or no safetensors file ({fault}).") from None
    return tensors, json.loads(header.get("__metadata__", {}).get("about", "null"))
