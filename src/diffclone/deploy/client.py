"""Ask a policy server for actions: NumPy in, NumPy out. Needs only NumPy and the standard library.

with PolicyClient("http://127.0.0.1:8765") as policy:
    action = policy(observation)             # (size) to (size), or (rows, size) to (rows, size)
    reply = policy.act(observation)          # reply.action, and the monitor's scores in reply.monitor

async with AsyncPolicyClient("http://127.0.0.1:8765") as policy:
    action = await policy(observation)

A client is one session: if the policy has a memory (chunks or a history), use a client per robot, await each call
before the next, and call `reset` when an episode begins. With `follow=True` the monitor remembers the episode as well:
its scores and alarms use the calibrated window and band.
"""

import asyncio
import http.client
import io
import json
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from diffclone.errors import DiffcloneError, InvalidSettings

NPY = "application/x-npy"
PORT = 8765
MAX_HEAD_BYTES = 64 * 2**10

Floats: TypeAlias = npt.NDArray[np.float32]
_Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ServerRefused(DiffcloneError):
    """The server answered with an error status, or not at all."""

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.status = status
        """The HTTP status; None if there was no response."""


@final
@dataclass(frozen=True, eq=False)
class Reply:
    """Actions, and the scores of the monitor if the server has one."""

    action: Floats
    """The action (size), or one action per row of a batch (batch, size), in raw units."""
    monitor: dict[str, npt.NDArray[Any]] | None
    """One value per row by name of the score, e.g. `both` and `alarm.both`; single values for a single observation."""


@final
class _Session:
    """The session of a client and the step of its episode, for a policy or a monitor that has a memory."""

    def __init__(self, *, follow: bool, name: str | None = None) -> None:
        self.name, self.follow, self.step = name or secrets.token_hex(8), follow, 0

    def reset(self) -> "_Session":
        """Return the session at the first step of another episode. A call of the old episode cannot change it."""
        return _Session(follow=self.follow, name=self.name)

    def headers(self) -> dict[str, str]:
        return {"X-Session": self.name, "X-Step": str(self.step)} | ({"X-Monitor": "episode"} if self.follow else {})


@final
@dataclass(frozen=True)
class _Address:
    host: str
    port: int
    token: str

    @classmethod
    def parse(cls, url: str, token: str | None) -> "_Address":
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or PORT
        except ValueError:
            host, port, parts = None, PORT, urlsplit("")
        if parts.scheme != "http" or not host or parts.path not in ("", "/"):
            raise InvalidSettings(
                f"{url} is not the address of a policy server; expected e.g. http://127.0.0.1:{PORT}."
            )
        token = (token or "").strip()  # a token that was read from a file ends in a line break
        if found := re.search(r"[\x00-\x1f\x7f]", token):
            raise InvalidSettings(f"the token contains {found[0]!r}, which no HTTP header can; pass the token alone.")
        return cls(host, port, token)

    def headers(self, body: bytes, session: _Session | None = None) -> dict[str, str]:
        """Return the headers of a request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        headers = {"Host": f"{host}:{self.port}", "Content-Length": str(len(body))}
        headers |= {"Content-Type": NPY} if body else {}
        headers |= {} if session is None else session.headers()
        return headers | ({"Authorization": f"Bearer {self.token}".encode().decode("latin-1")} if self.token else {})

    def unreachable(self, error: Exception) -> ServerRefused:
        reason = str(error) or type(error).__name__
        return ServerRefused(f"no response of a policy server at {self.host} port {self.port} ({reason}).")


def _encode(observation: npt.ArrayLike) -> bytes:
    array = np.asarray(observation)
    if array.dtype.kind not in "iuf":
        raise InvalidSettings(f"the observation is an array of {array.dtype}; expected numbers.")
    np.save(file := io.BytesIO(), array, allow_pickle=False)
    return file.getvalue()


def _decode(status: int, body: bytes) -> bytes:
    """Return the body of a successful response; raise the error of another one."""
    if status == http.HTTPStatus.OK:
        return body
    message = body[:200].decode("utf-8", "replace")
    with suppress(ValueError, KeyError, TypeError):
        message = json.loads(body)["error"]
    raise ServerRefused(f"the server answered {status}: {message}", status)


def _to_reply(body: bytes) -> Reply:
    file = io.BytesIO(body)
    try:
        action = np.load(file, allow_pickle=False)
        scores = np.load(file, allow_pickle=False) if file.tell() < len(body) else None
    except (ValueError, EOFError) as error:
        raise ServerRefused(f"the response is not an npy file ({str(error)[:200]}).", http.HTTPStatus.OK) from None
    return Reply(action, None if scores is None else {name: scores[name] for name in scores.dtype.names or ()})


def _to_about(body: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(body))
    except (ValueError, TypeError) as error:
        raise ServerRefused(f"the response does not describe a policy ({error}).", http.HTTPStatus.OK) from None


@final
class PolicyClient:
    """A connection to a policy server. Use one client per thread."""

    def __init__(
        self,
        url: str = f"http://127.0.0.1:{PORT}",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        follow: bool = False,
    ):
        """Prepare a connection, which is opened by the first call.

        Args:
            url: the address of the server.
            token: the token of the server, if it requires one.
            timeout: seconds to wait for a response.
            follow: whether the server's monitor follows the episode, with its window and band, instead of scoring
                single steps. Call `reset` at the start of each episode.
        """
        self._address = _Address.parse(url, token)
        self._connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=timeout)
        self._session = _Session(follow=follow)

    def __call__(self, observation: npt.ArrayLike) -> Floats:
        """Return the action for an observation, or one action per row of a batch."""
        return self.act(observation).action

    def act(self, observation: npt.ArrayLike) -> Reply:
        """Return actions and the monitor's scores."""
        reply = _to_reply(self._request("POST", "/act", _encode(observation), self._session))
        self._session.step += 1  # only now: a step without a response can be repeated
        return reply

    def reset(self) -> None:
        """Begin a new episode with the next observation."""
        self._session = self._session.reset()

    def about(self) -> dict[str, Any]:
        """Return the server's description of its policy."""
        return _to_about(self._request("GET", "/about"))

    def _request(self, verb: str, path: str, body: bytes = b"", session: _Session | None = None) -> bytes:
        # The server closes a connection that was idle for long, so a request on an old one is repeated on a new one.
        for may_repeat in (True, False) if self._connection.sock is not None else (False,):
            try:
                self._connection.request(verb, path, body or None, self._address.headers(body, session))
                response = self._connection.getresponse()
                return _decode(response.status, response.read())
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if not may_repeat or isinstance(error, TimeoutError):
                    raise self._address.unreachable(error) from None
        raise AssertionError

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class AsyncPolicyClient:
    """Connections to a policy server: one for each call that runs at the same time, kept for later calls.

    Calls may run at the same time if the policy has no memory. Otherwise await each call before the next, and use one
    client per robot.
    """

    def __init__(
        self,
        url: str = f"http://127.0.0.1:{PORT}",
        *,
        token: str | None = None,
        timeout: float = 10.0,
        follow: bool = False,
    ):
        """Prepare connections; the arguments are those of `PolicyClient`."""
        self._address, self._timeout = _Address.parse(url, token), timeout
        self._idle: list[_Streams] = []
        self._session = _Session(follow=follow)

    async def __call__(self, observation: npt.ArrayLike) -> Floats:
        """Return the action for an observation, or one action per row of a batch."""
        return (await self.act(observation)).action

    async def act(self, observation: npt.ArrayLike) -> Reply:
        """Return actions and the monitor's scores."""
        session, step = self._session, self._session.step
        reply = _to_reply(await self._request("POST", "/act", _encode(observation), session))
        session.step = max(session.step, step + 1)  # calls at the same time are one step
        return reply

    def reset(self) -> None:
        """Begin a new episode with the next observation."""
        self._session = self._session.reset()

    async def about(self) -> dict[str, Any]:
        """Return the server's description of its policy."""
        return _to_about(await self._request("GET", "/about"))

    async def _request(self, verb: str, path: str, body: bytes = b"", session: _Session | None = None) -> bytes:
        head = "".join(f"{name}: {value}\r\n" for name, value in self._address.headers(body, session).items())
        message = f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body
        try:
            async with asyncio.timeout(self._timeout):
                while self._idle:  # the server may have closed these, because they were idle for long
                    with suppress(ConnectionError, asyncio.IncompleteReadError):
                        return await self._exchange(self._idle.pop(), message)
                streams = await asyncio.open_connection(self._address.host, self._address.port, limit=MAX_HEAD_BYTES)
                return await self._exchange(streams, message)
        except (OSError, EOFError, ValueError, http.client.HTTPException) as error:
            raise self._address.unreachable(error) from None

    async def _exchange(self, streams: _Streams, message: bytes) -> bytes:
        """Send a request and return the body of its response."""
        reader, writer = streams
        keep = False
        try:
            writer.write(message)
            await writer.drain()
            try:
                line, _, fields = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
            except asyncio.LimitOverrunError:
                raise http.client.LineTooLong("response headers") from None
            headers = http.client.parse_headers(io.BytesIO(fields))
            if headers["Content-Length"] is None:  # servers of policies always send it
                raise http.client.HTTPException("the response has no Content-Length")
            body = await reader.readexactly(int(headers["Content-Length"]))
            keep = headers.get("Connection", "").lower() != "close"
        finally:  # also if the call is cancelled: the rest of a response must not reach the next call
            if keep:
                self._idle.append(streams)
            else:
                writer.close()
        return _decode(int(line.partition(b" ")[2][:3]), body)

    async def close(self) -> None:
        """Close the connections."""
        while self._idle:
            _, writer = self._idle.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def __aenter__(self) -> "AsyncPolicyClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
