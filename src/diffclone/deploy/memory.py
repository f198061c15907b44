"""What a policy remembers between steps: its last observations, and the actions that it has planned. Needs only NumPy.

    s_t = [o_{t−h+1}, …, o_t]                      the window that a call sees, h observations; the first is repeated
    [â_t, …, â_{t+H−1}] = π(s_t)                   the chunk that a call returns, H actions
    a_t = â_t of the latest call                   which is made every `execute` steps, or
    a_t = Σ_k e^{m k} â_t^{(t−k)} / Σ_k e^{m k}    of all calls that predicted step t, k steps ago (temporal ensemble)

The policy, its evaluation, the runtime of exported policies and the server all use these functions.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]


class InvalidInput(ValueError):
    """The observation or the memory has the wrong shape, or settings are wrong."""


@final
@dataclass(frozen=True)
class Chunks:
    """What a call of a policy sees and returns."""

    horizon: int = 1
    """H, actions that a call returns."""
    execute: int = 1
    """Actions that are played before the next call."""
    history: int = 1
    """h, observations that a call sees."""
    ensemble: float | None = None
    """m of the temporal ensemble; None for no ensemble."""

    @classmethod
    def from_dict(cls, values: Any) -> "Chunks":
        """Return the chunks that the file of an exported policy describes."""
        try:
            chunks = cls(**values)
        except TypeError:
            raise InvalidInput(f"{str(values)[:80]} are not the settings of chunks.") from None
        if problem := chunks.problem():
            raise InvalidInput(problem)
        return chunks

    @property
    def has_memory(self) -> bool:
        """Whether an action may depend on earlier steps."""
        return self.horizon > 1 or self.history > 1

    def problem(self) -> str | None:
        """Return why the values cannot be used; None if they can."""
        sizes = (self.horizon, self.execute, self.history)
        if any(type(size) is not int or size < 1 for size in sizes):
            values = ", ".join(map(str, sizes))
            return f"horizon, execute and history must be whole numbers of at least 1; they are {values}."
        if self.execute > self.horizon:
            return f"execute is {self.execute}, but a call returns {self.horizon} (horizon). Lower it or raise horizon."
        if self.ensemble is None:
            return None
        if self.execute > 1:
            return f"an ensemble makes a call at every step, so execute must be 1; it is {self.execute}."
        if self.horizon == 1:
            return "an ensemble is a mean over the predictions of several calls, so horizon must be above 1; it is 1."
        if type(self.ensemble) not in (int, float) or not math.isfinite(self.ensemble):
            return f"ensemble must be a finite number; it is {self.ensemble}."
        return None


@final
@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of some episodes, one per row. It is never changed in place."""

    seen: Floats
    """(rows, history, observation size), the latest last."""
    plan: Floats
    """(rows, horizon, action size), the next action first."""
    weight: Floats
    """(rows, horizon): Σ e^{m k} of the predictions that an action of `plan` is the mean of."""
    left: Rows
    """(rows,): actions to play before the next call; −1 before the first step."""

    @classmethod
    def blank(cls, chunks: Chunks, rows: int, obs: int, act: int) -> "Memory":
        """Return the memory before the first step."""
        shapes = ((rows, chunks.history, obs), (rows, chunks.horizon, act), (rows, chunks.horizon))
        seen, plan, weight = (np.zeros(shape, np.float32) for shape in shapes)
        return cls(seen, plan, weight, np.full(rows, -1))

    @classmethod
    def join(cls, memories: Sequence["Memory"]) -> "Memory":
        """Return the rows of several memories, one after the other."""
        columns = zip(*((m.seen, m.plan, m.weight, m.left) for m in memories), strict=True)
        seen, plan, weight, left = (np.concatenate(column) for column in columns)
        return cls(seen, plan, weight, left)

    def take(self, rows: Any) -> "Memory":
        """Return some rows."""
        return Memory(self.seen[rows], self.plan[rows], self.weight[rows], self.left[rows])

    def forget(self, rows: Flags) -> "Memory":
        """Return the memory with the episodes of some rows ended: their next step is the first of another one."""
        return replace(self, left=np.where(rows, -1, self.left))

    def __len__(self) -> int:
        return len(self.left)


Plan: TypeAlias = Callable[[Floats, Rows], npt.NDArray[Any]]
"""Maps the windows (n, history, size) of some rows, and the indices of the rows, to chunks (n, horizon, size)."""


def advance(
    chunks: Chunks, plan: Plan, obs: npt.NDArray[Any], memory: Memory, start: Flags | None = None
) -> tuple[npt.NDArray[Any], Memory]:
    """Return the next action of each row and the memory after it. `plan` is called once, for rows that need a chunk.

    Rows in `start` begin a new episode.
    """
    memory, due = see(obs, memory, start)
    return play(chunks, memory, due, plan(memory.seen[due], due) if len(due) else None)


def see(obs: npt.NDArray[Any], memory: Memory, start: Flags | None = None) -> tuple[Memory, Rows]:
    """Return the memory with one more observation per row, and the rows that now need a chunk."""
    fresh = memory.left < 0 if start is None else start | (memory.left < 0)
    seen = np.concatenate([memory.seen[:, 1:], obs[:, None].astype(np.float32)], 1)
    seen[fresh] = obs[fresh, None]
    weight, left = np.where(fresh[:, None], np.float32(0), memory.weight), np.where(fresh, 0, memory.left)
    return Memory(seen, memory.plan, weight, left), np.flatnonzero(left == 0)


def play(chunks: Chunks, memory: Memory, due: Rows, new: npt.NDArray[Any] | None) -> tuple[npt.NDArray[Any], Memory]:
    """Return the next action of each row and the memory after it. `new` are the chunks of the rows `due`."""
    actions, weight, left = memory.plan.copy(), memory.weight.copy(), memory.left.copy()
    if new is not None:
        if chunks.ensemble is not None:  # all earlier predictions have become one step older
            with np.errstate(over="ignore"):
                total = weight[due] * np.float32(math.exp(min(chunks.ensemble, 80.0))) + 1
            new = np.where(total[..., None] == 1, new, actions[due] + (new - actions[due]) / total[..., None])
            weight[due] = total
        actions[due], left[due] = new, chunks.execute
    rest = np.concatenate([actions[:, 1:], actions[:, -1:]], 1)
    weight = np.concatenate([weight[:, 1:], np.zeros((len(weight), 1), np.float32)], 1)
    return actions[:, 0], Memory(memory.seen, rest, weight, left - 1)


def predict(
    chunks: Chunks,
    plan: Plan,
    sizes: tuple[int, int],
    observation: npt.ArrayLike,
    memory: Memory | None = None,
    start: npt.ArrayLike | None = None,
    varies: Flags | None = None,
) -> tuple[npt.NDArray[Any], Memory]:
    """Return the action for an observation (size), or those for a batch (rows, size), and the memory after it.

    `sizes` are those of an observation and of an action. Without a memory, an episode begins. NaN is refused at once,
    since later windows would have it, but not in numbers that never varied in the demonstrations.
    """
    x = np.asarray(observation)
    rows = x[None] if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != sizes[0]:
        raise InvalidInput(f"the observation has shape {x.shape}; expected ({sizes[0]},) or (rows, {sizes[0]}).")
    if np.isnan(rows if varies is None else rows[:, varies]).any():
        raise InvalidInput("the observation contains NaN.")
    if memory is None:
        memory = Memory.blank(chunks, len(rows), *sizes)
    if len(memory) != len(rows):
        raise InvalidInput(f"the state is of {len(memory)} rows, the observation of {len(rows)}.")
    flags = None if start is None else np.asarray(start, np.bool_)
    if flags is not None and flags.shape not in ((), (1,), (len(rows),)):
        raise InvalidInput(f"episode_start has shape {flags.shape}; expected ({len(rows)},).")
    flags = None if flags is None else np.broadcast_to(flags, len(rows))
    actions, memory = advance(chunks, plan, rows, memory, flags)
    return (actions[0] if x.ndim == 1 else actions), memory


@final
class Session:
    """A policy with its memory of one episode, or of one episode per row of a batch."""

    def __init__(self, predict: Callable[..., tuple[npt.NDArray[Any], Memory | None]]):
        self._predict = predict
        self.memory: Memory | None = None
        """What the policy remembers of the episode; None before its first observation."""

    def __call__(self, observation: Any) -> npt.NDArray[Any]:
        """Return the next action, or one action per row of a batch."""
        action, self.memory = self._predict(observation, self.memory)
        return action

    def reset(self) -> None:
        """Begin a new episode with the next observation."""
        self.memory = None


def onnx_session(path: str, seed: int | None = None) -> Session:
    """Return a session of a policy that `diffclone export RUN --to onnx` wrote. Needs onnxruntime.

    Flow matching draws new noise in every call; a seed makes it repeatable.
    """
    import onnxruntime

    session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    properties = session.get_modelmeta().custom_metadata_map
    chunks = Chunks.from_dict(json.loads(properties.get("chunks", "{}")))
    obs, act = session.get_inputs()[0].shape[1] // chunks.history, session.get_outputs()[0].shape[1] // chunks.horizon
    starts, rng = len(session.get_inputs()) > 1, np.random.default_rng(seed)  # flow matching starts from noise

    def plan(windows: Floats, rows: Rows) -> Floats:
        inputs = {"observation": windows.reshape(len(windows), -1)}
        if starts:
            inputs["noise"] = rng.standard_normal((len(windows), chunks.horizon * act), np.float32)
        chunk = session.run(["action"], inputs)[0]
        return chunk.reshape(len(windows), chunks.horizon, act)

    return Session(partial(predict, chunks, plan, (obs, act)))
