"""Answer requests that wait at the same time by one call of the policy.

While a call runs in the worker thread, requests collect; the next call answers all small ones. Nothing waits for a
batch to fill. Large requests take turns with the small ones: a call takes equal shares of the rows of each, at most
`rows_per_call` together, which adapts so that a call takes about `CALL_SECONDS`. A small request therefore waits for at
most one call with the rows of large ones, however many these are, and then for its own.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeAlias, final

import numpy as np

from diffclone.deploy.serving.bodies import MAX_ROWS, Floats, RequestError, Scores

SMALL_ROWS = 4
"""Requests of at most so many rows are small. They are never refused: the number of connections limits them."""
CALL_SECONDS = 0.003
"""A longer call with large requests halves the rows of the next one."""
MIN_ROWS = 8
"""Not less, so that large requests also advance on a machine whose calls are slow for other reasons."""
FIRST_ROWS = 64
MAX_WAITING_ROWS = 16 * MAX_ROWS
"""Rows that may wait before further large requests are refused."""

Act: TypeAlias = Callable[[Floats], "Piece"]
"""Returns actions, and the monitor's scores if there is one, for observations (rows, size)."""
Piece: TypeAlias = tuple[Floats, Scores | None]
"""Actions and scores of some rows of a request."""


@final
@dataclass
class Job:
    """A request that waits for its rows."""

    obs: Floats
    result: asyncio.Future[Piece]
    taken: int = 0
    """Rows that calls have taken so far."""
    pieces: list[Piece] = field(default_factory=list[Piece])


@final
class Batcher:
    """Collects requests on the event loop and computes their actions in one thread."""

    def __init__(self, act: Act, on_call: Callable[[int], None] = lambda rows: None):
        self.act, self.on_call = act, on_call
        """`on_call` is called with the rows of every call."""
        self.rows_per_call = FIRST_ROWS
        self.small: list[Job] = []
        self.large: list[Job] = []
        self.waiting_rows = 0
        self._busy = self._with_large = False
        self._thread = ThreadPoolExecutor(1, "policy")

    async def __call__(self, obs: Floats) -> Piece:
        """Return actions and scores for observations (rows, size)."""
        if len(obs) > SMALL_ROWS and self.waiting_rows + len(obs) > MAX_WAITING_ROWS:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{self.waiting_rows} rows are waiting; send fewer rows or try later."
            )
        loop = asyncio.get_running_loop()
        job = Job(obs, loop.create_future())
        (self.small if len(obs) <= SMALL_ROWS else self.large).append(job)
        self.waiting_rows += len(obs)
        if not self._busy:
            self._busy = True
            loop.call_soon(self._start_call)  # not at once: requests read in the same round of the loop join this call
        return await job.result

    def close(self) -> None:
        """Stop the thread after the call that is running."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _start_call(self) -> None:
        """Take the small requests, or shares of the large ones if it is their turn, and compute them in the thread."""
        self._with_large = bool(self.large) and not (self.small and self._with_large)
        if self._with_large:
            jobs, self.large = self.large[: self.rows_per_call], self.large[self.rows_per_call :]
            shares = fair_shares([len(job.obs) - job.taken for job in jobs], self.rows_per_call)
        else:
            jobs, self.small = self.small, []
            shares = [len(job.obs) for job in jobs]
        parts = [job.obs[job.taken : job.taken + share] for job, share in zip(jobs, shares, strict=True)]
        loop = asyncio.get_running_loop()
        call = loop.run_in_executor(self._thread, compute, self.act, parts)
        call.add_done_callback(lambda done: self._end_call(jobs, shares, done.result()))

    def _end_call(self, jobs: list[Job], shares: list[int], done: "Computed") -> None:
        """Hand out the results of a call, adapt the size of the next one and start it."""
        rows = sum(shares)
        self.on_call(rows)
        self.waiting_rows -= rows
        for job, share, piece in zip(jobs, shares, done.pieces, strict=True):
            job.taken += share
            if isinstance(piece, RequestError):
                self.waiting_rows -= len(job.obs) - job.taken
                if not job.result.cancelled():
                    job.result.set_exception(piece)
                continue
            job.pieces.append(piece)
            if job.taken < len(job.obs):
                self.large.append(job)
            elif not job.result.cancelled():  # by a shutdown that could not wait
                job.result.set_result(join_pieces(job.pieces))
        if self._with_large and done.seconds > CALL_SECONDS:
            self.rows_per_call = max(MIN_ROWS, self.rows_per_call // 2)
        elif self._with_large and rows == self.rows_per_call and done.seconds < CALL_SECONDS / 2:
            self.rows_per_call = min(MAX_ROWS, 2 * self.rows_per_call)
        if self.small or self.large:
            self._start_call()
        else:
            self._busy = False


@final
@dataclass(frozen=True)
class Computed:
    """What a call returned for each request, and how long it took."""

    pieces: Sequence[Piece | RequestError]
    seconds: float


def compute(act: Act, parts: Sequence[Floats]) -> Computed:
    """Call the policy once for the rows of several requests. If that fails, call it for each request alone."""
    start = time.perf_counter()
    result: Piece | None = None
    try:
        result = act(parts[0] if len(parts) == 1 else np.concatenate(parts))
    except Exception:
        if len(parts) == 1:
            logging.getLogger(__name__).exception("error in a call of the policy or its monitor")
            error = RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the policy failed; see the server log.")
            return Computed([error], time.perf_counter() - start)
    if result is None:
        return Computed([compute(act, [part]).pieces[0] for part in parts], time.perf_counter() - start)
    (actions, scores), begin = result, 0
    pieces: list[Piece | RequestError] = []
    for part in parts:
        rows = slice(begin, begin + len(part))
        begin = rows.stop
        if np.isfinite(actions[rows]).all():
            pieces.append((actions[rows], None if scores is None else {n: v[rows] for n, v in scores.items()}))
        else:
            message = "the action is not finite: the policy has diverged."
            pieces.append(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, message))
    return Computed(pieces, time.perf_counter() - start)


def fair_shares(wanted: Sequence[int], limit: int) -> list[int]:
    """Divide `limit` rows: requests that want little get all of it, the others equal shares of the rest."""
    shares, left = [0] * len(wanted), limit
    for place, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        shares[index] = min(wanted[index], left // (len(wanted) - place))
        left -= shares[index]
    return shares


def join_pieces(pieces: Sequence[Piece]) -> Piece:
    """Return the actions and scores of all calls that a request took part in."""
    if len(pieces) == 1:
        return pieces[0]
    scores = pieces[0][1]
    joined = None if scores is None else {n: np.concatenate([(p[1] or {})[n] for p in pieces]) for n in scores}
    return np.concatenate([actions for actions, _ in pieces]), joined
