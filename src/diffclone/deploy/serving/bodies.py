"""Bodies of requests and responses: observations in, actions and scores out, as JSON or npy. Nothing is executed."""

import io
import json
import math
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from diffclone.deploy.runtime import read_array
from diffclone.errors import InvalidData

JSON, NPY = "application/json", "application/x-npy"
MAX_ROWS = 4096
"""Most observations in one request."""
MAX_BODY_BYTES = {JSON: 2**20, NPY: 4 * 2**20}
"""Decoding JSON stops all other threads (about 20 ms per MiB), so its limit is lower."""
NPY_HEAD_BYTES = 2**10
"""Room for the head of an npy file, which is usually 128 bytes."""

Floats: TypeAlias = npt.NDArray[np.float32]
Meta: TypeAlias = Mapping[str, Any]
"""Metadata of the demonstrations, with the parts of an observation: observation_keys, image and state_size."""
Scores: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""One value per row for each score. The score `both` of the mapping `alarm` has the name alarm.both."""


class RequestError(Exception):
    """A request that is answered with an error status and one line."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


def most_bytes(content_type: str, size: int) -> int:
    """Return the largest body for observations of this size. An npy body cannot be longer than its rows in float64."""
    most = MAX_BODY_BYTES[content_type]
    return most if content_type == JSON else min(most, NPY_HEAD_BYTES + 8 * MAX_ROWS * size)


def to_json(value: Any) -> bytes:
    """Encode as one line of ASCII."""
    return json.dumps(value, allow_nan=False).encode()


def decode_observation(content_type: str, body: bytes, size: int, meta: Meta = MappingProxyType({})) -> Floats:
    """Return a finite observation (size) or batch (rows, size). In JSON, it may be an object with its named parts."""
    array = _from_json(body, size, meta) if content_type == JSON else _from_npy(body, size)
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.shape[-1] != size or not array.size:
        raise RequestError(
            HTTPStatus.BAD_REQUEST,
            f"the observation is {array.shape} of {array.dtype}; expected numbers, ({size}) or (rows, {size}).",
        )
    if array.ndim == 2 and len(array) > MAX_ROWS:
        raise too_many_rows(f"{len(array)} rows")
    with np.errstate(over="ignore"):
        obs = array.astype(np.float32)
    if not np.isfinite(obs).all():
        raise RequestError(HTTPStatus.BAD_REQUEST, "the observation contains NaN or infinity.")
    return obs


def too_many_rows(found: str) -> RequestError:
    """Return the error of a request that exceeds `MAX_ROWS`."""
    return RequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has {found}; at most {MAX_ROWS} are allowed. Send several."
    )


def _from_json(body: bytes, size: int, meta: Meta) -> npt.NDArray[Any]:
    """Decode {"observation": […]}: a list of numbers or a list of rows, or an object with the parts of one."""
    # Counting is much faster than decoding: a body with far too many rows costs nothing. An image has a list per pixel.
    if (not meta and body.count(b"[") > MAX_ROWS + 1) or body.count(b",") >= MAX_ROWS * size:
        raise too_many_rows(f"more than {MAX_ROWS} rows")
    with suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        values: Any = json.loads(body)["observation"]
        if isinstance(values, dict):
            return _from_parts(cast(dict[str, Any], values), meta)
        rows: Any = values if values and isinstance(values[0], list) else [values]
        # NumPy would convert strings to numbers, and allocate the longest string's size for each of them.
        if all(isinstance(row, list) and set(map(type, row)) <= {int, float} for row in rows):
            return np.asarray(values, np.float64)
    raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be JSON: {"observation": [numbers]}, or rows of numbers.')


def _from_parts(values: Mapping[str, Any], meta: Meta) -> npt.NDArray[Any]:
    """Join the parts of an observation: lists of numbers, which may be nested, or the bytes of an image in base64."""
    # Imported here because the package `data` imports torch, which the other functions do not need.
    from diffclone.data.layout import find_part, flat_parts, flatten_observation

    if not meta:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the observation of this policy has no named parts; send numbers.")
    arrays, place, pixels = dict[str, npt.NDArray[Any]](), 0, math.prod(meta["image"])
    try:
        parts, keys = flat_parts(values), [key for key, _ in meta["observation_keys"]]
        for key, size in meta["observation_keys"]:
            name = find_part(key, parts, keys)
            arrays[name] = _to_part(name, parts[name], picture=place < pixels)
            place += size
        with np.errstate(over="ignore"):
            return flatten_observation(arrays, meta)
    except InvalidData as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
    except RecursionError:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the parts of the observation are nested too deeply.") from None


def _to_part(name: str, value: Any, *, picture: bool) -> npt.NDArray[Any]:
    """Return one part: pixels as bytes, other numbers as floats."""
    array = None
    with suppress(ValueError):
        if picture and isinstance(value, str):
            return np.frombuffer(b64decode(value, validate=True), np.uint8)
        array = np.array(value, np.float64) if _has_only_numbers(value) else None
    if array is None:
        also = ", or the bytes of an image in base64" if picture else ""
        raise InvalidData(f"{name} must be numbers, in lists of equal length{also}.")
    if picture:
        with np.errstate(invalid="ignore"):
            as_bytes = array.astype(np.uint8)
        return as_bytes if np.array_equal(as_bytes, array) else array
    return array


def _has_only_numbers(value: Any) -> bool:
    """Return whether nested lists contain numbers alone. NumPy would convert strings and null to numbers."""
    kinds: set[type] = set(map(type, value)) if isinstance(value, list) else {type(value)}
    return kinds <= {int, float} or (kinds == {list} and all(map(_has_only_numbers, value)))


@lru_cache(256)
def npy_head(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return an npy file up to its numbers. Writing or parsing it takes longer than the numbers of one observation."""
    np.lib.format.write_array_header_1_0(file := io.BytesIO(), {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _from_npy(body: bytes, size: int) -> npt.NDArray[Any]:
    """Decode an npy file."""
    usual = npy_head("<f4", (size,))
    if body.startswith(usual) and len(body) == len(usual) + 4 * size:
        return np.frombuffer(body, "<f4", offset=len(usual))
    try:
        return read_array(io.BytesIO(body), len(body))
    except (ValueError, OverflowError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"the body must be an npy file ({str(error)[:200]}).") from None


def encode_action(content_type: str, action: Floats, scores: Scores | None) -> bytes:
    """Encode the action of one observation (size) or of a batch (rows, size) with its scores.

    Scores in an npy body are a second npy file after the first: a record per row, with one field per score.
    """
    if content_type == JSON:
        monitor = {} if scores is None else {"monitor": _nest(scores, single=action.ndim == 1)}
        return to_json({"action": action.tolist(), **monitor})
    encoded = npy_head(action.dtype.str, action.shape) + action.tobytes()
    if scores is not None:
        dtype = [(name, values.dtype, values.shape[1:]) for name, values in scores.items()]
        records = np.empty(1 if action.ndim == 1 else len(action), dtype)
        for name, values in scores.items():
            records[name] = values
        np.save(file := io.BytesIO(), records[0] if action.ndim == 1 else records, allow_pickle=False)
        encoded += file.getvalue()
    return encoded


def _nest(scores: Scores, *, single: bool) -> dict[str, Any]:
    """Return the scores as JSON values: alarm.both becomes {"alarm": {"both": …}}, NaN becomes null."""
    nested: dict[str, Any] = {}
    none: Any = None
    for name, values in scores.items():
        *folders, last = name.split(".")
        inside = nested
        for folder in folders:
            inside = inside.setdefault(folder, {})
        finite = values if np.isfinite(values).all() else np.where(np.isfinite(values), values.astype(object), none)
        inside[last] = finite.tolist()[0] if single else finite.tolist()
    return nested


def flatten_scores(scores: Mapping[str, Any], rows: int, prefix: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return a monitor's result as one array per score. Scores that are None are left out."""
    flat: dict[str, npt.NDArray[Any]] = {}
    for name, value in scores.items():
        if isinstance(value, Mapping):
            flat |= flatten_scores(value, rows, f"{prefix}{name}.")
        elif value is not None:
            flat[prefix + name] = array = np.asarray(value)
            if array.dtype.kind not in "biuf" or array.shape[:1] != (rows,):
                raise TypeError(
                    f"the monitor returned {prefix}{name} as {array.shape} of {array.dtype}; "
                    f"expected one number or boolean for each of the {rows} rows."
                )
    return flat
