import errno
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command, assert_error
from diffclone.cli.serve import Serve
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving import access
from diffclone.deploy.serving.access import is_loopback
from diffclone.errors import InvalidSettings, UnknownMember, install_command
from diffclone.fit import FitOptions
from diffclone.training.runs import train_run
from serving_examples import DEMOS, METHOD, OBS, act, connect, read_all, request, trained_policy

# Host and Origin.


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost", 200),
        ("LOCALHOST:{port}", 200),
        ("[::1]:{port}", 200),
        ("192.168.1.7:{port}", 200),  # an address cannot come from rebinding
        ("robot.local:{port}", 200),
        ("evil.example:{port}", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("", 403),
    ],
)
def test_the_host_is_checked(host: str, expected: int) -> None:
    with serve_in_thread(Server(trained_policy(), allow_hosts=["robot.local"])) as port:
        for path in ("/about", "/health", "/metrics", "/docs"):
            status, _, body = request(port, "GET", path, host=host.format(port=port))
            assert status == expected
        assert status == 200 or "--allow-host NAME" in json.loads(body)["error"]
        assert act(port, OBS[0].tolist(), host=host.format(port=port))[0] == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:{port}", 200),  # its own page
        ("http://127.0.0.1:1", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("https://lab.example", 200),
    ],
)
def test_requests_from_web_pages_are_refused(origin: str, expected: int) -> None:
    with serve_in_thread(Server(trained_policy(), allow_origins=["https://lab.example"])) as port:
        named = origin.format(port=port)
        assert act(port, OBS[0].tolist(), origin=named)[0] == expected
        status, headers, body = request(port, "GET", "/about", origin=named)
        assert status == expected
        allowed = named if origin == "https://lab.example" else None
        assert headers.get("access-control-allow-origin") == allowed
        assert status == 200 or "--allow-origin ORIGIN" in json.loads(body)["error"]


def test_an_allowed_page_may_send_json_and_a_token() -> None:
    with serve_in_thread(Server(trained_policy(), token="t", allow_origins=["https://lab.example"])) as port:
        asks = {"access_control_request_method": "POST", "access_control_request_headers": "authorization,content-type"}
        status, headers, _ = request(port, "OPTIONS", "/act", None, origin="https://lab.example", **asks)
        assert status == 200
        assert headers["access-control-allow-origin"] == "https://lab.example"
        assert "POST" in headers["access-control-allow-methods"]
        assert {"authorization", "content-type"} <= set(headers["access-control-allow-headers"].lower().split(", "))
        assert request(port, "OPTIONS", "/act", None, origin="https://evil.example", **asks)[0] == 403
        assert act(port, OBS[0].tolist(), origin="https://lab.example")[0] == 401


def test_everything_can_be_opened() -> None:
    with serve_in_thread(Server(trained_policy(), allow_hosts=["*"], allow_origins=["*"])) as port:
        assert act(port, OBS[0].tolist(), host="any.example", origin="https://any.example")[0] == 200


@pytest.mark.parametrize(
    ("hosts", "origins", "message"),
    [
        (["robot.local:80"], [], "--allow-host robot.local:80 is not a name"),
        (["http://robot"], [], "--allow-host http://robot is not a name"),
        ([], ["lab.example"], "--allow-origin lab.example is not an origin"),
        ([], ["https://lab.example/page"], "is not an origin; expected e.g. https://example.org:8080"),
    ],
)
def test_invalid_names(hosts: list[str], origins: list[str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=re.escape(message)):
        Server(trained_policy(), allow_hosts=hosts, allow_origins=origins)


# The token and the address.


def test_a_token_is_required() -> None:
    with serve_in_thread(Server(trained_policy(), token="häring")) as port:
        for path in ("/health", "/docs", "/openapi.json"):
            assert request(port, "GET", path)[0] == 200
        for sent in ("", "Bearer", "Bearer wrong", "häring", "Bearer haring"):
            assert act(port, OBS[0].tolist(), authorization=sent)[0] == 401
            assert request(port, "GET", "/about", authorization=sent)[0] == 401
            assert request(port, "GET", "/metrics", authorization=sent)[0] == 401
        right = "Bearer häring".encode().decode("latin-1")
        assert act(port, OBS[0].tolist(), authorization=right)[0] == 200
        assert request(port, "GET", "/about", authorization=right)[0] == 200


def test_the_token_is_checked_before_the_body_is_read() -> None:
    with serve_in_thread(Server(trained_policy(), token="t")) as port, connect(port) as client:
        client.sendall(b"POST /act HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 99\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.7"])
def test_other_addresses_need_a_token(host: str) -> None:
    with (
        pytest.raises(InvalidSettings, match=r"other machines can reach .* add a --token"),
        serve_in_thread(Server(trained_policy()), host),
    ):
        pass


def test_addresses() -> None:
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    with pytest.raises(InvalidSettings, match="is not an address of this machine"):
        is_loopback("no such host")


def test_a_protocol_that_the_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without_ipv6(address: Any, *, family: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "no IPv6")
        return create(address, family=family, **options)

    addresses = {"localhost": ["::1", "127.0.0.1"], "::1": ["::1"]}
    monkeypatch.setattr(socket, "create_server", without_ipv6)
    monkeypatch.setattr(access, "addresses_of", addresses.__getitem__)
    (found,) = access.listen("localhost", 0, backlog=1)
    found.close()
    with pytest.raises(InvalidSettings, match=r"cannot listen on ::1 port 0: .*\. Choose another --host"):
        access.listen("::1", 0, backlog=1)


def test_errors_at_the_start() -> None:
    policy = trained_policy()
    with (
        serve_in_thread(Server(policy)) as port,
        pytest.raises(
            InvalidSettings,
            match=f"^cannot listen on 127.0.0.1 port {port}: {os.strerror(errno.EADDRINUSE)}. Choose another --port",
        ),
        serve_in_thread(Server(policy), port=port),
    ):
        pass
    with pytest.raises(InvalidSettings, match="port 99999: ports are 0 to 65535"):
        access.listen("127.0.0.1", 99999, backlog=1)
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


@pytest.mark.parametrize("package", ["starlette", "uvicorn", "httptools"])
def test_a_missing_package(run: Path, package: str, diffclone: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("diffclone.deploy.serv")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] in ("starlette", "uvicorn", "httptools")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    hint = re.escape(install_command("serve"))
    assert_error(diffclone("serve", run), f"the server needs the package {package}. Try: {hint}")


SLOW = """
import sys, time; from diffclone.policy import Policy; from diffclone.cli.main import main
act = Policy.__call__
def slow(policy, obs):
    time.sleep(float(sys.argv[1]))
    return act(policy, obs)
Policy.__call__ = slow
main(["serve", sys.argv[2], "--member", "1", "--port", "0"])
"""


@contextmanager
def serving(run: Path, delay: float = 0.0) -> Generator[tuple[Any, int], None, None]:
    """Run the command in a process of its own, with a policy that takes `delay` seconds. Yield the process and port."""
    process = subprocess.Popen(
        ["/usr/bin/env", sys.executable, "-c", SLOW, str(delay), str(run)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "DIFFCLONE_TOKEN": "t"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    killer = threading.Timer(120, process.kill)
    killer.start()
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        yield process, int(line.split(":")[2].split("/")[0])
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        killer.cancel()


def test_ctrl_c_ends_the_command(run: Path) -> None:
    with serving(run) as (process, port):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        client.request("GET", "/about", headers={"Authorization": "Bearer t"})
        assert json.loads(client.getresponse().read())["member"] == {"seed": 1}
        process.send_signal(signal.SIGINT)  # while a client is connected
        assert process.wait(60) == 130
        assert process.stderr.read() == "diffclone: interrupted.\n"
        client.close()


def test_sigterm_finishes_the_work_in_flight(run: Path) -> None:
    with serving(run, delay=1.0) as (process, port):
        idle, answers = connect(port), []
        clients = [
            threading.Thread(target=lambda: answers.append(act(port, OBS[0].tolist(), authorization="Bearer t")))
            for _ in range(5)
        ]
        for client in clients:
            client.start()
        time.sleep(0.5)  # the first is in the policy, the others wait
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        for client in clients:
            client.join()
        assert [status for status, _ in answers] == [200] * 5
        assert np.ptp([answer["action"] for _, answer in answers], 0).max() < 1e-6
        assert process.stderr.read() == ""
        assert idle.recv(10) == b""
        idle.close()
