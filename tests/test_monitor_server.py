"""A server whose monitor follows the episodes of its clients, with the calibrated window and band."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from diffclone import BC, Demonstrations, Network, Policy, Training, fit
from diffclone.deploy.calibration import Rule, calibrate
from diffclone.deploy.monitor import EpisodeMonitor
from diffclone.deploy.monitors import RNDScore
from diffclone.deploy.monitors.base import PairScore

pytest.importorskip("uvicorn")

from diffclone.deploy.client import PolicyClient, ServerRefused
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving import sessions
from diffclone.deploy.serving.bodies import JSON
from serving_examples import request

STEPS = np.random.default_rng(0).normal(size=(240, 2)).astype(np.float32)
DEMOS = Demonstrations.from_arrays(STEPS, np.sin(STEPS), episode_ends=np.arange(12, 241, 12))
STRANGE = np.linspace(0, 20, 12)[:, None].astype(np.float32) * STEPS[:12]


def make_policy(*scores: str | PairScore[Any], **chunks: Any) -> Policy:
    method = BC(training=Training(updates=20, batch=32), network=Network(width=8, depth=1), **chunks)
    train, held_out = DEMOS.split(0.95)
    rule = Rule(("nearest", *scores), threshold="band", window=3)
    return calibrate(fit(method, train, device="cpu", suggest=False), held_out, 0.1, rule=rule, training=train)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return make_policy(RNDScore(Training(updates=20), Network(width=8, depth=1), 4))


@pytest.fixture(scope="module")
def port(policy: Policy) -> Iterator[int]:
    with serve_in_thread(Server(policy)) as found:
        yield found


def connect(port: int, *, follow: bool = True) -> PolicyClient:
    return PolicyClient(f"http://127.0.0.1:{port}", follow=follow)


def monitored(client: PolicyClient, obs: Any) -> dict[str, Any]:
    reply = client.act(obs).monitor
    assert reply is not None
    return reply


def test_a_followed_episode_has_the_scores_of_an_episode_monitor(policy: Policy, port: int) -> None:
    watch = EpisodeMonitor(policy.calibrated_monitor)
    alarms: list[bool] = []
    with connect(port) as client, connect(port) as other, connect(port, follow=False) as single:
        for episode in range(2):
            client.reset()
            watch.reset()
            for k, obs in enumerate(STRANGE):
                monitored(other, STEPS[13 * k])  # another client at the same time
                expected = watch(obs, policy(obs))
                if k == 5:
                    monitored(client, obs)
                    client._session.step = k  # as if the response had been lost  # pyright: ignore[reportPrivateUsage]
                found = monitored(client, obs)
                for name in ("both", "nearest", "rnd"):
                    assert float(found[name]) == pytest.approx(float(expected.values[name]), rel=1e-4, abs=1e-5)
                assert expected.alarm is not None
                assert bool(found["alarm.both"]) == bool(expected.alarm.both)
                alarms.append(bool(found["alarm.both"]))
                now = policy.monitor(obs, policy(obs))
                assert float(monitored(single, obs)["both"]) == pytest.approx(float(now.both), rel=1e-4, abs=1e-5)
            assert alarms[:12] == alarms[12 * episode :], "the second episode is like the first"
    assert {True, False} == {*alarms}


def test_the_monitor_follows_rows_and_a_history() -> None:
    policy = make_policy(history=2)
    watch = EpisodeMonitor(policy.calibrated_monitor)
    with serve_in_thread(Server(policy)) as port, connect(port) as client:
        before = STEPS[:24:12]
        for k in range(6):
            rows = STEPS[k:24:12]
            windows = np.concatenate([before, rows], 1)
            expected = watch(windows, policy.plan(windows.reshape(2, 2, 2)).reshape(2, -1))
            np.testing.assert_allclose(monitored(client, rows)["both"], expected.both, rtol=1e-4)
            before = rows


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        ({"X-Monitor": "episode"}, 400, "X-Monitor asks for one: send X-Session"),
        ({"X-Monitor": "always", "X-Session": "a", "X-Step": "0"}, 400, "it can only be episode"),
        ({"X-Session": "b", "X-Step": "0"}, 200, "monitor"),
        ({"X-Monitor": "episode", "X-Session": "b", "X-Step": "1"}, 404, "the session b is unknown"),
        ({"X-Monitor": "episode", "X-Session": "c", "X-Step": "0"}, 200, "alarm"),
        ({"X-Monitor": "episode", "X-Session": "c", "X-Step": "2"}, 409, "the next step of the session c is 1"),
    ],
)
def test_headers_of_a_followed_episode(port: int, headers: Any, status: int, message: str) -> None:
    found, _, body = request(port, "POST", "/act", b'{"observation": [0, 0]}', content_type=JSON, **headers)
    assert found == status
    assert message in body.decode()


def test_what_cannot_be_followed_is_refused_in_one_line(
    policy: Policy, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_FOLLOWED", 100)
    with connect(port) as client, pytest.raises(ServerRefused, match="cannot follow 40 rows with its window"):
        client(STEPS[:40])
    chunked = make_policy(horizon=2, execute=2)
    for server, message in (
        (Server(policy, monitor=lambda obs, action: {"mine": obs[:, 0]}), "no calibrated monitor that can follow"),
        (Server(chunked), "the policy is called only every 2 steps"),
    ):
        with serve_in_thread(server) as other, connect(other) as client, pytest.raises(ServerRefused, match=message):
            client(STEPS[0])
