"""Clients for benchmarks/serving.py: as fast as they can, at a fixed rate, and hostile.

Clients of a load are coroutines of one process, so a latency includes the client's own work. At a fixed rate, a latency
counts from the moment at which the request was due, also if the client was late because of an earlier response.
"""

import asyncio
import io
import itertools
import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.http_servers import NPY

MAX_ROWS_SENT = 60_000
SLOW_CLIENTS = 64

Observations = npt.NDArray[np.float32]


def encode_request(content_type: str, obs: Observations) -> bytes:
    """Return the bytes of a request."""
    np.save(file := io.BytesIO(), obs)
    body = file.getvalue() if content_type == NPY else json.dumps({"observation": obs.tolist()}).encode()
    head = (
        f"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> int:
    """Send a request, read its response and return the status."""
    writer.write(sent)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head.split(b" ")[1])


def summary(seconds: npt.NDArray[np.float64], duration: float, refused: int) -> dict[str, Any]:
    """Return percentiles in milliseconds and responses per second; no numbers if clients were refused."""
    if refused or not len(seconds):
        return {"refused_clients": refused}
    names = {"p50": 50, "p99": 99, "max": 100}
    percentiles = {name: 1e3 * float(np.percentile(seconds, p)) for name, p in names.items()}
    return percentiles | {"per_second": len(seconds) / duration, "requests": len(seconds)}


async def measure_load(port: int, content_type: str, clients: int, seconds: float, obs: Observations) -> list[Any]:
    """Send requests one after another from each client. Return seconds per response, None for a refused client."""
    requests = [encode_request(content_type, row) for row in obs[:100]]

    async def client(until: float) -> list[float] | None:
        times: list[float] = []
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for sent in itertools.cycle(requests):
                if (start := time.perf_counter()) > until:
                    break
                if await exchange(reader, writer, sent) != 200:
                    return None
                times.append(time.perf_counter() - start)
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        return times

    until = time.perf_counter() + seconds
    return await asyncio.gather(*(client(until) for _ in range(clients)))


def summarise_loads(turns: list[list[list[float] | None]], seconds: float) -> dict[str, Any]:
    """Join the turns of one server at one number of clients. The first tenth of each client's turn is not counted."""
    clients = [client for turn in turns for client in turn]
    kept = [np.array(times[len(times) // 10 :]) for times in clients if times]
    refused = max(sum(client is None for client in turn) for turn in turns)
    return summary(np.concatenate([*kept, np.zeros(0)]), 0.9 * seconds * len(turns), refused)


async def measure_soak(
    port: int, pid: int, rate: float, clients: int, seconds: float, obs: Observations
) -> dict[str, Any]:
    """Send `rate` requests per second for `seconds`. Return latencies, and the server's memory over time."""
    requests = [encode_request(NPY, row) for row in obs[:100]]
    begin = time.perf_counter() + 0.5
    memory: list[float] = []

    async def client(number: int) -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        times: list[float] = []
        for turn in itertools.count():
            due = begin + (number + clients * turn) / rate
            if due > begin + seconds:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            status = await exchange(reader, writer, requests[turn % len(requests)])
            assert status == 200, status
            times.append(time.perf_counter() - due)
        writer.close()
        return times

    async def watch() -> None:
        while True:
            memory.append(resident_mib(pid))
            await asyncio.sleep(max(1.0, seconds / 600))

    watching = asyncio.create_task(watch())
    times = np.concatenate(await asyncio.gather(*map(client, range(clients))))
    watching.cancel()
    tenth = max(1, len(memory) // 10)
    first, last = np.median(memory[tenth : 2 * tenth] or memory), np.median(memory[-tenth:])
    over = float(np.mean(times > 0.1))
    return summary(times, seconds, 0) | {
        "over_100_ms": over,
        "clients": clients,
        "rate": rate,
        "memory_mib": [float(first), float(last)],
    }


def resident_mib(pid: int) -> float:
    """Return the memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def be_hostile(port: int, size: int) -> None:
    """Pipeline without end, send 60,000 rows again and again, and keep 64 slow requests open."""
    asyncio.run(_be_hostile(port, size))


async def _be_hostile(port: int, size: int) -> None:
    one, many = (encode_request(NPY, np.zeros((rows, size), np.float32)) for rows in (1, MAX_ROWS_SENT))
    most = encode_request(NPY, np.zeros((4096, size), np.float32))

    async def pipeline() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            writer.write(one * 200)
            await writer.drain()
            await reader.read(2**20)

    async def large(sent: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while True:
            await exchange(reader, writer, sent)

    async def slow(start: bytes) -> None:
        while True:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(start)
            with suppress(ConnectionError):
                for _ in range(20):
                    await asyncio.sleep(1.0)
                    writer.write(b"a")
                    await writer.drain()
            writer.close()

    slow_clients = [slow(one[: 20 if number % 2 else -20]) for number in range(SLOW_CLIENTS)]
    await asyncio.gather(pipeline(), large(many), large(most), *slow_clients, return_exceptions=True)
