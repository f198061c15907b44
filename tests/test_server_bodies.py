import http.client
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving.bodies import JSON, MAX_ROWS, NPY, most_bytes
from serving_examples import OBS, act, npy, request, trained_policy


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve_in_thread(Server(trained_policy())) as found:
        yield found


# Invalid bodies.

INVALID_JSON: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"observation"',
    b"\xff\xfe\x00",
    b"[" * 4_000,
    b'{"observation": ' + b"[" * 4_000,
    b'{"observation": {"0": 1}}',
    b'{"act": [1, 2, 3]}',
    b'{"observation": null}',
    b'{"observation": 1}',
    b'{"observation": []}',
    b'{"observation": [[]]}',
    b'{"observation": [1, 2]}',
    b'{"observation": [1, 2, 3, 4]}',
    b'{"observation": [[1, 2, 3], [1, 2]]}',
    b'{"observation": [[1, 2, 3], 4]}',
    b'{"observation": [[[1, 2, 3]]]}',
    b'{"observation": ["1", "2", "3"]}',
    b'{"observation": "abc"}',
    b'{"observation": [true, false, true]}',
    b'{"observation": [1, null, 3]}',
    b'{"observation": [NaN, 0, 0]}',
    b'{"observation": [0, Infinity, 0]}',
    b'{"observation": [1e999, 0, 0]}',
    b'{"observation": [1e300, 0, 0]}',
    b'{"observation": [1' + b"0" * 400 + b", 0, 0]}",
    b'{"observation": [1' + b"0" * 9000 + b", 0, 0]}",
    b'{"observation": ["' + b"a" * 1_000_000 + b'"' + b', ""' * 10_000 + b"]}",
]


@pytest.mark.parametrize("body", INVALID_JSON, ids=range(len(INVALID_JSON)))
def test_invalid_json_bodies_give_one_line(port: int, body: bytes) -> None:
    status, _, answer = request(port, "POST", "/act", body, content_type=JSON)
    assert status == 400
    error = json.loads(answer)["error"]
    assert error
    assert "\n" not in error
    assert len(error) < 200


def npy_with_header(shape: str, descr: str = "'<f4'", content: bytes = b"\0" * 12) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


INVALID_NPY: list[bytes] = [
    b"",
    b"\x93NUMPY",
    npy(OBS[0])[:-1],
    npy(OBS[0]) + b"\0",
    npy(OBS[0])[:20],
    npy(OBS[:, :2]),
    npy(OBS[None, :2]),
    npy(OBS[:0]),
    npy(np.array(["a", "b", "c"])),
    npy(np.array([True, False, True])),
    npy(np.array([1j, 0, 0])),
    npy(np.array([np.nan, 0, 0])),
    npy(np.zeros(3, [("a", "f4")])),
    npy_with_header("(3,)", "'|O'"),
    npy_with_header("(1000000000000, 3)"),
    npy_with_header("(-1, -3)"),
    npy_with_header("(0, 1" + "0" * 40 + ")", content=b""),
    npy_with_header("(3"),
    npy_with_header("(" * 300 + "3" + ")" * 300),
    npy_with_header("(__import__('os').abort(),)"),
    npy_with_header("(3,)", "'<f4', 'more': 1"),
    npy_with_header("(3,)", "'<M8[s]'"),
]


@pytest.mark.parametrize("body", INVALID_NPY, ids=range(len(INVALID_NPY)))
def test_invalid_npy_bodies_give_one_line(port: int, body: bytes) -> None:
    status, _, answer = request(port, "POST", "/act", body, content_type=NPY)
    assert status == 400
    assert "\n" not in json.loads(answer)["error"]


def test_nothing_is_unpickled(port: int, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    file = io.BytesIO()
    np.save(file, np.array([Evil()] * 3, dtype=object), allow_pickle=True)
    assert request(port, "POST", "/act", file.getvalue(), content_type=NPY)[0] == 400
    assert not (tmp_path / "executed").exists()


def test_mutated_bodies_never_stop_the_server(port: int) -> None:
    rng = np.random.default_rng(1)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for kind, whole in ((NPY, npy(OBS[:2])), (JSON, json.dumps({"observation": OBS[0].tolist()}).encode())):
        for _ in range(300):
            body = bytearray(whole)
            for place in rng.integers(len(body), size=rng.integers(1, 4)):
                body[place] = rng.integers(256)
            client.request("POST", "/act", bytes(body), {"Content-Type": kind})
            response = client.getresponse()
            assert response.status in (200, 400)
            response.read()
    client.close()


# Limits.


@pytest.mark.parametrize("content_type", [JSON, NPY])
def test_rows_are_limited(port: int, content_type: str) -> None:
    for rows, expected in ((MAX_ROWS, 200), (MAX_ROWS + 1, 413), (60_000, 413)):
        obs = np.zeros((rows, 3), np.float32 if content_type == NPY else np.int8)
        text = json.dumps({"observation": obs.tolist()}, separators=(",", ":")).encode()
        status, _, body = request(
            port, "POST", "/act", npy(obs) if content_type == NPY else text, content_type=content_type
        )
        assert status == expected
        if status == 413:
            assert f"at most {MAX_ROWS} are allowed" in json.loads(body)["error"]


@pytest.mark.parametrize("content_type", [JSON, NPY])
def test_bodies_are_limited(port: int, content_type: str) -> None:
    limit = most_bytes(content_type, 3)
    status, _, body = request(port, "POST", "/act", b" " * (limit + 1), content_type=content_type)
    assert status == 413
    assert json.loads(body)["error"] == f"the body exceeds {limit} bytes; of rows, at most {MAX_ROWS} are allowed."


def test_many_rows_get_the_same_actions_in_any_encoding(port: int) -> None:
    obs = np.tile(OBS, (20, 1))
    action = np.load(io.BytesIO(request(port, "POST", "/act", npy(obs), content_type=NPY)[2]))
    assert np.allclose(action, trained_policy()(obs), atol=1e-6)
    assert np.allclose(act(port, obs.tolist())[1]["action"], action, atol=1e-6)
