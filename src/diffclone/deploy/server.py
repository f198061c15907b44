"""A policy behind HTTP: observations in, actions out, as JSON or as npy files. Nothing that comes in is executed.

    POST /act      {"observation": […]} → {"action": […]}, or application/x-npy both ways; one observation or a batch
    GET  /health   {"status": "ok"}
    GET  /about    sizes, method, data and versions

One thread serves all connections and acts for one request at a time, in the order in which requests are complete. A
request has to be complete within `patience` seconds, however slowly its bytes come.
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
from typing import Any, NoReturn, TypeAlias, final

import numpy as np
import numpy.typing as npt

from diffclone.deploy.runtime import read_array
from diffclone.errors import InvalidSettings
from diffclone.methods import METHODS
from diffclone.policy import Policy
from diffclone.records import versions
from diffclone.shapes import Floats

JSON, NPY = "application/json", "application/x-npy"
HEAD_BYTES = 16 * 2**10
"""Most that a request's first lines may have."""
BODY_BYTES = 4 * 2**20
"""Most that a request's body may have."""
CONNECTIONS = 64
"""Most clients at once."""
LINGER = 1.0
"""Seconds in which what a refused client still sends is thrown away, so that it reads the refusal."""

GONE = (ConnectionError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError)
"""How a client ends; the last is when the server does."""

Watch: TypeAlias = Callable[[Floats, Floats], Mapping[str, Any]]
"""What a monitor says of an observation and the action that was chosen, each (size) or (batch, size)."""


class Refused(Exception):
    """A request that is answered with a fault."""

    def __init__(self, status: HTTPStatus, line: str):
        super().__init__(line)
        self.status = status


@final
@dataclass(frozen=True)
class Request:
    """As it came, with the names of headers in lower case."""

    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True)
class Reply:
    """What goes back."""

    body: bytes
    kind: str = JSON
    status: HTTPStatus = HTTPStatus.OK
    headers: str = ""

    def encode(self, *, last: bool) -> bytes:
        """In one piece, so that it leaves in one packet."""
        ending = "close" if last else "keep-alive"
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.kind}\r\n"
            f"Content-Length: {len(self.body)}\r\nConnection: {ending}\r\n{self.headers}\r\n"
        )
        return head.encode() + self.body


@final
class Server:
    """Answers requests with the actions of one member of a policy."""

    def __init__(self, policy: Policy, watch: Watch | None = None, *, token: str | None = None, patience: float = 10.0):
        if len(policy) != 1:
            raise InvalidSettings(f"this policy has {len(policy)} members; choose one: Server(policy[0]).")
        if token is not None and not token.strip():
            raise InvalidSettings("the token is empty; give one that is hard to guess, or none on 127.0.0.1.")
        self.policy, self.watch, self.token, self.patience = policy, watch, token, patience
        self._open = 0

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen. A token is needed where other machines can reach the address."""
        if self.token is None and not is_loopback(host):
            raise InvalidSettings(f"other machines can reach --host '{host}'; give a --token too, or use 127.0.0.1.")
        try:
            return await asyncio.start_server(self.connected, host, port, limit=HEAD_BYTES)
        except (OSError, OverflowError) as fault:
            raise InvalidSettings(f"cannot listen on {host} port {port} ({fault}). Choose another --port.") from None

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it leaves, is too slow, or sends what cannot be read."""
        self._open += 1
        full = Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"there are {CONNECTIONS} clients already; try later.")
        try:
            if self._open > CONNECTIONS:
                writer.write(refusal(full).encode(last=True))
                return
            with contextlib.suppress(*GONE):
                while await self.serve_one(reader, writer):
                    pass
        finally:
            self._open -= 1
            writer.close()

    async def serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; whether another may follow."""
        async with asyncio.timeout(self.patience):
            first = await reader.readexactly(1)  # a client that says nothing is left without a word
        try:
            async with asyncio.timeout(self.patience):
                request = await self.read(first, reader, writer)
        except (Refused, TimeoutError) as fault:
            late = Refused(HTTPStatus.REQUEST_TIMEOUT, f"the request was not complete after {self.patience:g} s.")
            # The last reply: where the next request would begin is not known.
            writer.write(refusal(fault if isinstance(fault, Refused) else late).encode(last=True))
            async with asyncio.timeout(LINGER):
                await writer.drain()
                while await reader.read(HEAD_BYTES):
                    pass
            return False
        try:
            reply = self.answer(request)
        except Refused as fault:
            reply = refusal(fault)
        except Exception:
            logging.getLogger(__name__).exception("no answer to %s %s", request.verb, request.path)
            reply = refusal(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy failed; the server's log says how."))
        last = request.headers.get("connection", "").lower() == "close"
        writer.write(reply.encode(last=last))
        async with asyncio.timeout(self.patience):
            await writer.drain()
        return not last

    async def read(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
        """A whole request, of bounded size."""
        try:
            head = first + await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request's head may have {HEAD_BYTES} bytes.")
        lines = head.decode("latin-1").split("\r\n")
        words, fields = lines[0].split(" "), [line.partition(":") for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, _, value in fields}
        if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or len(headers) != len(fields):
            refuse(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request, or a header comes twice.")
        if words[2] == "HTTP/1.0":
            headers["connection"] = "close"
        if "transfer-encoding" in headers:
            refuse(HTTPStatus.LENGTH_REQUIRED, "send a body with its Content-Length, and not in chunks.")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            refuse(HTTPStatus.BAD_REQUEST, "Content-Length must be a number of bytes.")
        if len(length) > 15 or int(length) > BODY_BYTES:
            refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {BODY_BYTES} bytes are read. Send fewer rows.")
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Request(words[0], words[1].partition("?")[0], headers, await reader.readexactly(int(length)))

    def answer(self, request: Request) -> Reply:
        """To a request that is complete."""
        verbs = {"/act": "POST", "/health": "GET", "/about": "GET"}
        if request.path not in verbs:
            refuse(HTTPStatus.NOT_FOUND, f"there is no such path; there are {', '.join(verbs)}.")
        if request.verb != verbs[request.path]:
            refuse(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} is for {verbs[request.path]}.")
        if request.path == "/health":
            return Reply(to_json({"status": "ok"}))
        given = request.headers.get("authorization", "").encode("latin-1")
        if self.token is not None and not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            refuse(HTTPStatus.UNAUTHORIZED, "the header `Authorization: Bearer TOKEN` is missing or has another token.")
        return Reply(to_json(self.about())) if request.path == "/about" else self.act(request)

    def act(self, request: Request) -> Reply:
        """An action, in the encoding in which the observation came."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, NPY):
            refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the header Content-Type must be {JSON} or {NPY}.")
        obs = self.fitting(from_json(request.body) if kind == JSON else from_npy(request.body))
        action = self.policy(obs)
        if not np.isfinite(action).all():
            refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy's answer is not finite: this member is of no use.")
        said = None if self.watch is None else dict(self.watch(obs, action))
        if kind == JSON:
            return Reply(to_json({"action": action.tolist()} | ({} if said is None else {"monitor": said})))
        np.save(file := io.BytesIO(), action, allow_pickle=False)
        return Reply(file.getvalue(), NPY, headers="" if said is None else f"Monitor: {to_json(said).decode()}\r\n")

    def fitting(self, given: npt.NDArray[Any]) -> Floats:
        """An observation or a batch, of the policy's size and finite."""
        size = self.policy.dims.obs
        if given.dtype.kind not in "iuf" or given.ndim not in (1, 2) or given.shape[-1] != size or not given.size:
            refuse(
                HTTPStatus.BAD_REQUEST,
                f"the observation is {given.shape} of {given.dtype}; it must be numbers, ({size}) or (batch, {size}).",
            )
        with np.errstate(over="ignore"):
            obs = given.astype(np.float32)
        if not np.isfinite(obs).all():
            refuse(HTTPStatus.BAD_REQUEST, "the observation holds NaN or infinity; it must be finite.")
        return obs

    def about(self) -> dict[str, Any]:
        """What is served."""
        policy, names = self.policy, {entry: name for name, entry in METHODS.items()}
        return {
            "method": names.get(type(policy.method), type(policy.method).__name__),
            "member": dict(policy.members[0]),
            "observation_size": policy.dims.obs,
            "action_size": policy.dims.act,
            "bounds": None if policy.bounds is None else [edge.tolist() for edge in policy.bounds],
            "fingerprint": policy.data.get("fingerprint"),
            "monitor": self.watch is not None,
            "versions": versions(),
        }


def refuse(status: HTTPStatus, line: str) -> NoReturn:
    """End a request."""
    raise Refused(status, line)


def refusal(fault: Refused) -> Reply:
    """A fault as an answer."""
    return Reply(to_json({"error": str(fault)}), status=fault.status)


def to_json(value: Any) -> bytes:
    """In ASCII, on one line."""
    return json.dumps(value, allow_nan=False).encode()


def from_json(body: bytes) -> npt.NDArray[Any]:
    """The observation of {"observation": […]}: numbers, or rows of them."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError, OverflowError):
        given: Any = json.loads(body)["observation"]
        rows: Any = given if given and isinstance(given[0], list) else [given]
        # NumPy would read words as numbers, and make room for as many long ones as there are short ones.
        if all(type(number) in (int, float) for row in rows for number in row):
            return np.asarray(given, np.float64)
    refuse(HTTPStatus.BAD_REQUEST, 'the body must be JSON, {"observation": [numbers]}, or rows of one length.')


def from_npy(body: bytes) -> npt.NDArray[Any]:
    """The array of an npy file."""
    try:
        return read_array(io.BytesIO(body), len(body))
    except (ValueError, OverflowError) as fault:
        refuse(HTTPStatus.BAD_REQUEST, f"the body must be an npy file ({str(fault)[:200]}).")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach all that the name stands for."""
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host or "0.0.0.0", None)}
    except (OSError, UnicodeError):
        raise InvalidSettings(f"--host {host} is no address of this machine; 127.0.0.1 is one.") from None
    return all(ipaddress.ip_address(address).is_loopback for address in found)


async def serve(server: Server, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Until it is cancelled; `ready` is called with the port once clients are let in."""
    async with await server.start(host, port) as listening:
        ready(listening.sockets[0].getsockname()[1])
        await listening.serve_forever()


@contextlib.contextmanager
def beside(server: Server, host: str = "127.0.0.1", port: int = 0) -> Generator[int, None, None]:
    """Serve in another thread while the block runs, and give it the port (one that is free, if 0 is asked for)."""
    with asyncio.Runner() as runner:  # which ends what is left of connections
        listening, loop = runner.run(server.start(host, port)), runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield listening.sockets[0].getsockname()[1]
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            listening.close()
