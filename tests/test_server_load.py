"""Slow, greedy or many clients do not delay others. The limits are generous: the machine may be busy.

`python -m benchmarks.serving --hostile` measures the same with tight numbers.
"""

import asyncio
import json
import resource
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from diffclone.deploy.client import AsyncPolicyClient, PolicyClient
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving.bodies import JSON, MAX_ROWS, NPY
from serving_examples import OBS, act, act_request, connect, npy, request, trained_policy

PROBES = 20
LIMIT = 2.0
"""Seconds that a request may take on a busy machine."""


def probe(port: int) -> float:
    """Return the longest of some requests for an action, each after /health and /metrics."""
    longest = 0.0
    with PolicyClient(f"http://127.0.0.1:{port}", timeout=60.0) as policy:
        for row in range(PROBES):
            start = time.monotonic()
            assert request(port, "GET", "/health")[0] == 200
            assert request(port, "GET", "/metrics")[0] == 200
            assert np.allclose(policy(OBS[row]), trained_policy()(OBS[row]), atol=1e-6)
            longest = max(longest, time.monotonic() - start)
    return longest


@contextmanager
def running(*works: Callable[[threading.Event], Any]) -> Generator[None, None, None]:
    """Run functions in threads while the block runs. They return when the event is set."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def slow_monitor(obs: Any, action: Any) -> dict[str, Any]:
    time.sleep(0.0005 * len(obs))
    return {"score": obs[:, 0]}


@pytest.mark.parametrize("sent", [act_request(), b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_pipelining_client(sent: bytes) -> None:
    with serve_in_thread(Server(trained_policy())) as port, connect(port) as client:
        client.settimeout(0.2)

        def send(stop: threading.Event) -> None:
            data = memoryview(sent * 2000)
            while not stop.is_set():
                with suppress(TimeoutError):
                    data = data[client.send(data) :] or memoryview(sent * 2000)

        def receive(stop: threading.Event) -> None:
            while not stop.is_set():
                with suppress(TimeoutError):
                    client.recv(2**20)

        with running(send, receive):
            time.sleep(0.3)
            assert probe(port) < LIMIT


@pytest.mark.parametrize("content_type", [JSON, NPY])
def test_clients_with_many_rows(content_type: str) -> None:
    with serve_in_thread(Server(trained_policy(), slow_monitor)) as port:

        def ask(rows: int) -> Callable[[threading.Event], None]:
            obs = np.tile(OBS, (rows // len(OBS) + 1, 1))[:rows].round(2)
            body = npy(obs) if content_type == NPY else json.dumps({"observation": obs.astype(float).tolist()}).encode()

            def work(stop: threading.Event) -> None:
                while not stop.is_set():
                    status = request(port, "POST", "/act", body, content_type=content_type)[0]
                    assert status == (200 if rows <= MAX_ROWS else 413)

            return work

        with running(ask(60_000), ask(2000), ask(2000)):
            time.sleep(0.3)
            assert probe(port) < LIMIT


def test_64_slow_clients() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=60.0)) as port:
        clients = [connect(port) for _ in range(96)]
        head, body = act_request().split(b"\r\n\r\n")
        for number, client in enumerate(clients):
            client.sendall((b"", head[:50], head + b"\r\n\r\n" + body[:5])[number % 3])
        assert probe(port) < LIMIT
        for client in clients:
            client.close()


def test_a_policy_that_takes_long_does_not_delay_health_and_metrics() -> None:
    called = threading.Event()

    def monitor(obs: Any, action: Any) -> dict[str, Any]:
        called.set()
        time.sleep(2.0)
        return {}

    with serve_in_thread(Server(trained_policy(), monitor)) as port, running(lambda stop: act(port, OBS[0].tolist())):
        assert called.wait(20)
        start = time.monotonic()
        for path in ("/health", "/metrics", "/about", "/docs"):
            assert request(port, "GET", path)[0] == 200
        assert time.monotonic() - start < 1.5


def test_256_simultaneous_clients_get_their_own_actions() -> None:
    expected = trained_policy()(OBS)

    async def main(port: int) -> None:
        async with AsyncPolicyClient(f"http://127.0.0.1:{port}", timeout=60.0) as policy:
            actions = await asyncio.gather(*(policy(OBS[k % 200]) for k in range(256)))
        assert np.allclose(actions, expected[np.arange(256) % 200], atol=1e-6)

    with serve_in_thread(Server(trained_policy())) as port:
        asyncio.run(main(port))
        metrics = request(port, "GET", "/metrics")[2].decode()
    calls = int(metrics.split("diffclone_call_rows_count ")[1].split()[0])
    assert calls < 200, "simultaneous requests were not answered together"


@pytest.mark.slow
def test_memory_does_not_grow() -> None:
    async def main(port: int, seconds: float) -> int:
        async with AsyncPolicyClient(f"http://127.0.0.1:{port}", timeout=60.0) as policy:

            async def client(row: int) -> int:
                count, end = 0, time.monotonic() + seconds
                while time.monotonic() < end:
                    reply = await policy.act(OBS[row : row + 1 + count % 3])
                    assert reply.monitor is not None
                    count += 1
                return count

            return sum(await asyncio.gather(*(client(row) for row in range(16))))

    with serve_in_thread(Server(trained_policy(), lambda obs, action: {"score": obs[:, 0]})) as port:
        asyncio.run(main(port, 5))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        requests = asyncio.run(main(port, 30))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert requests > 1000
    assert grown < 10_000, f"{grown} KiB in {requests} requests"
