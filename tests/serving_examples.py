"""A small policy and plain clients for the tests of the server."""

import http.client
import io
import json
import socket
from functools import cache
from typing import Any

import numpy as np

from diffclone import BC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy.serving.bodies import JSON

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 3)).astype(np.float32)
BOUNDS = [[-0.5, -0.5], [0.5, 0.4]]
DEMOS = Demonstrations.from_arrays(OBS, OBS[:, :2], episode_ends=[200], meta={"action_bounds": BOUNDS})
METHOD = BC(training=Training(updates=50, batch=32), network=Network(width=16, depth=2))

Answer = tuple[int, dict[str, str], bytes]


@cache
def trained_policy() -> Policy:
    return fit(METHOD, DEMOS, device="cpu")


def request(port: int, verb: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    client.request(verb, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = client.getresponse()
    answer = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    client.close()
    return answer


def act(port: int, observation: Any, **headers: str) -> tuple[int, Any]:
    status, _, body = request(
        port, "POST", "/act", json.dumps({"observation": observation}).encode(), content_type=JSON, **headers
    )
    return status, json.loads(body)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def act_request(observation: Any = OBS[0], *headers: str) -> bytes:
    """Return the bytes of a request for an action."""
    body = json.dumps({"observation": np.asarray(observation).tolist()}).encode()
    lines = ["POST /act HTTP/1.1", "Host: localhost", f"Content-Type: {JSON}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def read_all(client: socket.socket) -> bytes:
    """Return everything the server sends until it closes the connection."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def send_bytes(port: int, sent: bytes) -> bytes:
    """Send bytes, close the sending side, and return everything the server sends."""
    with connect(port) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return read_all(client)
