import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving import application, connections
from diffclone.deploy.serving.bodies import JSON, NPY
from serving_examples import OBS, act, act_request, connect, read_all, request, send_bytes, trained_policy


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serve_in_thread(Server(trained_policy())) as found:
        yield found


# Invalid requests.


@pytest.mark.parametrize(
    ("verb", "path", "expected"),
    [
        ("GET", "/", 404),
        ("POST", "/act/", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/act", 405),
        ("OPTIONS", "/act", 405),
        ("POST", "/about", 405),
    ],
)
def test_unknown_paths_and_verbs(port: int, verb: str, path: str, expected: int) -> None:
    status, _, body = request(port, verb, path)
    assert status == expected
    assert json.loads(body)["error"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_content_types_are_refused(port: int, kind: str) -> None:
    assert request(port, "POST", "/act", b"{}", content_type=kind)[0] == 415


HOST = b"Host: localhost\r\n"
TYPE = b"Content-Type: application/json\r\n"
POST = b"POST /act HTTP/1.1\r\n" + HOST + TYPE
INVALID_REQUESTS: dict[str, bytes] = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no version": b"GET /health\r\n\r\n",
    "HTTP/3": b"GET /health HTTP/3\r\n" + HOST + b"\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "upgrade": b"GET /health HTTP/1.1\r\n" + HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    "no Host": b"GET /health HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "no path": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a path beyond ASCII": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL in a header": b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
    "header without a colon": b"GET /health HTTP/1.1\r\n" + HOST + b"X\r\n\r\n",
    "space before the colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "folded header": POST + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "folded header, tab": POST + b"X: a\r\n\tb\r\nContent-Length: 2\r\n\r\n{}",
    "bare LF everywhere": (POST + b"Content-Length: 2\r\n\r\n").replace(b"\r\n", b"\n") + b"{}",
    "bare LF in one line": POST + b"X: a\nContent-Length: 2\r\n\r\n{}",
    "bare LF at the end": POST + b"Content-Length: 2\r\n\n{}",
    "bare CR": POST + b"X: a\rContent-Length: 2\r\n\r\n{}",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "length with a sign": POST + b"Content-Length: +2\r\n\r\n{}",
    "length with _": POST + b"Content-Length: 1_0\r\n\r\n",
    "length beyond ASCII": POST + b"Content-Length: \xb2\r\n\r\n",
    "empty length": POST + b"Content-Length: \r\n\r\n",
    "endless length": POST + b"Content-Length: 1" + b"0" * 5000 + b"\r\n\r\n",
    "list of lengths": POST + b"Content-Length: 2, 2\r\n\r\n{}",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", INVALID_REQUESTS)
def test_invalid_requests_are_refused(port: int, name: str) -> None:
    head, _, body = send_bytes(port, INVALID_REQUESTS[name]).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    assert json.loads(body) == {"error": "this is not a valid HTTP/1.1 request."}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (POST + b"Content-Length: 4194305\r\n\r\n", b"413"),
        (POST + b"\r\n", b"411"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 30_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"a" * 30_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"X: a\r\n".join([b"GET /health HTTP/1.1\r\n" + HOST] + [b""] * 5000) + b"\r\n", b"431"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n", b"200"),
    ],
)
def test_other_statuses(port: int, sent: bytes, expected: bytes) -> None:
    assert send_bytes(port, sent).startswith(b"HTTP/1.1 " + expected)


def test_an_incomplete_request_gets_no_response(port: int) -> None:
    assert send_bytes(port, POST + b"Content-Length: 50\r\n\r\n{") == b""
    assert request(port, "GET", "/health")[0] == 200


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    sent = b"".join(act_request(OBS[row]) for row in range(100))
    answers = send_bytes(port, sent).split(b"HTTP/1.1 200 OK")[1:]
    actions = [json.loads(answer.partition(b"\r\n\r\n")[2])["action"] for answer in answers]
    assert np.allclose(actions, trained_policy()(OBS[:100]), atol=1e-6)


def test_an_invalid_request_is_refused_after_the_responses_to_earlier_ones(port: int) -> None:
    answer = send_bytes(port, act_request() + act_request() + b"nonsense\r\n\r\n" + act_request())
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"400"]


def test_expect_100_continue(port: int) -> None:
    head, _, body = act_request(OBS[0], "Connection: close", "Expect: 100-continue").partition(b"\r\n\r\n")
    with connect(port) as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert b"200 OK" in client.recv(1000)


# Time limits.


def test_slow_requests_time_out() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.5)) as port:
        silent, *slow = (connect(port) for _ in range(5))
        for client, start in zip(
            slow, (b"\r\n", b"POST /a", POST + b"X: ", POST + b"Content-Length: 99\r\n\r\n"), strict=True
        ):
            client.sendall(start)
        begun = time.monotonic()
        while time.monotonic() < begun + 0.3:  # every byte arrives in time, the request does not
            for client, more in zip(slow, (b"\r\n", b"a", b"a", b" "), strict=True):
                client.sendall(more)
            time.sleep(0.05)
        for client in slow:
            answer = read_all(client)
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"the request was not complete after 0.5 s." in answer
            client.close()
        assert read_all(silent) == b""
        silent.close()
        assert time.monotonic() - begun < 15


def test_a_slow_second_request_times_out() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.3)) as port, connect(port) as client:
        client.sendall(act_request() + b"POST /act HT")
        assert re.findall(rb"HTTP/1.1 (\d+)", read_all(client)) == [b"200", b"408"]


def test_an_idle_connection_is_closed() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.3)) as port, connect(port) as client:
        client.sendall(act_request())
        assert read_all(client).count(b"HTTP/1.1") == 1


def test_a_refused_body_is_not_awaited_for_ever() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.3)) as port, connect(port) as client:
        client.sendall(POST + b"Content-Length: 99999999\r\n\r\n{")
        assert read_all(client).startswith(b"HTTP/1.1 413")


def test_a_client_that_does_not_read_is_disconnected() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.5)) as port, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", port))
        sent, received = act_request(np.zeros((4000, 3), np.int8)), 0
        with suppress(ConnectionError):
            for _ in range(100):
                client.sendall(sent)
            time.sleep(1.5)
            while data := client.recv(65536):
                received += len(data)
        assert received < 10_000_000, "all responses were sent"
        assert request(port, "GET", "/health")[0] == 200


# Limits.


def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    with serve_in_thread(Server(trained_policy())) as port:
        held = [connect(port) for _ in range(3)]
        answer = read_all(held[2])
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 1" in answer
        for client in held:
            client.close()
        time.sleep(0.2)
        assert request(port, "GET", "/health")[0] == 200


def test_the_limit_of_connections_is_far_above_64() -> None:
    assert connections.MAX_CONNECTIONS >= 512


def test_memory_is_limited_and_small_requests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "MAX_HELD_BYTES", 100_000)
    with serve_in_thread(Server(trained_policy())) as port, connect(port) as slow:
        slow.sendall(b"POST /act HTTP/1.1\r\n" + HOST + f"Content-Type: {NPY}\r\n".encode())
        slow.sendall(b"Content-Length: 99000\r\n\r\n" + b"\0" * 90_000)
        time.sleep(0.2)
        status, headers, _ = request(port, "POST", "/act", b" " * 50_000, content_type=JSON)
        assert (status, headers["retry-after"]) == (503, "1")
        assert act(port, OBS[0].tolist())[0] == 200
