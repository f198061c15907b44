"""Serve a policy over HTTP: observations in, actions out, as JSON or npy files. No received content is executed.

    POST /act           {"observation": […]} → {"action": […]}, or application/x-npy in both directions; single or batch
                        with the headers X-Session and X-Step if the policy has a memory, and X-Monitor: episode if
                        the monitor follows the episode (serving/sessions.py)
    GET  /about         sizes, method, data and versions
    GET  /health        {"status": "ok"}
    GET  /metrics       counters and histograms, in the text format of Prometheus
    GET  /docs          the OpenAPI document as a page; /openapi.json as JSON

Connections, limits and routing run on one event loop (uvicorn and Starlette). The policy runs in another thread, one
call for all requests that wait (serving/batching.py). Large bodies are decoded and encoded in a third thread.
"""

import asyncio
import contextlib
import gc
import signal
import socket
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import FrameType
from typing import Any, TypeAlias, final

from diffclone.data.formats.meta import observation_parts
from diffclone.data.layout import Layout
from diffclone.deploy.serving.access import Access, is_loopback, listen
from diffclone.deploy.serving.batching import Piece
from diffclone.deploy.serving.bodies import flatten_scores
from diffclone.errors import InvalidSettings, MissingPackage, install_command
from diffclone.policy import Policy
from diffclone.records import versions
from diffclone.settings import to_dict
from diffclone.shapes import Floats

try:
    import uvicorn

    from diffclone.deploy.serving.application import Application
    from diffclone.deploy.serving.connections import Connection
except ImportError as error:
    package = (error.name or "").partition(".")[0]
    raise MissingPackage(f"the server needs the package {package}. Try: {install_command('serve')}.") from None

BACKLOG = 1024
"""Connections that the operating system accepts before the server does."""
SHUTDOWN_SECONDS = 30
"""How long a shutdown waits for requests in flight."""

MonitorFunction: TypeAlias = Callable[[Floats, Floats], Mapping[str, Any]]
"""Returns scores for observations (rows, size) and the chosen actions (rows, size): names and one number or boolean per
row, in mappings that may be nested. A call may contain rows of several requests. Flags in `alarm` are counted."""


@final
class Server:
    """Serves the actions of one member of a policy, with the scores of its monitor or of another function."""

    def __init__(
        self,
        policy: Policy,
        monitor: MonitorFunction | None = None,
        *,
        token: str | None = None,
        timeout: float = 10.0,
        allow_hosts: Sequence[str] = (),
        allow_origins: Sequence[str] = (),
    ):
        """Prepare a server. `serve` and `serve_in_thread` start it.

        Args:
            policy: a policy with one member.
            monitor: returns scores for observations and actions; by default the policy's calibrated monitor.
            token: what clients must send as `Authorization: Bearer TOKEN`; by default nothing.
            timeout: seconds that a client may take to send a request, to read its response, and between two requests.
            allow_hosts: names under which clients may reach the server, beside IP addresses and localhost; "*" for any.
            allow_origins: web pages that may use the server, e.g. "https://example.org"; "*" for any.
        """
        if len(policy) != 1:
            raise InvalidSettings(f"this policy has {len(policy)} members; serve one of them: Server(policy[0]).")
        self.follower = None
        """Turns scores of single steps into those of an episode; None without a calibrated monitor."""
        if monitor is None and policy.calibrated_monitor is not None:
            self.follower = policy.calibrated_monitor.follower
            monitor = lambda obs, action: policy.monitor(obs, action).arrays()  # noqa: E731
        self.policy, self.monitor, self.token, self.timeout = policy, monitor, token, timeout
        self.allow_hosts, self.allow_origins = allow_hosts, allow_origins
        Access(token, allow_hosts, allow_origins)  # raises errors now, not when the server starts

    def act(self, obs: Floats) -> Piece:
        """Return actions and scores for observations (rows, size); if it has a memory, chunks for windows."""
        policy = self.policy
        if policy.chunks.has_memory:
            action = policy.plan(obs.reshape(len(obs), policy.chunks.history, -1)).reshape(len(obs), -1)
        else:
            action = policy(obs)
        scores = None if self.monitor is None else flatten_scores(self.monitor(obs, action), len(obs))
        return action, scores

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
            **({"chunks": asdict(policy.chunks)} if policy.chunks.has_memory else {}),
            **({"observation_parts": [list(part) for part in self.parts]} if self.parts else {}),
        }

    @property
    def parts(self) -> list[tuple[str, int]]:
        """Names and sizes of the parts of an observation with images and numbers; empty for other observations."""
        meta = self.policy.data.get("meta", {})
        return [] if Layout.from_meta(meta) is None else observation_parts(meta)

    def application(self, *names: str) -> Application:
        """Return the ASGI application, which also answers to the given host names."""
        access = Access(self.token, [*self.allow_hosts, *names], self.allow_origins)
        dims, chunks = self.policy.dims, self.policy.chunks
        meta = self.policy.data["meta"] if self.parts else {}
        return Application(self.act, dims.obs, self.about(), access, dims.act, chunks, self.follower, meta)


@final
class _Uvicorn(uvicorn.Server):
    """Ends with exit code 0 after SIGTERM and with KeyboardInterrupt after Ctrl-C; a second one does not wait."""

    on_start: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.on_start is not None:
            self.on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        received: list[int] = []

        def stop(number: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            received.append(number)

        signals = (signal.SIGINT, signal.SIGTERM)
        in_main_thread = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, stop) for number in signals} if in_main_thread else {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if signal.SIGINT in received:
            raise KeyboardInterrupt


@contextlib.contextmanager
def _prepared(server: Server, host: str, port: int) -> Generator[tuple[_Uvicorn, list[socket.socket]], None, None]:
    """Yield the stopped server and its sockets. An address that other machines can reach requires a token."""
    if server.token is None and not is_loopback(host):
        raise InvalidSettings(f"other machines can reach --host '{host}'; add a --token, or use 127.0.0.1.")
    sockets = listen(host, port, backlog=BACKLOG)
    application = server.application(host)
    config = uvicorn.Config(
        application,
        http=partial(Connection, timeout=server.timeout),  # pyright: ignore[reportArgumentType]
        loop="asyncio",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    try:
        yield _Uvicorn(config), sockets
    finally:
        application.close()
        for opened in sockets:
            opened.close()


def serve(server: Server, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        server: what to serve.
        host: the address to listen on.
        port: the port to listen on; 0 selects a free one.
        ready: called with the port once the server accepts clients.
    """
    with _prepared(server, host, port) as (running, sockets):
        running.on_start = lambda: ready(sockets[0].getsockname()[1])
        gc.freeze()  # a full garbage collection would visit all objects of torch, during which nobody is served
        try:
            asyncio.run(running.serve(sockets))
        finally:
            gc.unfreeze()


@contextlib.contextmanager
def serve_in_thread(server: Server, host: str = "127.0.0.1", port: int = 0) -> Generator[int, None, None]:
    """Serve in another thread while the block runs, and yield the port.

    Args:
        server: what to serve.
        host: the address to listen on; by default only programs on this machine can connect.
        port: the port to listen on; 0 selects a free one.
    """
    with _prepared(server, host, port) as (running, sockets):
        found, started = sockets[0].getsockname()[1], threading.Event()
        running.on_start = started.set

        def run() -> None:
            try:
                asyncio.run(running.serve(sockets))
            finally:
                started.set()  # also if it failed to start

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        started.wait()
        try:
            yield found
        finally:
            running.should_exit = True
            thread.join()
