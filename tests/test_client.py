import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import pytest

from diffclone.deploy.client import AsyncPolicyClient, PolicyClient, Reply, ServerRefused
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.errors import DiffcloneError, InvalidSettings
from serving_examples import OBS, trained_policy

TOKEN = "häring"


def monitor(obs: Any, action: Any) -> dict[str, Any]:
    return {"sum": obs.sum(1), "alarm": {"sum": obs.sum(1) > 0}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_in_thread(Server(trained_policy(), monitor, token=TOKEN)) as port:
        yield f"http://127.0.0.1:{port}"


Ask = Callable[..., Any]


def ask_async(url: str, method: str, *arguments: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with AsyncPolicyClient(url, **options) as client:
            return await getattr(client, method)(*arguments)

    return asyncio.run(main())


def ask_sync(url: str, method: str, *arguments: Any, **options: Any) -> Any:
    with PolicyClient(url, **options) as client:
        return getattr(client, method)(*arguments)


both = pytest.mark.parametrize("ask", [ask_sync, ask_async])


@both
@pytest.mark.parametrize("rows", [0, slice(0, 1), slice(0, 7)])
def test_numpy_in_numpy_out(url: str, ask: Ask, rows: Any) -> None:
    action = ask(url, "__call__", OBS[rows], token=TOKEN)
    assert action.dtype == np.float32
    assert np.allclose(action, trained_policy()(OBS[rows]), atol=1e-6)
    reply = ask(url, "act", OBS[rows].tolist(), token=TOKEN)
    assert isinstance(reply, Reply)
    assert np.allclose(reply.action, action, atol=1e-6)
    assert reply.monitor is not None
    assert set(reply.monitor) == {"sum", "alarm.sum"}
    assert np.allclose(reply.monitor["sum"], OBS[rows].sum(-1))
    assert np.array_equal(reply.monitor["alarm.sum"], OBS[rows].sum(-1) > 0)


@both
def test_about(url: str, ask: Ask) -> None:
    assert ask(url, "about", token=TOKEN)["observation_size"] == 3


@both
def test_a_server_without_a_monitor(ask: Ask) -> None:
    with serve_in_thread(Server(trained_policy())) as port:
        assert ask(f"http://localhost:{port}/", "act", OBS[0]).monitor is None


@both
@pytest.mark.parametrize(
    ("observation", "token", "status", "message"),
    [
        (OBS[0], "wrong", 401, "the server answered 401: the header `Authorization"),
        ([np.nan, 0, 0], TOKEN, 400, "the observation contains NaN or infinity"),
        ([1.0, 2.0], TOKEN, 400, r"expected numbers, \(3\) or \(rows, 3\)"),
        (np.zeros((5000, 3)), TOKEN, 413, "at most 4096 are allowed"),
    ],
)
def test_errors_of_the_server(url: str, ask: Ask, observation: Any, token: str, status: int, message: str) -> None:
    with pytest.raises(ServerRefused, match=message) as refused:
        ask(url, "act", observation, token=token)
    assert refused.value.status == status
    assert isinstance(refused.value, DiffcloneError)


def test_a_connection_stays_usable_after_an_error(url: str) -> None:
    with PolicyClient(url, token=TOKEN) as client:
        for _ in range(3):
            with pytest.raises(ServerRefused):
                client([1.0])
            assert client(OBS[0]).shape == (2,)


@both
def test_no_server(ask: Ask) -> None:
    with serve_in_thread(Server(trained_policy())) as port:
        pass
    with pytest.raises(ServerRefused, match=f"no response of a policy server at 127.0.0.1 port {port} ") as refused:
        ask(f"http://127.0.0.1:{port}", "act", OBS[0])
    assert refused.value.status is None


@both
@pytest.mark.parametrize(
    "address", ["127.0.0.1:8765", "https://127.0.0.1", "http://", "http://h:99999", "http://h/act"]
)
def test_invalid_addresses(ask: Ask, address: str) -> None:
    with pytest.raises(InvalidSettings, match="is not the address of a policy server; expected"):
        ask(address, "about")


@both
def test_invalid_observations(url: str, ask: Ask) -> None:
    with pytest.raises(InvalidSettings, match="the observation is an array of <U1; expected numbers"):
        ask(url, "act", ["a"])


@both
def test_a_server_that_takes_too_long(ask: Ask) -> None:
    def slow(obs: Any, action: Any) -> dict[str, Any]:
        time.sleep(1.0)
        return {}

    with serve_in_thread(Server(trained_policy(), slow)) as port, pytest.raises(ServerRefused, match="no response"):
        ask(f"http://127.0.0.1:{port}", "act", OBS[0], timeout=0.2)


@contextlib.contextmanager
def other_server(response: bytes) -> Generator[str, None, None]:
    """Yield the address of a server that answers one request with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(response)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("method", ["act", "about"])
@pytest.mark.parametrize(
    ("response", "message"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "no Content-Length"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "no Content-Length"),
        (b"SSH-2.0-OpenSSH\r\nContent-Length: 0\r\n\r\n", "no response of a policy server"),
    ],
)
def test_responses_without_a_length_or_a_status(method: str, response: bytes, message: str) -> None:
    arguments = [OBS[0]] if method == "act" else []
    with other_server(response) as address, pytest.raises(ServerRefused, match=message):
        ask_async(address, method, *arguments)


@both
@pytest.mark.parametrize("body", [b"", b"hi", b"3", b'"hi"', b"\xff"])
def test_a_description_of_another_server(ask: Ask, body: bytes) -> None:
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with other_server(response) as address, pytest.raises(ServerRefused, match="does not describe a policy") as refused:
        ask(address, "about")
    assert refused.value.status == 200


@both
def test_a_token_that_was_read_from_a_file(url: str, ask: Ask) -> None:
    assert ask(url, "about", token=f"{TOKEN}\r\n")["observation_size"] == 3
    with pytest.raises(InvalidSettings, match=r"the token contains '\\n', which no HTTP header can"):
        ask(url, "about", token="one\ntwo")


def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    with serve_in_thread(Server(trained_policy(), timeout=0.2)) as port:
        url = f"http://127.0.0.1:{port}"

        async def main() -> None:
            async with AsyncPolicyClient(url) as client:
                for _ in range(3):
                    assert (await client(OBS[0])).shape == (2,)
                    await asyncio.sleep(0.6)

        asyncio.run(main())
        with PolicyClient(url) as client:
            for _ in range(3):
                assert client(OBS[0]).shape == (2,)
                time.sleep(0.6)


def test_a_cancelled_call_does_not_mix_up_responses() -> None:
    release = threading.Event()

    def wait(obs: Any, action: Any) -> dict[str, Any]:
        release.wait(20)
        return {}

    async def main(url: str) -> None:
        async with AsyncPolicyClient(url) as client:
            call = asyncio.create_task(client(OBS[0]))
            await asyncio.sleep(0.2)
            call.cancel()
            release.set()
            assert np.allclose(await client(OBS[1]), trained_policy()(OBS[1]), atol=1e-6)

    with serve_in_thread(Server(trained_policy(), wait)) as port:
        asyncio.run(main(f"http://127.0.0.1:{port}"))


def test_concurrent_calls_of_one_client(url: str) -> None:
    async def main() -> Any:
        async with AsyncPolicyClient(url, token=TOKEN) as client:
            return await asyncio.gather(*(client(OBS[row]) for row in range(50)))

    assert np.allclose(asyncio.run(main()), trained_policy()(OBS[:50]), atol=1e-6)


def test_the_client_imports_numpy_alone() -> None:
    code = (
        "import sys, diffclone.deploy.client; assert not {'torch', 'starlette', 'uvicorn', 'httpx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
