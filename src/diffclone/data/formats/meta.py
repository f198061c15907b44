"""The metadata of demonstrations as JSON in a file: parsing, and checks of the entries that other code uses."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from diffclone.errors import InvalidData

MAX_CHARACTERS = 16 << 20
"""Longest JSON text that is read. Parsed, it may take fifty times its size."""


def parse_meta(source: str | Path, text: Any) -> dict[str, Any]:
    """Parse a JSON object from a string in a file."""
    text = str(text)
    if len(text) > MAX_CHARACTERS:
        raise InvalidData(f"{source}: meta has {len(text)} characters; at most {MAX_CHARACTERS} are read.")
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"{source}: meta is not JSON ({error}).") from None
    if not isinstance(meta, dict):
        raise InvalidData(f"{source}: meta must be a JSON object; it is {json.dumps(meta)[:40]}.")
    return meta


def read_meta(path: Path) -> dict[str, Any]:
    """Read a file that contains one JSON object."""
    with path.open(encoding="utf-8") as file:
        return parse_meta(path, file.read(MAX_CHARACTERS + 1))


def check_meta(meta: Mapping[str, Any]) -> None:
    """Raise `InvalidData` for entries of the wrong type, which would cause errors later."""
    if meta.get("state_size") and "image" not in meta:
        raise InvalidData("meta has state_size, the numbers beside an image, and no image. Add or remove one of them.")
    for key, (is_valid, expected) in EXPECTED.items():
        if key in meta and not is_valid(meta[key]):
            raise InvalidData(
                f"{key} in meta must be {expected}; it is {json.dumps(meta[key])[:60]}. Correct or remove it."
            )


def observation_parts(meta: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the recorded names and sizes of the parts of an observation, or nothing if they are not valid."""
    recorded = meta.get("observation_keys")
    if not isinstance(recorded, list):
        return []
    parts = [
        (entry[0], entry[1])
        for entry in recorded
        if isinstance(entry, list | tuple)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], int)
        and entry[1] > 0
    ]
    return parts if len(parts) == len(recorded) == len({key for key, _ in parts}) else []


def order_keys(keys: Iterable[str], meta: Mapping[str, Any]) -> list[str]:
    """Return observation keys in their recorded order if exactly these are recorded, else sorted.

    Minari names the entries of a tuple by their numbers, _index_0, _index_1, …; all others are in the order of texts,
    as Gymnasium orders the parts of a dict.
    """
    keys, recorded = set(keys), [key for key, _ in observation_parts(meta)]
    if {*recorded} == keys:
        return recorded
    return sorted(keys, key=lambda key: re.sub(r"(?<=_index_)\d{1,18}", lambda number: number[0].zfill(18), key))


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(side, int) for side in value)


def _is_summary(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(
            isinstance(shapes := value.get(key, {}), dict) and all(map(_is_shape, shapes.values()))
            for key in ("observations", "left_out")
        )
        and isinstance(value.get("subsets", {}), dict)
    )


EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "task": (lambda value: value is None or isinstance(value, str), "a name"),
    "image": (lambda value: _is_shape(value) and len(value) == 3, "[channels, height, width]"),
    "state_size": (lambda value: type(value) is int and value >= 0, "a whole number"),
    "observation_keys": (
        lambda value: value == [] or bool(observation_parts({"observation_keys": value})),
        "a list of [name, size]",
    ),
    "images_without_channels": (
        lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
        "a list of names",
    ),
    "understood": (_is_summary, "the shapes of observations and left_out by name, and numbers of subsets"),
}
"""For each checked entry: the check, and what the entry must be, in words."""
