import http.client
import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from diffclone import DBC, DiffusionGuide, Network, Policy, Training, fit
from diffclone.deploy.monitor import Monitor
from diffclone.deploy.monitors import GuideScore
from diffclone.deploy.monitors.base import Context, FittedScore
from diffclone.deploy.monitors.calibrated import Calibration
from diffclone.deploy.monitors.thresholds import Threshold
from diffclone.deploy.server import Server, serve_in_thread
from diffclone.deploy.serving.application import PATHS
from diffclone.deploy.serving.bodies import JSON, NPY
from diffclone.methods import IBC
from diffclone.rng import Rng
from serving_examples import BOUNDS, DEMOS, METHOD, OBS, act, npy, request, trained_policy


@pytest.fixture(scope="module")
def policy() -> Policy:
    return trained_policy()


@pytest.fixture(scope="module")
def port(policy: Policy) -> Iterator[int]:
    with serve_in_thread(Server(policy)) as found:
        yield found


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


def sums(obs: Any, action: Any) -> dict[str, Any]:
    """A monitor: the sum of each observation, an alarm where it is positive."""
    total = obs.sum(1)
    return {"sum": total, "alarm": {"sum": total > 0}, "absent": None}


@pytest.mark.parametrize("rows", [0, slice(0, 1), slice(0, 7)])
def test_the_scores_of_a_monitor_are_in_the_body(policy: Policy, rows: Any) -> None:
    expected = OBS[rows].sum(-1)
    with serve_in_thread(Server(policy, sums)) as port:
        answer = act(port, OBS[rows].tolist())[1]["monitor"]
        assert set(answer) == {"sum", "alarm"}
        assert np.allclose(answer["sum"], expected)
        assert answer["alarm"] == {"sum": (expected > 0).tolist()}
        _, headers, body = request(port, "POST", "/act", npy(OBS[rows]), content_type=NPY)
        assert "monitor" not in headers
        file = io.BytesIO(body)
        assert np.allclose(np.load(file), policy(OBS[rows]), atol=1e-6)
        scores = np.load(file)
        assert scores.dtype.names == ("sum", "alarm.sum")
        assert np.allclose(scores["sum"], expected)
        assert np.array_equal(scores["alarm.sum"], expected > 0)
        assert file.read() == b""
        assert json.loads(request(port, "GET", "/about")[2])["monitor"] is True


def test_the_scores_of_many_rows(policy: Policy) -> None:
    obs = np.tile(OBS, (20, 1))
    with serve_in_thread(Server(policy, sums)) as port:
        status, headers, body = request(port, "POST", "/act", npy(obs), content_type=NPY)
    assert status == 200
    assert sum(map(len, headers.values())) < 1000
    file = io.BytesIO(body)
    assert np.allclose(np.load(file), policy(obs), atol=1e-6)
    assert np.allclose(np.load(file)["sum"], obs.sum(1))


def test_a_score_that_is_not_finite_is_null(policy: Policy) -> None:
    with serve_in_thread(Server(policy, lambda obs, action: {"score": np.where(obs[:, 0] > 0, 0.5, np.nan)})) as port:
        assert act(port, [[1, 0, 0], [-1, 0, 0]])[1]["monitor"] == {"score": [0.5, None]}


def test_the_monitor_of_the_policy_is_used_by_default(policy: Policy) -> None:
    guide = DiffusionGuide(width=8, depth=1, steps=10)
    parts = {"guide": guide.init(policy.dims, Rng([0])["init"])}
    context = Context(DBC(guide=guide), policy.normaliser, parts)
    limits: dict[str, float] = dict.fromkeys(("state", "action", "both"), 0.1)
    calibration = Calibration(0.1, 10, limits, {name: Threshold(q) for name, q in limits.items()}, "0")
    monitor = Monitor(context, [FittedScore.fit("guide", GuideScore(), context, None)], calibration)
    with serve_in_thread(Server(replace(policy, calibrated_monitor=monitor))) as port:
        for rows in (0, slice(0, 4)):
            answer = act(port, OBS[rows].tolist())[1]
            expected = monitor.score(OBS[rows], np.array(answer["action"], np.float32)).to_dict()
            assert answer["monitor"]["alarm"] == expected["alarm"]
            assert set(answer["monitor"]) == set(expected)
            assert all(np.allclose(answer["monitor"][name], expected[name]) for name in ("state", "action", "both"))
        metrics = request(port, "GET", "/metrics")[2].decode()
    assert 'diffclone_monitor_alarms_total{score="both"}' in metrics


@pytest.mark.parametrize(
    ("scores", "cause"),
    [
        (None, "broken monitor"),
        ({"score": 1.0}, "expected one number or boolean for each of the 1 rows"),
        ({"score": ["a"]}, "the monitor returned score as"),
    ],
)
def test_an_error_in_the_monitor_is_an_error_reply(
    policy: Policy, scores: Any, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    def monitor(obs: Any, action: Any) -> dict[str, Any]:
        if scores is None:
            raise RuntimeError("broken monitor")
        return scores

    with caplog.at_level(logging.ERROR), serve_in_thread(Server(policy, monitor)) as port:
        status, answer = act(port, [1, 0, 0])
        assert (status, answer) == (500, {"error": "the policy failed; see the server log."})
        assert request(port, "GET", "/health")[0] == 200
    assert cause in caplog.text


def test_an_action_that_is_not_finite_is_not_sent() -> None:
    lost = fit(METHOD, DEMOS, device="cpu")
    with torch.no_grad():
        next(lost.net.parameters()).fill_(float("nan"))
    with serve_in_thread(Server(lost)) as port:
        status, answer = act(port, OBS[0].tolist())
    assert status == 500
    assert "not finite" in answer["error"]


# Metrics and the description of the protocol.


def test_metrics(policy: Policy) -> None:
    with serve_in_thread(Server(policy, sums)) as port:
        for _ in range(3):
            act(port, OBS[:5].tolist())
        act(port, [1, 2])
        request(port, "GET", "/no/such/path")
        status, headers, body = request(port, "GET", "/metrics")
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    assert samples['diffclone_requests_total{path="/act",status="200"}'] == "3"
    assert samples['diffclone_requests_total{path="/act",status="400"}'] == "1"
    assert samples['diffclone_requests_total{path="other",status="404"}'] == "1"
    assert samples["diffclone_rows_total"] == "15"
    assert samples['diffclone_monitor_alarms_total{score="sum"}'] == str(3 * int((OBS[:5].sum(1) > 0).sum()))
    assert samples['diffclone_call_rows_bucket{le="4"}'] == "0"
    assert samples['diffclone_call_rows_bucket{le="8"}'] == samples["diffclone_call_rows_count"] == "3"
    assert samples["diffclone_call_rows_sum"] == "15"
    assert samples['diffclone_request_seconds_bucket{le="+Inf"}'] == samples["diffclone_request_seconds_count"] == "4"
    assert samples["diffclone_waiting_rows"] == "0"


def test_the_openapi_document_names_every_path_and_status(port: int) -> None:
    status, headers, body = request(port, "GET", "/openapi.json")
    assert (status, headers["content-type"]) == (200, JSON)
    document = json.loads(body)
    assert document["openapi"].startswith("3.")
    for path, verbs in document["paths"].items():
        if path != "/act":
            assert list(verbs) == ["get"]
            assert request(port, "GET", path)[0] == 200
    assert set(document["paths"]) == set(PATHS)
    statuses = set(document["paths"]["/act"]["post"]["responses"])
    assert statuses == {"200", "400", "401", "403", "404", "408", "409", "411", "413", "415", "500", "503"}


def test_the_page_needs_no_other_file(port: int) -> None:
    status, headers, body = request(port, "GET", "/docs")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    page = body.decode()
    assert "POST /act" in page
    assert not [word for word in ("<script", "<link", "src=", "https:", "@import") if word in page]
