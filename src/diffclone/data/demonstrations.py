"""Demonstrations: observations and actions of an expert, and where each episode ends."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from diffclone.data.joining import check_same_columns
from diffclone.data.layout import Layout
from diffclone.data.matrices import check_action_bounds, check_finite, hash_arrays, list_some, to_json, to_matrix
from diffclone.data.notebook import demonstrations_table
from diffclone.data.splitting import check_fraction, split_episodes
from diffclone.errors import InvalidData
from diffclone.shapes import Floats, Seen


@final
@dataclass(frozen=True, eq=False, repr=False)
class Demonstrations:
    """Frozen arrays of all episodes, one after the other. They are validated on construction."""

    obs: Seen
    """(steps, observation size): observations. Arrays of bytes (uint8) are images, or images with numbers
    (`data/layout.py`); all others become float32."""
    act: Floats
    """(steps, action size): the action that the expert took after each observation."""
    episode_ends: npt.NDArray[np.int64]
    """(episodes,): the number of steps up to and including the last step of each episode."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Metadata that can be written as JSON, such as `task` and `source`. `action_bounds`, if known, is [low, high]."""

    def __post_init__(self) -> None:
        if len(self.obs) == 0 or len(self.episode_ends) == 0:
            raise InvalidData(
                f"there are no demonstrations: {len(self.obs)} steps in {len(self.episode_ends)} episodes. "
                "At least one episode with one step is needed."
            )
        if len(self.obs) != len(self.act):
            raise InvalidData(
                f"observations and actions differ in length: {len(self.obs)} != {len(self.act)}. "
                "Row i of both must be the same step."
            )
        lengths = np.diff(self.episode_ends, prepend=0)
        if lengths.min() < 1 or self.episode_ends[-1] != len(self.obs):
            raise InvalidData(
                f"episode_ends must increase from at least 1 to the number of steps, {len(self.obs)}; "
                f"they are {list_some(self.episode_ends)}."
            )
        check_action_bounds(self.meta.get("action_bounds"), self.act.shape[1])
        object.__setattr__(self, "meta", to_json(self.meta))
        if self.layout is not None:
            self.layout.check(self.obs.shape[1])
            check_finite("obs, beside the image,", self.layout.numbers_of(self.obs))
        for array in (self.obs, self.act, self.episode_ends):
            array.setflags(write=False)

    @classmethod
    def from_arrays(
        cls,
        obs: npt.ArrayLike | Mapping[str, npt.ArrayLike],
        act: npt.ArrayLike,
        *,
        episode_ends: npt.ArrayLike | None = None,
        done: npt.ArrayLike | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> "Demonstrations":
        """Create demonstrations from anything array-like.

        Args:
            obs: observations (steps, size); with images a dict of parts, such as
                {"image": uint8 (steps, 3, 64, 64), "state": (steps, 4)}.
            act: actions (steps, size).
            episode_ends: the number of steps up to and including the last step of each episode.
            done: instead of `episode_ends`, one flag per step, set at the last step of each episode.
            meta: metadata that can be written as JSON.
        """
        if isinstance(obs, Mapping):
            from diffclone.data.formats.pictures import from_parts

            rows, images = from_parts(obs)
            meta = {**(meta or {}), **images}
        else:
            rows = to_matrix("obs", obs)
        act = to_matrix("act", act).astype(np.float32, copy=False)
        if (episode_ends is None) == (done is None):
            raise InvalidData("give exactly one of episode_ends (numbers of steps) or done (one flag per step).")
        if done is not None:
            from diffclone.data.formats.names import to_flags

            flags = to_flags("from_arrays", "done", np.asarray(done).reshape(-1))
            if len(flags) != len(rows):
                raise InvalidData(f"done and obs differ in length: {len(flags)} != {len(rows)}.")
            flags[-1:] = True  # steps after the last flag are kept as an episode that was cut off
            ends = np.flatnonzero(flags) + 1
        else:
            ends = np.asarray(episode_ends)
            if ends.ndim != 1 or (ends.size and not np.issubdtype(ends.dtype, np.integer)):
                raise InvalidData(f"episode_ends must be a list of integers; it is {ends.dtype} of shape {ends.shape}.")
        return cls(rows, act, np.array(ends, dtype=np.int64), dict(meta or {}))

    @classmethod
    def from_episodes(
        cls, episodes: Iterable[Any], *, meta: Mapping[str, Any] | None = None, **options: Any
    ) -> "Demonstrations":
        """Create demonstrations from a list of episodes: pairs (obs, act), or dicts of arrays.

        Dicts have the names of `docs/data.md`, such as observations and actions, or those that `obs_keys` and
        `action_keys` choose. An observation after the last action is left out.
        """
        from diffclone.data.formats.episodes import demonstrations_from_episodes
        from diffclone.data.formats.options import ReadOptions

        return demonstrations_from_episodes(episodes, meta or {}, ReadOptions.from_dict(options))

    @classmethod
    def from_dataframe(cls, frame: Any, *, meta: Mapping[str, Any] | None = None, **options: Any) -> "Demonstrations":
        """Create demonstrations from a data frame of pandas or polars with one row per step.

        `obs_keys`, `action_keys` and `episode_key` name columns; without them columns such as obs_0, obs_1, action and
        episode are found by their names.
        """
        from diffclone.data.formats.options import ReadOptions
        from diffclone.data.formats.tables import demonstrations_from_frame

        return demonstrations_from_frame(frame, meta or {}, ReadOptions.from_dict(options))

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> "Demonstrations":
        """Read a file, a folder, `minari:ID` or `lerobot:FOLDER`. `meta["understood"]` lists what was read.

        The keywords are the fields of `diffclone.data.formats.ReadOptions`, such as `obs_keys=["state", "goal"]`.
        """
        from diffclone.data.formats import ReadOptions, read

        return read(path, ReadOptions.from_dict(options))

    def save(self, path: str | Path) -> None:
        """Write a new .npz, .hdf5 (robomimic), `minari:ID-v0` or `lerobot:FOLDER`. Nothing is overwritten."""
        from diffclone.data.formats import write

        write(self, path)

    @property
    def num_steps(self) -> int:
        """The number of pairs of observation and action in all episodes."""
        return len(self.obs)

    @property
    def num_episodes(self) -> int:
        """The number of episodes."""
        return len(self.episode_ends)

    @property
    def layout(self) -> Layout | None:
        """How images with numbers are stored in a row of `obs`; None for numbers alone and for images alone."""
        return Layout.from_meta(self.meta) if self.obs.dtype == np.uint8 else None

    @property
    def obs_size(self) -> int:
        """The number of values in an observation."""
        return self.obs.shape[1] if self.layout is None else self.layout.size

    def observe(self, steps: Any) -> Seen:
        """Return the observations of some steps (indices or a slice) as a policy receives them."""
        return self.obs[steps] if self.layout is None else self.layout.unpack(self.obs[steps])

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of steps of each episode."""
        return np.diff(self.episode_ends, prepend=0)

    @property
    def action_bounds(self) -> tuple[Floats, Floats] | None:
        """The lowest and highest action that the environment accepts, if known."""
        bounds = self.meta.get("action_bounds")
        if bounds is None:
            return None
        low, high = (np.asarray(b, dtype=np.float32) for b in bounds)
        return low, high

    @property
    def action_range(self) -> tuple[Floats, Floats] | None:
        """The action bounds, if known, widened to the expert's actions where those go beyond them."""
        if self.action_bounds is None:
            return None
        low, high = self.action_bounds
        return np.minimum(low, self.act.min(0)), np.maximum(high, self.act.max(0))

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of all arrays. Equal numbers have equal hashes, whatever file they were read from."""
        return hash_arrays(self.obs, self.act, self.episode_ends)

    @cached_property
    def episode_fingerprints(self) -> tuple[str, ...]:
        """One short hash per episode, of its observations and actions only.

        An episode keeps its hash in every file, split and order of episodes. Use `find_shared_episodes` to compare.
        """
        return tuple(hash_arrays(obs, act) for obs, act in self.episodes())

    def find_shared_episodes(self, other: "Demonstrations | Iterable[str]") -> list[int]:
        """Return the indices of the episodes of this set that are also in `other` (a set, or its fingerprints)."""
        known = set(other.episode_fingerprints if isinstance(other, Demonstrations) else other)
        return [i for i, fingerprint in enumerate(self.episode_fingerprints) if fingerprint in known]

    def episodes(self) -> Iterator[tuple[Seen, Floats]]:
        """Iterate over the observations and actions of each episode."""
        for end, length in zip(self.episode_ends, self.lengths, strict=True):
            yield self.obs[end - length : end], self.act[end - length : end]

    def take(self, episodes: Sequence[int]) -> "Demonstrations":
        """Return these episodes, in this order."""
        every = list(self.episodes())
        if not len(episodes) or not all(0 <= e < len(every) for e in episodes):
            raise InvalidData(f"episodes {list_some(episodes)} were requested; there are 0 … {len(every) - 1}.")
        chosen = [every[e] for e in episodes]
        return type(self)(
            np.concatenate([obs for obs, _ in chosen]),
            np.concatenate([act for _, act in chosen]),
            np.cumsum([len(obs) for obs, _ in chosen], dtype=np.int64),
            {**self.meta, "episodes_taken": len(chosen)},
        )

    def split(self, fraction: float, *, seed: int = 0) -> tuple["Demonstrations", "Demonstrations"]:
        """Split at random into two sets of whole episodes. The second has `fraction` of the episodes."""
        rest, held_out = split_episodes(self.num_episodes, fraction, seed)
        return self.take(rest), self.take(held_out)

    def subsample(
        self, fraction: float, *, seed: int = 0, by: Literal["episode", "transition"] = "episode"
    ) -> "Demonstrations":
        """Return a random `fraction` of the episodes, or of the transitions, but at least one.

        The released code takes transitions and rounds their number down. The steps that remain in an episode are then
        not consecutive, and an episode without any remaining step is dropped.
        """
        check_fraction(fraction, by)
        rng = np.random.default_rng(seed)
        if by == "episode":
            count = max(1, round(fraction * self.num_episodes))
            return self.take(np.sort(rng.permutation(self.num_episodes)[:count]).tolist())
        count = max(1, int(fraction * self.num_steps))
        steps = np.sort(rng.permutation(self.num_steps)[:count])
        # The number of kept steps before each old end. An episode that keeps none repeats the end before it.
        ends = np.unique(np.searchsorted(steps, self.episode_ends))
        return type(self)(self.obs[steps], self.act[steps], ends[ends > 0], {**self.meta, "transitions_taken": count})

    def with_action_noise(self, level: float, *, seed: int = 0) -> "Demonstrations":
        """Return a copy with Gaussian noise of standard deviation `level` on all actions, clipped to `action_range`.

        The paper gives levels from 0.002 to 0.1, but neither the distribution nor the unit. Here the unit is that of
        the actions. The noise is drawn once, so that every epoch has the same.
        """
        if not 0 <= level < np.inf:
            raise InvalidData(f"the noise level must be finite and not negative; it is {level:g}.")
        act = self.act + level * np.random.default_rng(seed).standard_normal(self.act.shape)
        if (allowed := self.action_range) is not None:
            act = act.clip(*allowed)
        noise = [*self.meta.get("action_noise", []), {"level": float(level), "seed": seed}]
        meta = {**self.meta, "action_noise": noise}
        return self.from_arrays(self.obs, act, episode_ends=self.episode_ends, meta=meta)

    def joined(self, other: "Demonstrations") -> "Demonstrations":
        """Append other demonstrations. The metadata stays, and `meta["joined"]` lists what was added."""
        check_same_columns("joined", self, other)
        added = {
            "fingerprint": other.fingerprint,
            "episodes": other.num_episodes,
            "steps": other.num_steps,
            "meta": dict(other.meta),
        }
        return type(self)(
            np.concatenate([self.obs, other.obs]),
            np.concatenate([self.act, other.act]),
            np.concatenate([self.episode_ends, self.num_steps + other.episode_ends]),
            {**self.meta, "joined": [*self.meta.get("joined", []), added]},
        )

    def __len__(self) -> int:
        return self.num_steps

    def __repr__(self) -> str:
        source = self.meta.get("task") or self.meta.get("source") or ""
        return (
            f"Demonstrations({self.num_episodes} episodes, {self.num_steps} steps, "
            f"obs {self.layout or self.obs.shape[1]}, act {self.act.shape[1]}, {f'{source}, ' if source else ''}"
            f"{self.fingerprint})"
        )

    def _repr_html_(self) -> str:
        return demonstrations_table(self, ("fingerprint", self.fingerprint))
