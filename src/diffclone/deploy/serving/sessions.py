"""Sessions of clients: what a policy with a history or with chunks, or a monitor, remembers of each client's episode.

    X-Session: NAME          chosen by the client, one per robot or batch of robots
    X-Step: 0, 1, 2, …       the step of the episode; 0 begins one
    X-Monitor: episode       return scores and alarms of the episode, with the calibrated window and band

A step that is repeated, because its response was lost, is computed from the memory before it. Requests of different
sessions are answered by one call of the policy; a step that plays an action of an earlier chunk needs no call. All of
this runs on the event loop.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias, final

import numpy as np

from diffclone.deploy.memory import Chunks, Memory, play, see
from diffclone.deploy.monitors.following import Follower, Recent
from diffclone.deploy.serving.bodies import Floats, RequestError, Scores, flatten_scores

IDLE_SECONDS = 600.0
"""A session without a request for so long is forgotten."""
FULL_IDLE_SECONDS = 60.0
"""The same if a new session needs its room."""
MAX_SESSIONS = 1024
MAX_SESSION_BYTES = 64 * 2**20
"""Memory of all sessions together."""
MAX_FOLLOWED = 2**16
"""Scores that the monitor remembers of one session: they are averaged on the event loop."""

Call: TypeAlias = Callable[[Floats], Awaitable[tuple[Floats, Scores | None]]]
"""Maps windows to chunks and scores, each in one row."""


@final
@dataclass
class Session:
    """The memory of a client's episode."""

    memory: Memory
    """After the last step."""
    before: Memory
    """Before the last step."""
    step: int = -1
    """The last step."""
    scores: Scores | None = None
    """The monitor's scores of the chunk that is played in each row."""
    follows: bool = False
    """Whether the monitor follows the episode."""
    recent: Recent = field(default_factory=dict[str, Any])
    """The last scores, after the last step."""
    recent_before: Recent = field(default_factory=dict[str, Any])
    """The same before the last step."""
    reserved: int = 0
    """Bytes that these two can have."""
    used: float = 0.0
    busy: bool = False

    @property
    def bytes(self) -> int:
        """The size of both memories and of the scores."""
        memory, scores = self.memory, (self.scores or {}).values()
        both = 2 * sum(array.nbytes for array in (memory.seen, memory.plan, memory.weight, memory.left))
        return both + sum(values.nbytes for values in scores) + self.reserved


@final
class Sessions:
    """The sessions of all clients, the one that was used last at the end."""

    def __init__(self, chunks: Chunks, obs: int, act: int, call: Call, follower: Follower | None = None):
        self.chunks, self.sizes, self.call, self.follower = chunks, (obs, act), call, follower
        self.known: OrderedDict[str, Session] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.known)

    async def act(self, headers: Mapping[str, str], obs: Floats) -> tuple[Floats, Scores | None]:
        """Return actions and scores for the observations (rows, size) of a step."""
        name, step = read_headers(headers)
        follows = self.check_follows(headers)
        session = self.find(name, step, len(obs), follows=follows)
        session.busy = True
        try:
            repeated = step == session.step
            before = session.before if repeated else session.memory
            recent = recent_before = session.recent_before if repeated else session.recent
            memory, due = see(obs, before)
            chunk, scores = None, session.scores
            if len(due):
                rows, found = await self.call(memory.seen[due].reshape(len(due), -1))
                chunk = rows.reshape(len(due), self.chunks.horizon, -1)
                scores = None if found is None else merge_scores(session.scores, found, due, len(obs))
            action, after = play(self.chunks, memory, due, chunk)
            shown = scores
            if follows and self.follower is not None and scores is not None:
                values = {name: scores[name] for name in self.follower.names}
                score, recent = self.follower(recent_before, values, step)
                shown = flatten_scores(score.arrays(), len(obs))
            self.bytes -= session.bytes
            session.before, session.memory, session.step, session.scores = before, after, step, scores
            session.recent_before, session.recent = recent_before, recent
            self.bytes += session.bytes
        finally:
            session.busy, session.used = False, time.monotonic()
        return action.astype(np.float32, copy=False), shown

    def check_follows(self, headers: Mapping[str, str]) -> bool:
        """Return whether the client asks for the scores of its episode; refuse this if it cannot be done."""
        if (wanted := headers.get("x-monitor")) is None:
            return False
        problem = None
        if wanted != "episode":
            problem = f"X-Monitor is {wanted[:20]!r}; it can only be episode."
        elif self.follower is None:
            problem = "X-Monitor: this server has no calibrated monitor that can follow an episode."
        elif self.chunks.execute > 1:
            problem = f"X-Monitor: the policy is called only every {self.chunks.execute} steps, so no score is new."
        if problem is not None:
            raise RequestError(HTTPStatus.BAD_REQUEST, problem)
        return True

    def find(self, name: str, step: int, rows: int, *, follows: bool = False) -> Session:
        """Return the session of a step, or begin one. A step that is not the next one is refused."""
        while self.forget_oldest(IDLE_SECONDS):
            pass
        session = self.known.get(name)
        if session is not None and session.busy:
            raise RequestError(
                HTTPStatus.CONFLICT, f"a step of the session {name} is being answered; use one session per robot."
            )
        if step == 0:
            session = self.begin(name, rows, follows=follows)
        elif session is None:
            raise RequestError(
                HTTPStatus.NOT_FOUND,
                f"the session {name} is unknown, or was idle for {IDLE_SECONDS / 60:g} minutes "
                f"({FULL_IDLE_SECONDS / 60:g} if the server is full). Begin with X-Step: 0.",
            )
        if step not in (session.step, session.step + 1):
            raise RequestError(
                HTTPStatus.CONFLICT, f"X-Step is {step}, but the next step of the session {name} is {session.step + 1}."
            )
        if rows != (began := len(session.memory)):
            raise RequestError(HTTPStatus.BAD_REQUEST, f"the session {name} began with {began} rows, not {rows}.")
        if follows != session.follows:
            raise RequestError(HTTPStatus.CONFLICT, "send X-Monitor at all steps of an episode, or at none.")
        session.used = time.monotonic()
        self.known.move_to_end(name)
        return session

    def forget_oldest(self, seconds: float) -> bool:
        """Forget the session that was used least recently, if it was idle for so long; return whether it was."""
        oldest = next(iter(self.known.values()), None)
        if oldest is None or oldest.busy or time.monotonic() - oldest.used <= seconds:
            return False
        self.bytes -= self.known.popitem(last=False)[1].bytes
        return True

    def begin(self, name: str, rows: int, *, follows: bool) -> Session:
        """Begin an episode in a new session, or in an old one that then forgets its episode."""
        if name in self.known:
            self.bytes -= self.known.pop(name).bytes
        blank = Memory.blank(self.chunks, rows, *self.sizes)
        session = Session(blank, blank, follows=follows)
        if follows and self.follower is not None:
            numbers = rows * self.follower.calibration.window * len(self.follower.names)
            session.reserved = 2 * 8 * numbers
            if numbers > MAX_FOLLOWED:
                raise RequestError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the monitor cannot follow {rows} rows with its window."
                )
        while len(self.known) >= MAX_SESSIONS or self.bytes + session.bytes > MAX_SESSION_BYTES:
            if not self.forget_oldest(FULL_IDLE_SECONDS):
                raise RequestError(
                    HTTPStatus.SERVICE_UNAVAILABLE, f"the server has {len(self.known)} sessions and no room for more."
                )
        self.known[name] = session
        self.bytes += session.bytes
        return session


def read_headers(headers: Mapping[str, str]) -> tuple[str, int]:
    """Return the session and the step of a request."""
    name, step = headers.get("x-session", ""), headers.get("x-step", "")
    if not re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII) or not re.fullmatch(r"\d{1,12}", step, re.ASCII):
        raise RequestError(
            HTTPStatus.BAD_REQUEST,
            "this policy has a memory, or X-Monitor asks for one: send X-Session (a name of up to 64 letters, digits, "
            "dots, hyphens and underscores) and X-Step (0, 1, 2, …).",
        )
    return name, int(step)


def merge_scores(old: Scores | None, new: Scores, due: Any, rows: int) -> Scores:
    """Return the scores of all rows: new ones of the rows `due`, the earlier ones of the others."""
    merged: dict[str, Any] = {}
    for name, values in new.items():
        merged[name] = np.zeros((rows, *values.shape[1:]), values.dtype) if old is None else old[name].copy()
        merged[name][due] = values
    return merged
