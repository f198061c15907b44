"""The paths of the server as an ASGI application: checks, decoding, the call, encoding and counting of each request."""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar, final

from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from diffclone.deploy.memory import Chunks
from diffclone.deploy.monitors.following import Follower
from diffclone.deploy.serving.access import Access
from diffclone.deploy.serving.batching import Act, Batcher
from diffclone.deploy.serving.bodies import (
    JSON,
    MAX_BODY_BYTES,
    MAX_ROWS,
    NPY,
    Meta,
    RequestError,
    decode_observation,
    encode_action,
    most_bytes,
    to_json,
)
from diffclone.deploy.serving.metrics import CONTENT_TYPE, Metrics
from diffclone.deploy.serving.openapi import openapi_document, openapi_page
from diffclone.deploy.serving.sessions import Sessions

SMALL_BODY_BYTES = 16 * 2**10
"""Bodies up to this size are decoded and encoded on the event loop, larger ones in a thread."""
MAX_HELD_BYTES = 256 * 2**20
"""Bodies and observations in memory, of all requests together, before larger ones are refused."""
OPEN_PATHS = ("/health", "/docs", "/openapi.json")
"""They need no token."""
PATHS = ("/act", "/about", "/metrics", *OPEN_PATHS)

T = TypeVar("T")


@final
class Application:
    """Answers requests. `act` runs in a thread; the methods run on the event loop."""

    def __init__(
        self,
        act: Act,
        observation_size: int,
        about: Mapping[str, Any],
        access: Access,
        action_size: int,
        chunks: Chunks,
        follower: Follower | None = None,
        meta: Meta = MappingProxyType({}),
    ):
        """If the policy has a memory, `act` maps windows to chunks. `meta` has the parts of an observation."""
        self.size, self.access, self.metrics, self.meta = observation_size, access, Metrics(), meta
        self.batcher = Batcher(act, self.metrics.call_rows.observe)
        self.sessions = Sessions(chunks, observation_size, action_size, self.batcher, follower)
        self.held_bytes = 0
        self._coder = ThreadPoolExecutor(1, "bodies")
        document = openapi_document()
        page = HTMLResponse(
            openapi_page(document), headers={"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )
        routes = [
            Route("/act", self.act, methods=["POST"]),
            Route("/about", constant(json_response(about))),
            Route("/health", constant(json_response({"status": "ok"}))),
            Route("/metrics", self.show_metrics),
            Route("/openapi.json", constant(json_response(document))),
            Route("/docs", constant(page)),
        ]
        self._router = Router(routes, redirect_slashes=False)
        origins, headers = sorted(access.origins), ["Authorization", "Content-Type", "X-Session", "X-Step", "X-Monitor"]
        self._inner = CORSMiddleware(self.answer, origins, ["GET", "POST"], headers) if origins else self.answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Host and Origin of a request, answer it and count it."""
        start, status = time.perf_counter(), 0

        async def send_and_see(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        headers = dict(scope["headers"])
        host, origin = (headers.get(name) for name in (b"host", b"origin"))
        try:
            self.access.check(
                None if host is None else host.decode("latin-1"), None if origin is None else origin.decode("latin-1")
            )
        except RequestError as error:
            await error_response(error)(scope, receive, send_and_see)
        else:
            await self._inner(scope, receive, send_and_see)
        path = scope["path"] if scope["path"] in PATHS else "other"
        self.metrics.requests[path, status] += 1  # the status is 0 if the client disconnected
        if path == "/act":
            self.metrics.seconds.observe(time.perf_counter() - start)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; an error is a response of one line."""
        scope["app"] = self  # the router then raises errors instead of answering them
        try:
            if scope["path"] not in OPEN_PATHS:
                self.access.check_token(dict(scope["headers"]).get(b"authorization", b""))
            await self._router(scope, receive, send)
        except ClientDisconnect:
            pass
        except HTTPException as error:
            unknown = f"unknown path; the paths are {', '.join(PATHS)}."
            wrong = f"{scope['path']} does not support {scope['method']}; see /docs."
            message = unknown if error.status_code == HTTPStatus.NOT_FOUND else wrong
            await error_response(RequestError(HTTPStatus(error.status_code), message))(scope, receive, send)
        except RequestError as error:
            await error_response(error)(scope, receive, send)
        except Exception:
            logging.getLogger(__name__).exception("error in %s %s", scope["method"], scope["path"])
            error = RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; see its log.")
            await error_response(error)(scope, receive, send)

    async def act(self, request: Request) -> Response:
        """Compute actions and encode them as the observations were encoded."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type not in MAX_BODY_BYTES:
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type must be {JSON} or {NPY}.")
        with self.hold() as hold:
            body = await self.read_body(request, most_bytes(content_type, self.size), hold)
            small = len(body) <= SMALL_BODY_BYTES
            obs = await self.code(small, lambda: decode_observation(content_type, body, self.size, self.meta))
            hold(obs.nbytes * self.sessions.chunks.history)
            rows = obs if obs.ndim == 2 else obs[None]
            if self.sessions.chunks.has_memory or "x-monitor" in request.headers:
                action, scores = await self.sessions.act(request.headers, rows)
            else:
                action, scores = await self.batcher(rows)
            self.metrics.count_rows(len(action), scores)
            action = action if obs.ndim == 2 else action[0]
            encoded = await self.code(small, lambda: encode_action(content_type, action, scores))
        return Response(encoded, media_type=content_type)

    async def code(self, small: bool, work: Callable[[], T]) -> T:  # noqa: FBT001
        """Decode or encode a small body at once, a large one in the thread."""
        return work() if small else await asyncio.get_running_loop().run_in_executor(self._coder, work)

    @contextmanager
    def hold(self) -> Generator[Callable[[int], None], None, None]:
        """Count the bytes that a request holds in memory, and refuse it if all requests hold too many."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if held + size > SMALL_BODY_BYTES and self.held_bytes + size > MAX_HELD_BYTES:
                raise RequestError(
                    HTTPStatus.SERVICE_UNAVAILABLE, "the server holds too many large requests; try later."
                )
            held += size
            self.held_bytes += size

        try:
            yield hold
        finally:
            self.held_bytes -= held

    async def read_body(self, request: Request, limit: int, hold: Callable[[int], None]) -> bytes:
        """Read a body of limited size."""
        length = request.headers.get("content-length")
        if length is None:
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length; chunked bodies are not supported.")
        if int(length) > limit:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body exceeds {limit} bytes; of rows, at most {MAX_ROWS} are allowed.",
            )
        body = bytearray()
        async for chunk in request.stream():
            hold(len(chunk))
            body += chunk
        return bytes(body)

    async def show_metrics(self, request: Request) -> Response:
        """Return the metrics."""
        gauges = {"waiting_rows": ("Observations that wait for a call or are in one.", self.batcher.waiting_rows)}
        gauges["sessions"] = ("Sessions of clients.", len(self.sessions))
        return Response(self.metrics.to_text(gauges), media_type=CONTENT_TYPE)

    def close(self) -> None:
        """Stop the threads."""
        self.batcher.close()
        self._coder.shutdown(wait=False, cancel_futures=True)


def json_response(value: Any, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with one line of JSON."""
    return Response(to_json(value), status, headers, JSON)


def error_response(error: RequestError) -> Response:
    """Return the response to a request that failed."""
    headers = {"retry-after": "1"} if error.status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return json_response({"error": str(error)}, error.status, headers)


def constant(response: Response) -> Callable[[Request], Any]:
    """Return an endpoint that always gives the same response."""

    async def endpoint(request: Request) -> Response:
        return response

    return endpoint
