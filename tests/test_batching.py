import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

from diffclone.deploy.serving import batching
from diffclone.deploy.serving.batching import (
    CALL_SECONDS,
    FIRST_ROWS,
    MAX_WAITING_ROWS,
    SMALL_ROWS,
    Batcher,
    fair_shares,
)
from diffclone.deploy.serving.bodies import MAX_ROWS, RequestError
from serving_examples import OBS, trained_policy


@pytest.mark.parametrize(
    ("wanted", "limit", "expected"),
    [
        ([1], 64, [1]),
        ([100], 64, [64]),
        ([1, 1, 1], 64, [1, 1, 1]),
        ([1000, 1, 2], 64, [61, 1, 2]),
        ([1000, 2000, 1], 11, [5, 5, 1]),
        ([3, 3], 4, [2, 2]),
        ([5, 5, 5], 3, [1, 1, 1]),
    ],
)
def test_fair_shares(wanted: list[int], limit: int, expected: list[int]) -> None:
    assert fair_shares(wanted, limit) == expected


class Recorder:
    """A policy that doubles observations, counts the rows of its calls and takes a given time."""

    def __init__(self, seconds: float = 0.0, seconds_per_row: float = 0.0):
        self.calls: list[int] = []
        self.threads: set[int] = set()
        self.seconds, self.seconds_per_row = seconds, seconds_per_row

    def __call__(self, obs: Any) -> Any:
        self.calls.append(len(obs))
        self.threads.add(threading.get_ident())
        time.sleep(self.seconds + self.seconds_per_row * len(obs))
        if (obs == 99).any():
            raise RuntimeError("broken")
        return 2 * obs, {"first": obs[:, 0]}


def rows(count: int, value: float = 1.0) -> Any:
    return np.full((count, 3), value, np.float32)


def test_requests_that_arrive_together_are_one_call() -> None:
    act = Recorder(seconds=0.05)

    async def main() -> list[Any]:
        batcher = Batcher(act)
        return await asyncio.gather(*(batcher(rows(1 + k % 3, k)) for k in range(20)))

    for k, (action, scores) in enumerate(asyncio.run(main())):
        assert np.array_equal(action, 2 * rows(1 + k % 3, k))
        assert np.array_equal(scores["first"], np.full(1 + k % 3, k))
    assert act.calls == [39]
    assert threading.get_ident() not in act.threads


def test_requests_that_arrive_during_a_call_are_the_next_call() -> None:
    act = Recorder(seconds=0.3)

    async def main() -> None:
        batcher = Batcher(act)
        first = asyncio.create_task(batcher(rows(1)))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *(batcher(rows(1)) for _ in range(9)))
        assert batcher.waiting_rows == 0

    asyncio.run(main())
    assert act.calls == [1, 9]


def test_a_single_request_does_not_wait() -> None:
    act = Recorder()

    async def main() -> float:
        batcher = Batcher(act)
        await batcher(rows(1))
        start = time.perf_counter()
        for _ in range(50):
            await batcher(rows(1))
        return (time.perf_counter() - start) / 50

    assert asyncio.run(main()) < 0.02
    assert act.calls == [1] * 51


def test_the_same_actions_as_single_calls() -> None:
    policy = trained_policy()

    async def main() -> list[Any]:
        batcher = Batcher(lambda obs: (policy(obs), None))
        return await asyncio.gather(*(batcher(OBS[k : k + 1 + k % 5]) for k in range(150)))

    for k, (action, scores) in enumerate(asyncio.run(main())):
        assert np.allclose(action, policy(OBS[k : k + 1 + k % 5]), atol=1e-6)
        assert scores is None


def test_a_large_request_is_spread_over_calls_and_small_ones_pass_it() -> None:
    act = Recorder(seconds_per_row=0.0005)
    order: list[str] = []

    async def main() -> None:
        batcher = Batcher(act)

        async def ask(name: str, count: int) -> None:
            action, scores = await batcher(rows(count, count))
            assert np.array_equal(action, 2 * rows(count, count))
            assert scores is not None
            assert len(scores["first"]) == count
            order.append(name)

        large = asyncio.create_task(ask("large", 1000))
        await asyncio.sleep(0.01)
        for _ in range(5):
            await ask("small", 1)
        await large

    asyncio.run(main())
    assert order == ["small"] * 5 + ["large"]
    assert act.calls.count(1) == 5, "a small request waited for the rows of the large one in its own call"
    assert max(act.calls) <= FIRST_ROWS
    assert sum(act.calls) == 1005


def test_large_and_small_requests_take_turns() -> None:
    act = Recorder(seconds=0.02)

    async def main() -> None:
        batcher = Batcher(act)

        async def small(count: int) -> None:
            for _ in range(count):
                await batcher(rows(1))

        await asyncio.gather(batcher(rows(300)), batcher(rows(300)), small(5), small(5))

    asyncio.run(main())
    places = [place for place, count in enumerate(act.calls) if count == 2]
    assert len(places) == 5
    assert np.diff(places).max() == 2, "small requests waited for more than one call of large ones"
    assert np.diff(places).min() == 2, "large requests did not advance between small ones"


def test_the_rows_of_a_call_adapt_to_its_time() -> None:
    async def after(act: Recorder, count: int) -> int:
        batcher = Batcher(act)
        await batcher(rows(count))
        return batcher.rows_per_call

    assert asyncio.run(after(Recorder(), MAX_ROWS)) > FIRST_ROWS
    assert asyncio.run(after(Recorder(seconds_per_row=CALL_SECONDS / 4), 200)) <= 8


def test_an_error_does_not_reach_other_requests(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[Any]:
        batcher = Batcher(Recorder())
        found = await asyncio.gather(*(batcher(rows(3, value)) for value in (1, 99, 2)), return_exceptions=True)
        assert batcher.waiting_rows == 0
        return found

    first, second, third = asyncio.run(main())
    assert np.array_equal(first[0], rows(3, 2))
    assert isinstance(second, RequestError)
    assert second.status == 500
    assert np.array_equal(third[0], rows(3, 4))
    assert "broken" in caplog.text


def test_an_action_that_is_not_finite_does_not_reach_other_requests() -> None:
    async def main() -> list[Any]:
        batcher = Batcher(lambda obs: (np.where(obs == 1, np.float32(np.inf), obs), None))
        return await asyncio.gather(*(batcher(rows(2, value)) for value in (1, 2)), return_exceptions=True)

    first, second = asyncio.run(main())
    assert isinstance(first, RequestError)
    assert "not finite" in str(first)
    assert np.array_equal(second[0], rows(2, 2))


def test_the_rows_that_wait_are_limited_but_small_requests_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_WAITING_ROWS >= 64 * 64
    monkeypatch.setattr(batching, "MAX_WAITING_ROWS", 100)

    async def main() -> None:
        batcher = Batcher(Recorder(seconds=0.05))
        large = asyncio.create_task(batcher(rows(90)))
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match="90 rows are waiting; send fewer rows or try later") as refused:
            await batcher(rows(20))
        assert refused.value.status == 503
        await batcher(rows(10))
        await batcher(rows(SMALL_ROWS))
        await large
        assert batcher.waiting_rows == 0

    asyncio.run(main())
