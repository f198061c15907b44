"""Connections: uvicorn's HTTP protocol with time limits, size limits and strict parsing.

httptools, unlike h11, refuses folded headers and lines that end with a bare LF. uvicorn has no limit for the time or
the size of a request's headers, reads pipelined requests without bound, and drops the response to a client that closes
its sending side; this subclass adds what is missing.
"""

import asyncio
import json
import socket
from contextlib import suppress
from http import HTTPStatus
from typing import Any, final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_CONNECTIONS = 512
MAX_HEAD_BYTES = 16 * 2**10
"""Largest request line and headers together."""
SLICE_BYTES = 4 * 2**10
"""The parser gets data in slices, because it creates all requests of a slice at once. A body is one slice."""
LINGER_SECONDS = 1.0
"""How long to read and discard data after a refused request, so that the client receives the reply."""


@final
class _Flow(FlowControl):
    """Does not read more while data of this connection wait for earlier requests."""

    def __init__(self, transport: asyncio.Transport, held: bytearray):
        super().__init__(transport)
        self.held = held

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


@final
class Connection(HttpToolsProtocol):
    """One client. A request must be complete `timeout` seconds after its first byte or after the connection opened."""

    def __init__(self, *arguments: Any, timeout: float, **options: Any):
        super().__init__(*arguments, **options)
        self.timeout = self.timeout_keep_alive = timeout  # pyright: ignore[reportAttributeAccessIssue]
        self.held = bytearray()
        """Data that the parser has not seen, because earlier requests of this client are not answered yet."""
        self.head_bytes: int | None = 0
        """Bytes since the start of a message; None after its headers."""
        self.body_left = 0
        """Bytes of the current body that the parser has not seen."""
        self.deadline: asyncio.TimerHandle | None = None
        """Ends the time of a request that is not complete."""
        self.unread: asyncio.TimerHandle | None = None
        """Ends the time of a response that the client does not read."""
        self.refusal: bytes | None = None
        """The last response of this connection, once it is decided. Earlier requests are answered first."""
        self.sent_eof = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Start the time limit, or refuse the client if too many are connected."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.held)
        # Head and body are two writes: without this, the second one waits for a delayed acknowledgement (40 ms).
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > MAX_CONNECTIONS:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_CONNECTIONS} clients are connected; try later.")
        else:
            self._start_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        super().connection_lost(exc)
        self.resume_writing()
        self._unset_keepalive_if_required()
        self._stop_deadline()

    def data_received(self, data: bytes) -> None:
        """Pass data to the parser, unless earlier requests wait."""
        if self.refusal is not None:
            return
        if self.cycle is None or self.cycle.response_complete:  # pyright: ignore[reportUnnecessaryComparison]
            self._start_deadline()
        self.held += data
        self._feed()

    def _feed(self) -> None:
        while self.held and not self.pipeline and self.refusal is None and not self.transport.is_closing():
            size = max(SLICE_BYTES, self.body_left)
            data = bytes(self.held[:size])
            del self.held[:size]
            super().data_received(data)
            if self.head_bytes is not None:
                self.head_bytes += len(data)
                if self.head_bytes > MAX_HEAD_BYTES:
                    message = f"the headers exceed {MAX_HEAD_BYTES} bytes."
                    self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, message)
        if self.held:
            self.flow.pause_reading()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return whether the connection stays open: a client may close its sending side and wait for the response."""
        self.sent_eof = True
        return self._is_working()

    def _is_working(self) -> bool:
        """Return whether a complete request waits for its response."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete and (bool(self.pipeline) or not cycle.more_body)

    # Callbacks of the parser. An exception in one of them is an invalid request.

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self.head_bytes = 0
        self._start_deadline()

    def on_headers_complete(self) -> None:
        """Check what the parser does not, then start to answer."""
        self.head_bytes = None
        parser: Any = self.parser
        version = parser.get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if version not in ("1.0", "1.1") or hosts > 1 or (version == "1.1" and not hosts) or parser.should_upgrade():
            raise ValueError("not a request of HTTP/1.0 or HTTP/1.1 with one Host")
        self.body_left = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count what is left of the body."""
        self.body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the time limit of a request."""
        super().on_message_complete()
        self.head_bytes = self.body_left = 0
        self._stop_deadline()

    def on_response_complete(self) -> None:
        """Go on with the next request of this client."""
        super().on_response_complete()
        if self.held and not self.pipeline:
            self._feed()
            if not self.held:
                self.flow.resume_reading()
        if self._is_working() or self.transport.is_closing():
            return
        if self.refusal is not None:
            self._send_refusal()
        elif self.sent_eof:
            self.transport.close()

    # Time limits and refusals.

    def _start_deadline(self) -> None:
        if self.deadline is None:
            self.deadline = self.loop.call_later(self.timeout, self._end_deadline)

    def _stop_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _end_deadline(self) -> None:
        self.deadline = None
        if self.held or self.pipeline:  # the server does not read, because it has not answered earlier requests
            self._start_deadline()
            return
        cycle: Any = self.cycle
        silent = cycle is None and not self.head_bytes
        refused = cycle is not None and cycle.response_complete and self.head_bytes is None  # its body never arrived
        if silent or refused:
            self.transport.abort()
        else:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request was not complete after {self.timeout:g} s.")

    def pause_writing(self) -> None:
        """Give a client that does not read its responses the same time."""
        super().pause_writing()
        self.unread = self.loop.call_later(self.timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: the client has read."""
        super().resume_writing()
        if self.unread is not None:
            self.unread.cancel()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; do not wait for a client that does not read its response."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer data that the parser refused."""
        self.refuse(HTTPStatus.BAD_REQUEST, "this is not a valid HTTP/1.1 request.")

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error as the last response: where the next request starts is unknown."""
        body = json.dumps({"error": message}).encode()
        retry = "retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{retry}connection: close\r\n\r\n"
        )
        self.refusal = head.encode() + body
        self.held.clear()
        self._stop_deadline()
        if not self._is_working():
            self._send_refusal()

    def _send_refusal(self) -> None:
        if (cycle := self.cycle) is not None:  # pyright: ignore[reportUnnecessaryComparison]
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(self.refusal or b"")
        if self.sent_eof:
            self.transport.close()
            return
        with suppress(OSError):  # the client has gone
            self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)
