"""Windows of steps within an episode: the observations up to a step, and the actions from it on.

    s_t  = [o_{t−h+1}, …, o_t]         before the episode begins: its first observation
    a_t  = [a_t, …, a_{t+H−1}]         after the episode ends: its last action, where `real` is False

The windows of a batch are gathered by index, so the demonstrations are held in memory once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from diffclone.data import AnyDemonstrations, Demonstrations
from diffclone.deploy.memory import Chunks
from diffclone.errors import InvalidSettings
from diffclone.shapes import Floats, Seen


@final
@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of demonstrations: one ends, and one chunk begins, at each step."""

    history: int
    """h"""
    horizon: int
    """H"""
    first: Tensor
    """(steps,): the first step of the episode of each step."""
    last: Tensor
    """(steps,): the last step of the episode of each step."""

    @classmethod
    def of(cls, demos: Demonstrations, chunks: Chunks, device: torch.device) -> "Windows | None":
        """Return the windows of demonstrations; None if they are single steps."""
        if not chunks.has_memory:
            return None
        ends, lengths = torch.tensor(demos.episode_ends), torch.tensor(demos.lengths)
        first, last = ((edge.repeat_interleave(lengths)).to(device) for edge in (ends - lengths, ends - 1))
        return cls(chunks.history, chunks.horizon, first, last)

    def to(self, device: torch.device) -> "Windows":
        """Return the windows on a device."""
        return replace(self, first=self.first.to(device), last=self.last.to(device))

    def gather_obs(self, obs: Tensor, steps: Tensor, decode: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return s of some steps: observations (all steps, size) and indices (…) to (…, h · size).

        `decode` is applied to single observations before they are joined.
        """
        back = torch.arange(1 - self.history, 1, device=steps.device)
        seen = obs[torch.maximum(steps[..., None] + back, self.first[steps][..., None])]
        return (seen if decode is None else decode(seen)).flatten(-2)

    def gather_act(self, act: Tensor, steps: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return a of some steps, (…, H · size), and where it is real."""
        if self.horizon == 1:
            return act[steps], None
        ahead = steps[..., None] + torch.arange(self.horizon, device=steps.device)
        last = self.last[steps][..., None]
        real = (ahead <= last)[..., None].expand(*ahead.shape, act.shape[-1])
        return act[torch.minimum(ahead, last)].flatten(-2), real.flatten(-2)


def gather_all(demos: Demonstrations, chunks: Chunks) -> tuple[Seen, Floats]:
    """Return the raw windows and chunks of all steps; if they are single steps, the arrays of the demonstrations."""
    obs = demos.observe(slice(None))
    if (windows := Windows.of(demos, chunks, torch.device("cpu"))) is None:
        return obs, demos.act
    steps = torch.arange(demos.num_steps)
    act, _ = windows.gather_act(torch.tensor(demos.act), steps)
    return windows.gather_obs(torch.tensor(obs), steps).numpy(), act.numpy()


def check_windows(chunks: Chunks, demos: AnyDemonstrations) -> None:
    """Refuse windows that do not fit into any episode, and steps that are not consecutive."""
    if not chunks.has_memory:
        return
    longest, shortest = int(demos.lengths.max()), int(demos.lengths.min())
    for name, size in (("horizon", chunks.horizon), ("history", chunks.history)):
        if size > longest:
            raise InvalidSettings(
                f"{name} is {size}, but the longest episode has {longest} steps (the shortest {shortest}). "
                f"Choose a {name} of at most {longest}."
            )
    if not has_consecutive_steps(demos.meta):
        raise InvalidSettings(
            "these demonstrations are a fraction of the transitions, so their steps are not consecutive; horizon and "
            "history must be 1. Take a fraction of the episodes instead."
        )


def has_consecutive_steps(meta: Mapping[str, Any]) -> bool:
    """Return whether the steps of an episode follow each other, also in demonstrations that were joined."""
    joined: list[Mapping[str, Any]] = meta.get("joined", [])
    return "transitions_taken" not in meta and all(has_consecutive_steps(added.get("meta", {})) for added in joined)
