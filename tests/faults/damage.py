"""Random damage to files: in bytes, in values of JSON, in entries of zip archives."""

import json
import random
import zipfile
from pathlib import Path
from typing import Any

HUGE = [0, -1, 1, 2**31 - 1, 2**32, 2**40, 2**62, -(2**63), 10**30]
ODD: list[Any] = [*HUGE, None, True, "", "../../../etc/passwd", "|O", "<f8", [], {}, [[]], "x" * 300, float("nan"), 1.5]


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return the content with a random kind of damage."""
    data = bytearray(content)
    start = rng.randrange(len(data)) if data else 0
    way = rng.randrange(6)
    if way == 0:
        return bytes(data[:start])
    if way == 1:
        for _ in range(rng.choice([1, 2, 8, 64])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif way == 2:
        data[start : start + rng.choice([1, 4, 32, 256])] = bytes(rng.choice([1, 8, 40]))
    elif way == 3:
        size = rng.choice([2, 4, 8])
        data[start : start + size] = (rng.choice(HUGE) % 2 ** (8 * size)).to_bytes(size, "little")
    elif way == 4:
        data[start:start] = data[: rng.randrange(1, 200)]
    else:
        data[start : start + 20] = rng.randbytes(20)
    return bytes(data)


def damage_json(content: bytes, rng: random.Random) -> bytes:
    """Replace or remove a random value of a JSON file."""
    value = json.loads(content)
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            visit(node[key])

    visit(value)
    if places:
        node, key = rng.choice(places)
        if isinstance(node, dict) and rng.random() < 0.2:
            del node[key]
        else:
            node[key] = rng.choice(ODD)
    return json.dumps(value).encode()


def damage_path(path: Path, rng: random.Random) -> None:
    """Damage a file, or damage or remove a file of a folder."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    victim = rng.choice(files)
    if path.is_dir() and rng.random() < 0.05:
        victim.unlink()
    elif rng.random() < 0.5 and victim.name in (".zarray", "zarr.json", "info.json", "metadata.json"):
        victim.write_bytes(damage_json(victim.read_bytes(), rng))
    elif rng.random() < 0.5 and path.name.endswith(".zarr.zip"):
        damage_zip_entry(path, rng)
    else:
        victim.write_bytes(damage(victim.read_bytes(), rng))


def damage_zip_entry(path: Path, rng: random.Random) -> None:
    """Damage an entry of a zip archive whose checksums stay valid."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    name = rng.choice(sorted(entries))
    entries[name] = (damage_json if name.endswith(".json") else damage)(entries[name], rng)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for entry, content in entries.items():
            file.writestr(entry, content)
