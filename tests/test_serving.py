import asyncio
import http.client
import io
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import BC, DBC, Demonstrations, DiffusionGuide, Network, Policy, Training, fit
from diffclone.cli.serve import Serve
from diffclone.deploy import server as serving
from diffclone.deploy.monitor import Monitor
from diffclone.deploy.server import JSON, NPY, Server, is_loopback, serve_in_thread
from diffclone.errors import InvalidSettings, UnknownMember
from diffclone.fit import FitOptions
from diffclone.methods import IBC
from diffclone.rng import Rng
from diffclone.training.guide import TrainedGuide
from diffclone.training.runs import train_run

RNG = np.random.default_rng(0)
OBS = RNG.uniform(-1, 1, (200, 3)).astype(np.float32)
BOUNDS = [[-0.5, -0.5], [0.5, 0.4]]
DEMOS = Demonstrations.from_arrays(OBS, OBS[:, :2], episode_ends=[200], meta={"action_bounds": BOUNDS})
METHOD = BC(training=Training(updates=50, batch=32), network=Network(width=16, depth=2))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return fit(METHOD, DEMOS, device="cpu")


@pytest.fixture(scope="module")
def port(policy: Policy) -> Iterator[int]:
    with serve_in_thread(Server(policy, timeout=5.0)) as found:
        yield found


Answer = tuple[int, dict[str, str], bytes]


def request(port: int, verb: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request(verb, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    response = client.getresponse()
    answer = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    client.close()
    return answer


def act(port: int, observation: Any, **headers: str) -> tuple[int, Any]:
    status, _, body = request(
        port, "POST", "/act", json.dumps({"observation": observation}).encode(), content_type=JSON, **headers
    )
    return status, json.loads(body)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def send_bytes(port: int, sent: bytes) -> bytes:
    """Send bytes and return everything the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


# Actions.


@pytest.mark.parametrize("rows", [0, slice(0, 1), slice(0, 7)])
def test_json_in_json_out(port: int, policy: Policy, rows: Any) -> None:
    status, answer = act(port, OBS[rows].tolist())
    assert status == 200
    assert set(answer) == {"action"}
    assert np.allclose(answer["action"], policy(OBS[rows]), atol=1e-6)


@pytest.mark.parametrize(
    "observation", [OBS[0], OBS[:7].astype(np.float64), np.asfortranarray(OBS[:4]), OBS[:3].astype(">f4")]
)
def test_npy_in_npy_out(port: int, policy: Policy, observation: Any) -> None:
    status, headers, body = request(port, "POST", "/act", npy(observation), content_type=NPY)
    assert (status, headers["content-type"]) == (200, NPY)
    action = np.load(io.BytesIO(body), allow_pickle=False)
    assert action.dtype == np.float32
    assert np.allclose(action, policy(observation.astype(np.float32)), atol=1e-6)


def test_integers_are_accepted(port: int, policy: Policy) -> None:
    assert np.allclose(act(port, [1, 0, -1])[1]["action"], policy(np.array([1.0, 0, -1])), atol=1e-6)


def test_health_and_about(port: int, policy: Policy) -> None:
    assert json.loads(request(port, "GET", "/health")[2]) == {"status": "ok"}
    about = json.loads(request(port, "GET", "/about?query")[2])
    assert about["method"] == "bc"
    assert (about["observation_size"], about["action_size"]) == (3, 2)
    assert np.allclose(about["bounds"], BOUNDS)
    assert about["fingerprint"] == DEMOS.fingerprint
    assert about["versions"]["torch"]
    assert about["member"] == {"seed": 0}


def test_a_connection_serves_many_requests_also_after_an_error(port: int, policy: Policy) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for body, expected in ((b"{", 400), (json.dumps({"observation": OBS[1].tolist()}).encode(), 200)) * 5:
        client.request("POST", "/act", body, {"Content-Type": JSON})
        response = client.getresponse()
        assert response.status == expected
        response.read()
    client.close()


def test_sixteen_simultaneous_clients_get_their_own_actions(port: int, policy: Policy) -> None:
    expected = policy(OBS)

    def client(rows: list[int]) -> None:
        for row in rows:
            assert np.allclose(act(port, OBS[row].tolist())[1]["action"], expected[row], atol=1e-6)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client, np.array_split(np.arange(200), 16)))


def test_a_method_that_searches_for_its_action_is_served() -> None:
    policy = fit(IBC(training=Training(updates=2), network=Network(width=8, depth=1), samples=8), DEMOS, device="cpu")
    with serve_in_thread(Server(policy)) as port:
        assert np.shape(act(port, OBS[:5].tolist())[1]["action"]) == (5, 2)


# The monitor.


def test_the_scores_of_a_monitor_are_in_the_reply(policy: Policy) -> None:
    def monitor(obs: Any, action: Any) -> dict[str, Any]:
        return {"score": float(obs.sum()), "shape": list(action.shape)}

    with serve_in_thread(Server(policy, monitor)) as port:
        assert act(port, [1, 2, 3])[1]["monitor"] == {"score": 6.0, "shape": [2]}
        _, headers, _ = request(port, "POST", "/act", npy(OBS[:4]), content_type=NPY)
        assert json.loads(headers["monitor"])["shape"] == [4, 2]
        assert json.loads(request(port, "GET", "/about")[2])["monitor"] is True


def test_the_monitor_of_the_policy_is_used_by_default(policy: Policy) -> None:
    guide = DiffusionGuide(width=8, depth=1, steps=10)
    parts = {"guide": guide.init(policy.dims, Rng([0])["init"])}
    monitor = Monitor(TrainedGuide(DBC(guide=guide), policy.normaliser, lambda: parts))
    with serve_in_thread(Server(replace(policy, calibrated_monitor=monitor))) as port:
        for rows in (0, slice(0, 4)):
            answer = act(port, OBS[rows].tolist())[1]
            assert answer["monitor"] == monitor.score(OBS[rows], np.array(answer["action"], np.float32)).to_dict()


def test_an_error_in_the_monitor_is_an_error_reply(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    def monitor(obs: Any, action: Any) -> dict[str, Any]:
        raise RuntimeError("broken monitor")

    with caplog.at_level(logging.ERROR), serve_in_thread(Server(policy, monitor)) as port:
        status, answer = act(port, OBS[0].tolist())
        assert (status, answer) == (500, {"error": "the policy failed; see the server log."})
        assert request(port, "GET", "/health")[0] == 200
    assert "broken monitor" in caplog.text


def test_an_action_that_is_not_finite_is_not_sent() -> None:
    lost = fit(METHOD, DEMOS, device="cpu")
    with torch.no_grad():
        next(lost.net.parameters()).fill_(float("nan"))
    with serve_in_thread(Server(lost)) as port:
        status, answer = act(port, OBS[0].tolist())
    assert status == 500
    assert "not finite" in answer["error"]


# Invalid bodies.

INVALID_JSON: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"observation"',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b'{"observation": ' + b"[" * 100_000,
    b'{"observation": {"0": 1}}',
    b'{"act": [1, 2, 3]}',
    b'{"observation": null}',
    b'{"observation": 1}',
    b'{"observation": []}',
    b'{"observation": [[]]}',
    b'{"observation": [1, 2]}',
    b'{"observation": [1, 2, 3, 4]}',
    b'{"observation": [[1, 2, 3], [1, 2]]}',
    b'{"observation": [[1, 2, 3], 4]}',
    b'{"observation": [[[1, 2, 3]]]}',
    b'{"observation": ["1", "2", "3"]}',
    b'{"observation": "abc"}',
    b'{"observation": [true, false, true]}',
    b'{"observation": [1, null, 3]}',
    b'{"observation": [NaN, 0, 0]}',
    b'{"observation": [0, Infinity, 0]}',
    b'{"observation": [1e999, 0, 0]}',
    b'{"observation": [1e300, 0, 0]}',
    b'{"observation": [1' + b"0" * 400 + b", 0, 0]}",
    b'{"observation": [1' + b"0" * 9000 + b", 0, 0]}",
    b'{"observation": ["' + b"a" * 1_000_000 + b'"' + b', ""' * 700_000 + b"]}",
]


@pytest.mark.parametrize("body", INVALID_JSON, ids=range(len(INVALID_JSON)))
def test_invalid_json_bodies_give_one_line(port: int, body: bytes) -> None:
    status, _, answer = request(port, "POST", "/act", body, content_type=JSON)
    assert status == 400
    error = json.loads(answer)["error"]
    assert error
    assert "\n" not in error
    assert len(error) < 200


def npy_with_header(shape: str, descr: str = "'<f4'", content: bytes = b"\0" * 12) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


INVALID_NPY: list[bytes] = [
    b"",
    b"\x93NUMPY",
    npy(OBS[0])[:-1],
    npy(OBS[0]) + b"\0",
    npy(OBS[0])[:20],
    npy(OBS[:, :2]),
    npy(OBS[None, :2]),
    npy(OBS[:0]),
    npy(np.array(["a", "b", "c"])),
    npy(np.array([True, False, True])),
    npy(np.array([1j, 0, 0])),
    npy(np.array([np.nan, 0, 0])),
    npy(np.zeros(3, [("a", "f4")])),
    npy_with_header("(3,)", "'|O'"),
    npy_with_header("(1000000000000, 3)"),
    npy_with_header("(-1, -3)"),
    npy_with_header("(0, 1" + "0" * 40 + ")", content=b""),
    npy_with_header("(3"),
    npy_with_header("(" * 300 + "3" + ")" * 300),
    npy_with_header("(__import__('os').abort(),)"),
    npy_with_header("(3,)", "'<f4', 'more': 1"),
    npy_with_header("(3,)", "'<M8[s]'"),
]


@pytest.mark.parametrize("body", INVALID_NPY, ids=range(len(INVALID_NPY)))
def test_invalid_npy_bodies_give_one_line(port: int, body: bytes) -> None:
    status, _, answer = request(port, "POST", "/act", body, content_type=NPY)
    assert status == 400
    assert "\n" not in json.loads(answer)["error"]


def test_nothing_is_unpickled(port: int, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "executed",))

    file = io.BytesIO()
    np.save(file, np.array([Evil()] * 3, dtype=object), allow_pickle=True)
    assert request(port, "POST", "/act", file.getvalue(), content_type=NPY)[0] == 400
    assert not (tmp_path / "executed").exists()


def test_mutated_bodies_never_stop_the_server(port: int) -> None:
    rng = np.random.default_rng(1)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    for kind, whole in ((NPY, npy(OBS[:2])), (JSON, json.dumps({"observation": OBS[0].tolist()}).encode())):
        for _ in range(300):
            body = bytearray(whole)
            for place in rng.integers(len(body), size=rng.integers(1, 4)):
                body[place] = rng.integers(256)
            client.request("POST", "/act", bytes(body), {"Content-Type": kind})
            response = client.getresponse()
            assert response.status in (200, 400)
            response.read()
    client.close()


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


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"hello\r\n\r\n", b"400"),
        (b"GET /health HTTP/3\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"POST /act HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /act HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", b"400"),
        (b"POST /act HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", b"400"),
        (b"POST /act HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", b"400"),
        (b"POST /act HTTP/1.1\r\nContent-Length: 1" + b"0" * 5000 + b"\r\n\r\n", b"413"),
        (b"POST /act HTTP/1.1\r\nContent-Length: 4194305\r\n\r\n", b"413"),
        (b"POST /act HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"GET /health HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /health HTTP/1.0\r\n\r\n", b"200"),
    ],
)
def test_malformed_requests(port: int, sent: bytes, expected: bytes) -> None:
    answer = send_bytes(port, sent)
    assert answer.startswith(b"HTTP/1.1 " + expected)
    assert b"Connection: close" in answer


def test_an_incomplete_request_gets_no_reply(port: int) -> None:
    assert send_bytes(port, b"POST /act HTTP/1.1\r\nContent-Length: 50\r\n\r\n{") == b""
    assert request(port, "GET", "/health")[0] == 200


def test_a_large_body_is_refused_before_it_is_read(port: int) -> None:
    status, _, body = request(port, "POST", "/act", b" " * (serving.MAX_BODY_BYTES + 1), content_type=JSON)
    assert status == 413
    assert json.loads(body)["error"] == f"the body exceeds {serving.MAX_BODY_BYTES} bytes."


def test_expect_100_continue(port: int) -> None:
    body = json.dumps({"observation": OBS[0].tolist()}).encode()
    head = f"POST /act HTTP/1.1\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert b"200 OK" in client.recv(1000)


def test_slow_clients_time_out_and_do_not_delay_others(policy: Policy) -> None:
    with serve_in_thread(Server(policy, timeout=0.6)) as port:
        begun = time.monotonic()
        silent = socket.create_connection(("127.0.0.1", port), timeout=10)
        slow = socket.create_connection(("127.0.0.1", port), timeout=10)
        slow.sendall(b"POST /act HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
        for _ in range(4):  # each byte arrives in time, the request does not
            slow.sendall(b" ")
            assert act(port, OBS[0].tolist())[0] == 200
            time.sleep(0.2)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")
        assert silent.recv(1000) == b""
        assert time.monotonic() - begun < 3
        slow.close()
        silent.close()


def test_too_many_clients(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 2)
    with serve_in_thread(Server(policy)) as port:
        held = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3)]
        assert b"503" in held[2].recv(1000)
        for client in held:
            client.close()
        time.sleep(0.2)
        assert request(port, "GET", "/health")[0] == 200


# The token.


def test_a_token_is_required(policy: Policy) -> None:
    with serve_in_thread(Server(policy, token="häring")) as port:
        assert request(port, "GET", "/health")[0] == 200
        for sent in ("", "Bearer", "Bearer wrong", "häring", "Bearer haring"):
            assert act(port, OBS[0].tolist(), authorization=sent)[0] == 401
            assert request(port, "GET", "/about", authorization=sent)[0] == 401
        right = "Bearer häring".encode().decode("latin-1")
        assert act(port, OBS[0].tolist(), authorization=right)[0] == 200
        assert request(port, "GET", "/about", authorization=right)[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.7"])
def test_other_addresses_need_a_token(policy: Policy, host: str) -> None:
    with pytest.raises(InvalidSettings, match=r"other machines can reach .* add a --token"):
        asyncio.run(Server(policy).start(host, 0))


def test_addresses() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    with pytest.raises(InvalidSettings, match="is not an address of this machine"):
        is_loopback("no such host")


def test_errors_at_the_start(policy: Policy, port: int) -> None:
    with pytest.raises(InvalidSettings, match=f"cannot listen on 127.0.0.1 port {port} .*Choose another --port"):
        asyncio.run(Server(policy).start("127.0.0.1", port))
    with pytest.raises(InvalidSettings, match="the token is empty"):
        Server(policy, token=" ")
    with pytest.raises(InvalidSettings, match=r"2 members; serve one of them: Server\(policy\[0\]\)"):
        Server(policy.choose([0, 0]))


# The command.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train_run(folder, METHOD, DEMOS, FitOptions(seeds=(0, 1), device="cpu"))
    return folder


def test_a_member_that_does_not_exist(run: Path) -> None:
    with pytest.raises(UnknownMember, match="member 2 does not exist; the policy has members 0 to 1"):
        Serve(run, member=2).run()


def test_the_command_serves_until_interrupted(run: Path) -> None:
    code = (
        "import signal, sys; from pathlib import Path; from diffclone.cli.serve import Serve\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background processes of a shell ignore SIGINT
        "try: Serve(Path(sys.argv[1]), member=1, port=0).run()\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DIFFCLONE_TOKEN": "t"},
    )
    killer = threading.Timer(120, process.kill)
    killer.start()
    assert process.stderr is not None
    line = process.stderr.readline()
    port = int(line.split(":")[2].split("/")[0])
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", "/about", headers={"Authorization": "Bearer t"})
    assert json.loads(client.getresponse().read())["member"] == {"seed": 1}
    process.send_signal(signal.SIGINT)  # while a client is connected
    assert process.wait() == 130
    assert process.stderr.read() == ""
    killer.cancel()
    client.close()
