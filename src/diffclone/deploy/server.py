"""Serve a policy over HTTP: observations in, actions out, as JSON or npy files. No received content is executed.

    POST /act      {"observation": […]} → {"action": […]}, or application/x-npy in both directions; single or batch
    GET  /health   {"status": "ok"}
    GET  /about    sizes, method, data and versions

One thread serves all connections and computes actions for one request at a time, in the order in which requests are
complete. A request must be complete within `timeout` seconds.
"""

import asyncio
import contextlib
import hmac
import io
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.deploy.runtime import read_array
from diffclone.errors import InvalidSettings
from diffclone.policy import Policy
from diffclone.records import versions
from diffclone.settings import to_dict
from diffclone.shapes import Floats

JSON, NPY = "application/json", "application/x-npy"
MAX_HEAD_BYTES = 16 * 2**10
"""Largest request line and headers together."""
MAX_BODY_BYTES = 4 * 2**20
MAX_CONNECTIONS = 64
DRAIN_SECONDS = 1.0
"""How long to read and discard data after a refused request, so that the client receives the reply."""

DISCONNECTS = (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError)

MonitorFunction: TypeAlias = Callable[[Floats, Floats], Mapping[str, Any]]
"""Returns scores for an observation and the chosen action, each (size) or (batch, size)."""


class RequestError(Exception):
    """A request that is answered with an error status."""

    def __init__(self, status: HTTPStatus, message: str):
        super().__init__(message)
        self.status = status


@final
@dataclass(frozen=True)
class Request:
    """A complete request; header names are in lower case."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True)
class Reply:
    """A response to a request."""

    body: bytes
    content_type: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: str = ""

    def encode(self, *, last: bool) -> bytes:
        """Return head and body as one byte string, so that they are sent in one packet."""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: {'close' if last else 'keep-alive'}\r\n{self.headers}\r\n"
        )
        return head.encode() + self.body


@final
class Server:
    """Serves the actions of one member of a policy, with the scores of its monitor or of another function."""

    def __init__(
        self, policy: Policy, monitor: MonitorFunction | None = None, *, token: str | None = None, timeout: float = 10.0
    ):
        if len(policy) != 1:
            raise InvalidSettings(f"this policy has {len(policy)} members; serve one of them: Server(policy[0]).")
        if token is not None and not token.strip():
            raise InvalidSettings("the token is empty; use one that is hard to guess, or none on 127.0.0.1.")
        if monitor is None and policy.calibrated_monitor is not None:
            monitor = lambda obs, action: policy.monitor(obs, action).to_dict()  # noqa: E731
        self.policy, self.monitor, self.token, self.timeout = policy, monitor, token, timeout
        self._connections = 0

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Start to listen. An address that other machines can reach requires a token."""
        if self.token is None and not is_loopback(host):
            raise InvalidSettings(f"other machines can reach --host '{host}'; add a --token, or use 127.0.0.1.")
        try:
            return await asyncio.start_server(self.handle_connection, host, port, limit=MAX_HEAD_BYTES)
        except (OSError, OverflowError) as error:
            raise InvalidSettings(f"cannot listen on {host} port {port} ({error}). Choose another --port.") from None

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it disconnects, times out or sends an invalid request."""
        self._connections += 1
        full = RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} clients are connected; try later.")
        try:
            if self._connections > MAX_CONNECTIONS:
                writer.write(error_reply(full).encode(last=True))
                return
            with contextlib.suppress(*DISCONNECTS):
                while await self.handle_request(reader, writer):
                    pass
        finally:
            self._connections -= 1
            writer.close()

    async def handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read and answer one request. Return whether the connection stays open."""
        async with asyncio.timeout(self.timeout):
            first = await reader.readexactly(1)  # a client that sends nothing gets no reply
        try:
            async with asyncio.timeout(self.timeout):
                request = await self.read_request(first, reader, writer)
        except (RequestError, TimeoutError) as error:
            late = RequestError(HTTPStatus.REQUEST_TIMEOUT, f"the request was not complete after {self.timeout:g} s.")
            # This reply is the last one: the start of the next request is unknown.
            writer.write(error_reply(error if isinstance(error, RequestError) else late).encode(last=True))
            async with asyncio.timeout(DRAIN_SECONDS):
                await writer.drain()
                while await reader.read(MAX_HEAD_BYTES):
                    pass
            return False
        try:
            reply = self.answer(request)
        except RequestError as error:
            reply = error_reply(error)
        except Exception:
            logging.getLogger(__name__).exception("error in %s %s", request.verb, request.path)
            reply = error_reply(
                RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy failed; see the server log.")
            )
        last = request.headers.get("connection", "").lower() == "close"
        writer.write(reply.encode(last=last))
        async with asyncio.timeout(self.timeout):
            await writer.drain()
        return not last

    async def read_request(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        """Read a complete request of limited size."""
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            raise RequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the headers exceed {MAX_HEAD_BYTES} bytes."
            ) from None
        lines = head.decode("latin-1").split("\r\n")
        words, fields = lines[0].split(" "), [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or len(headers) != len(fields):
            raise RequestError(HTTPStatus.BAD_REQUEST, "this is not an HTTP/1.1 request, or it repeats a header.")
        if words[2] == "HTTP/1.0":
            headers["connection"] = "close"
        if "transfer-encoding" in headers:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "chunked bodies are not supported; send a Content-Length.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            raise RequestError(HTTPStatus.BAD_REQUEST, "Content-Length must be a number of bytes.")
        if len(length) > 15 or int(length) > MAX_BODY_BYTES:
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {MAX_BODY_BYTES} bytes.")
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(words[0], words[1].partition("?")[0], headers, await reader.readexactly(int(length)))

    def answer(self, request: Request) -> Reply:
        """Route a complete request."""
        verbs = {"/act": "POST", "/health": "GET", "/about": "GET"}
        if request.path not in verbs:
            raise RequestError(HTTPStatus.NOT_FOUND, f"unknown path; the paths are {', '.join(verbs)}.")
        if request.verb != verbs[request.path]:
            raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} requires {verbs[request.path]}.")
        if request.path == "/health":
            return Reply(to_json({"status": "ok"}))
        sent = request.headers.get("authorization", "").encode("latin-1")
        if self.token is not None and not hmac.compare_digest(sent, f"Bearer {self.token}".encode()):
            raise RequestError(HTTPStatus.UNAUTHORIZED, "the header `Authorization: Bearer TOKEN` is missing or wrong.")
        return Reply(to_json(self.about())) if request.path == "/about" else self.act(request)

    def act(self, request: Request) -> Reply:
        """Compute actions and encode them as the observations were encoded."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in (JSON, NPY):
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {JSON} or {NPY}.")
        obs = self.check_observation((from_json if content_type == JSON else from_npy)(request.body))
        action = self.policy(obs)
        if not np.isfinite(action).all():
            raise RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the action is not finite: the policy has diverged.")
        scores = None if self.monitor is None else dict(self.monitor(obs, action))
        if content_type == JSON:
            return Reply(to_json({"action": action.tolist()} | ({} if scores is None else {"monitor": scores})))
        np.save(file := io.BytesIO(), action, allow_pickle=False)
        headers = "" if scores is None else f"Monitor: {to_json(scores).decode()}\r\n"
        return Reply(file.getvalue(), NPY, headers=headers)

    def check_observation(self, array: npt.NDArray[Any]) -> Floats:
        """Return a finite float32 observation or batch of the policy's size."""
        size = self.policy.dims.obs
        if array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.shape[-1] != size or not array.size:
            raise RequestError(
                HTTPStatus.BAD_REQUEST,
                f"the observation is {array.shape} of {array.dtype}; expected numbers, ({size}) or (batch, {size}).",
            )
        with np.errstate(over="ignore"):
            obs = array.astype(np.float32)
        if not np.isfinite(obs).all():
            raise RequestError(HTTPStatus.BAD_REQUEST, "the observation contains NaN or infinity.")
        return obs

    def about(self) -> dict[str, Any]:
        """Return a description of the policy."""
        policy, bounds = self.policy, self.policy.bounds
        return {
            "method": to_dict(policy.method)["type"],
            "member": dict(policy.members[0]),
            "observation_size": policy.dims.obs,
            "action_size": policy.dims.act,
            "bounds": None if bounds is None else [bound.tolist() for bound in bounds],
            "fingerprint": policy.data.get("fingerprint"),
            "monitor": self.monitor is not None,
            "versions": versions(),
        }


def error_reply(error: RequestError) -> Reply:
    """Return the response to a request that failed."""
    return Reply(to_json({"error": str(error)}), status=error.status)


def to_json(value: Any) -> bytes:
    """Encode as one line of ASCII."""
    return json.dumps(value, allow_nan=False).encode()


def from_json(body: bytes) -> npt.NDArray[Any]:
    """Decode {"observation": […]}: a list of numbers or a list of rows."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        values: Any = json.loads(body)["observation"]
        rows: Any = values if values and isinstance(values[0], list) else [values]
        # NumPy would convert strings to numbers, and allocate the longest string's size for each of them.
        if all(type(number) in (int, float) for row in rows for number in row):
            return np.asarray(values, np.float64)
    raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be JSON: {"observation": [numbers]}, or rows of numbers.')


def from_npy(body: bytes) -> npt.NDArray[Any]:
    """Decode an npy file."""
    try:
        return read_array(io.BytesIO(body), len(body))
    except (ValueError, OverflowError) as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"the body must be an npy file ({str(error)[:200]}).") from None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach every address of `host`."""
    try:
        addresses = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError):
        raise InvalidSettings(f"--host {host} is not an address of this machine; try 127.0.0.1.") from None
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)


async def serve(server: Server, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until cancelled. `ready` is called with the port once the server accepts clients."""
    async with await server.start(host, port) as listening:
        ready(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()


@contextlib.contextmanager
def serve_in_thread(server: Server, host: str = "127.0.0.1", port: int = 0) -> Generator[int, None, None]:
    """Serve in another thread while the block runs. Yield the port; 0 selects a free one."""
    with asyncio.Runner() as runner:  # it cancels the connections that are still open
        listening, loop = runner.run(server.start(host, port)), runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            listening.close()
