"""A server of a policy with chunks and history: sessions of clients, repeated steps, limits and the monitor."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclone import DBC, Demonstrations, DiffusionGuide, Network, Policy, Training, fit
from diffclone.deploy.calibration import calibrate
from diffclone.deploy.memory import Chunks
from diffclone.deploy.monitor import Monitor

pytest.importorskip("uvicorn")

from diffclone.deploy.client import AsyncPolicyClient, PolicyClient, ServerRefused
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving import sessions
from diffclone.deploy.serving.bodies import JSON, RequestError
from diffclone.deploy.serving.sessions import Sessions
from serving_examples import request

RNG = np.random.default_rng(0)
STEPS = RNG.normal(size=(240, 2)).astype(np.float32)
DEMOS = Demonstrations.from_arrays(STEPS, np.sin(STEPS), episode_ends=np.arange(12, 241, 12))
BRIEF = Training(updates=40, lr=1e-3, batch=32)


@pytest.fixture(scope="module")
def policy() -> Policy:
    guide = DiffusionGuide(training=BRIEF, width=16, steps=100)
    method = DBC(training=BRIEF, network=Network(width=16, depth=1), guide=guide, horizon=4, execute=3, history=2)
    return fit(method, DEMOS, device="cpu")


@pytest.fixture(scope="module")
def port(policy: Policy) -> Iterator[int]:
    with serve_in_thread(Server(policy)) as found:
        yield found


def connect(port: int) -> PolicyClient:
    return PolicyClient(f"http://127.0.0.1:{port}")


def test_a_client_plays_the_chunks_of_a_session(policy: Policy, port: int) -> None:
    with connect(port) as client, connect(port) as other:
        mine, theirs = policy.session(), policy.session()
        for k in range(7):  # two clients take turns
            np.testing.assert_allclose(client(STEPS[k]), mine(STEPS[k]), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(other(STEPS[50 + k]), theirs(STEPS[50 + k]), rtol=1e-5, atol=1e-6)
        client.reset()
        mine.reset()
        for k in range(4):
            np.testing.assert_allclose(client(STEPS[k]), mine(STEPS[k]), rtol=1e-5, atol=1e-6)
        assert client.about()["chunks"] == {"horizon": 4, "execute": 3, "history": 2, "ensemble": None}


def test_a_session_can_be_a_batch_of_robots(policy: Policy, port: int) -> None:
    with connect(port) as client:
        session = policy.session()
        for k in range(5):
            rows = STEPS[10 * k : 10 * k + 6]
            np.testing.assert_allclose(client(rows), session(rows), rtol=1e-5, atol=1e-6)
        with pytest.raises(ServerRefused, match="began with 6 rows, not 5"):
            client(STEPS[:5])


def test_sessions_are_answered_by_one_call(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    server = Server(policy)
    act = server.act

    def count(obs: Any) -> Any:
        rows.append(len(obs))
        return act(obs)

    monkeypatch.setattr(server, "act", count)

    async def run(port: int) -> None:
        clients = [AsyncPolicyClient(f"http://127.0.0.1:{port}") for _ in range(8)]
        for k in range(6):
            await asyncio.gather(*(client(STEPS[k]) for client in clients))
        for client in clients:
            await client.close()

    with serve_in_thread(server) as port:
        asyncio.run(run(port))
    assert sum(rows) == 8 * 2, "six steps of eight clients need two chunks each"
    assert len(rows) < sum(rows)


def test_calls_at_the_same_time_and_a_reset_during_a_call_leave_a_usable_client(policy: Policy, port: int) -> None:
    async def run() -> None:
        async with AsyncPolicyClient(f"http://127.0.0.1:{port}") as client:
            for _ in range(3):  # the server refuses one of the two, or both are the same step
                await asyncio.gather(client(STEPS[0]), client(STEPS[0]), return_exceptions=True)
            await client(STEPS[1])
            call = asyncio.create_task(client(STEPS[2]))
            await asyncio.sleep(0)
            client.reset()
            await call
            session = policy.session()
            for k in range(5):
                np.testing.assert_allclose(await client(STEPS[k]), session(STEPS[k]), rtol=1e-5, atol=1e-6)

    asyncio.run(run())


def test_a_repeated_step_is_computed_from_the_memory_before_it(policy: Policy, port: int) -> None:
    with connect(port) as client:
        session = policy.session()
        for k in range(3):
            session(STEPS[k])
            first = client(STEPS[k])
            client._session.step -= 1  # as if the response had been lost  # pyright: ignore[reportPrivateUsage]
            assert np.array_equal(client(STEPS[k]), first)
        np.testing.assert_allclose(client(STEPS[3]), session(STEPS[3]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({}, 400, "this policy has a memory"),
        ({"X-Session": "a b", "X-Step": "0"}, 400, "up to 64 letters"),
        ({"X-Session": "a" * 65, "X-Step": "0"}, 400, "up to 64 letters"),
        ({"X-Session": "a", "X-Step": "-1"}, 400, "X-Step"),
        ({"X-Session": "a", "X-Step": "9" * 40}, 400, "X-Step"),
        ({"X-Session": "never", "X-Step": "3"}, 404, "the session never is unknown"),
        ({"X-Session": "late", "X-Step": "0"}, 200, "action"),
        ({"X-Session": "late", "X-Step": "2"}, 409, "the next step of the session late is 1"),
    ],
)
def test_wrong_headers_are_answered_in_one_line(port: int, headers: Any, status: int, message: str) -> None:
    found, _, body = request(port, "POST", "/act", b'{"observation": [0, 0]}', content_type=JSON, **headers)
    assert found == status
    assert message in body.decode()


def memory_of_one(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> Sessions:
    for name, value in limits.items():
        monkeypatch.setattr(sessions, name, value)

    async def call(windows: Any) -> Any:
        await asyncio.sleep(0)
        return np.zeros((len(windows), 8), np.float32), None

    return Sessions(Chunks(4, 3, 2), 2, 2, call)


def step(found: Sessions, name: str, number: int) -> Any:
    return found.act({"x-session": name, "x-step": str(number)}, np.zeros((1, 2), np.float32))


def test_the_number_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory_of_one(monkeypatch, MAX_SESSIONS=2)
    for name in ("a", "b", "a"):
        asyncio.run(step(found, name, 0))
    with pytest.raises(RequestError, match="2 sessions and no room"):
        asyncio.run(step(found, "c", 0))
    monkeypatch.setattr(sessions, "FULL_IDLE_SECONDS", -1.0)
    asyncio.run(step(found, "c", 0))
    assert list(found.known) == ["a", "c"], "only the oldest is forgotten for a new one"
    monkeypatch.setattr(sessions, "IDLE_SECONDS", -1.0)
    asyncio.run(step(found, "c", 0))
    assert list(found.known) == ["c"]
    with pytest.raises(RequestError, match="the session a is unknown"):
        asyncio.run(step(found, "a", 1))
    assert found.bytes == 0 or found.bytes == sum(session.bytes for session in found.known.values())


def test_the_memory_of_sessions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory_of_one(monkeypatch, MAX_SESSION_BYTES=150)
    asyncio.run(step(found, "a", 0))
    with pytest.raises(RequestError, match="no room"):
        asyncio.run(step(found, "b", 0))
    asyncio.run(step(found, "a", 0))


def test_scores_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory_of_one(monkeypatch)
    asyncio.run(step(found, "a", 0))
    without, original = found.bytes, found.call

    async def call(windows: Any) -> Any:
        return (await original(windows))[0], {"both": np.zeros(len(windows))}

    found.call = call
    for name in ("a", "b"):
        asyncio.run(step(found, name, 0))
    asyncio.run(step(found, "a", 1))
    assert found.bytes == 2 * (without + 8)


def test_two_steps_of_one_session_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    found = memory_of_one(monkeypatch)

    async def both() -> list[Any]:
        return await asyncio.gather(step(found, "a", 0), step(found, "a", 0), return_exceptions=True)

    first, second = asyncio.run(both())
    assert first[0].shape == (1, 2)
    assert isinstance(second, RequestError)
    assert "is being answered" in str(second)


def test_a_failed_call_leaves_the_memory_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    found, fails = memory_of_one(monkeypatch), [False, True, False]
    original = found.call

    async def call(windows: Any) -> Any:
        if fails.pop(0):
            raise RequestError(sessions.HTTPStatus.INTERNAL_SERVER_ERROR, "broken")
        return await original(windows)

    found.call = call
    for number in range(3):
        asyncio.run(step(found, "a", number))
    with pytest.raises(RequestError, match="broken"):
        asyncio.run(step(found, "a", 3))
    asyncio.run(step(found, "a", 3))
    assert found.known["a"].step == 3


def test_the_monitor_scores_windows_and_chunks(policy: Policy, tmp_path: Path) -> None:
    train, held_out = DEMOS.split(0.95)
    watched = calibrate(replace(policy, data={}), held_out, 0.1)
    assert train.num_episodes == 1
    monitor = watched.calibrated_monitor
    assert monitor is not None
    windows, chunks = np.zeros((5, 4)), np.zeros((5, 8))
    assert monitor.score(windows, chunks).both.shape == (5,)
    watched.save(tmp_path / "policy")
    loaded = Policy.load(tmp_path / "policy")
    assert np.array_equal(loaded.monitor(windows, chunks).both, monitor.score(windows, chunks).both)
    with serve_in_thread(Server(loaded)) as port, connect(port) as client:
        replies = [client.act(STEPS[k]) for k in range(4)]
    scores = [float(reply.monitor["both"]) for reply in replies if reply.monitor is not None]
    assert len(scores) == 4
    assert scores[0] == scores[1] == scores[2] != scores[3], "the score is that of the chunk that is played"
    window = np.concatenate([STEPS[0], STEPS[0]])
    expected = monitor.score(window, policy.plan(window.reshape(1, 2, 2)).reshape(-1))
    assert scores[0] == pytest.approx(float(expected.both), rel=1e-4)
    assert isinstance(monitor, Monitor)
