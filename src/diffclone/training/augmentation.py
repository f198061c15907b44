"""Generate pairs like the expert's, drawn from a diffusion model of p(s, a).

The paper adds as many generated pairs to Maze's 18,525, and trains BC on both.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from diffclone.data import Demonstrations
from diffclone.errors import InvalidSettings
from diffclone.fit import Diverged, choose_device
from diffclone.guides import DiffusionGuide
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng
from diffclone.settings import to_dict
from diffclone.shapes import Floats
from diffclone.training import Progress
from diffclone.training.checkpoint import GuideCache
from diffclone.training.loop import run_reporting, train_part
from diffclone.training.session import prepare_session

NUMBERS = 2**23
"""Random numbers drawn for one chunk of pairs, over all diffusion steps: 32 MiB."""


def generate(
    guide: DiffusionGuide,
    demos: Demonstrations,
    count: int,
    *,
    seed: int = 0,
    device: str = "auto",
    cache: str | Path | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Demonstrations:
    """Train the guide on demonstrations and draw `count` pairs from it. Pairs have no order: each is an episode.

    Args:
        guide: the diffusion model, with its settings.
        demos: the demonstrations to train on. Dimensions that are constant there are constant in the pairs.
        count: number of pairs.
        seed: seed of the guide and of the pairs.
        device: "cpu", "cuda", "cuda:1", "mps", or "auto" for a CUDA GPU if there is one.
        cache: a folder of trained guides, searched before the guide is trained.
        progress: called with the state of training, then (stage "samples") with the number of pairs drawn.
    """
    if count < 1:
        raise InvalidSettings(f"at least one pair must be generated; {count} were requested.")
    if demos.obs.dtype == np.uint8:
        raise InvalidSettings("images cannot be generated: observations are bytes. Use observations that are numbers.")
    guides = None if cache is None else GuideCache(Path(cache))
    obs, act = run_reporting(draw_pairs(guide, demos, count, seed, choose_device(device), guides), progress)
    if (allowed := demos.action_range) is not None:
        act = act.clip(*allowed)
    known = {key: demos.meta[key] for key in ("task", "action_bounds") if key in demos.meta}
    made = {"guide": to_dict(guide), "seed": seed, "demonstrations": demos.fingerprint}
    ends = np.arange(1, count + 1)
    return Demonstrations.from_arrays(obs, act, episode_ends=ends, meta={**known, "generated": made})


def draw_pairs(
    guide: DiffusionGuide, demos: Demonstrations, count: int, seed: int, device: torch.device, cache: GuideCache | None
) -> Generator[Progress, None, tuple[Floats, Floats]]:
    """Train the guide, then yield progress and return raw observations and actions."""
    # Not the default of methods, which clips at ±3: pairs further out would be drawn at the limit.
    normaliser, session = prepare_session(demos, "z-score", device, torch.float32)
    dims = session.dims
    weights = yield from train_part("guide", guide, (seed,), replace(session, cache=cache), {})
    if not all(parameter.isfinite().all() for parameter in weights.parameters()):
        raise Diverged("the guide diverged (NaN weights). Try a smaller learning rate.")

    begun, chunk = time.monotonic(), max(1, NUMBERS // (guide.steps * (dims.obs + dims.act)))
    obs, act = np.empty((count, dims.obs), np.float32), np.empty((count, dims.act), np.float32)
    for first in range(0, count, chunk):
        stop = min(first + chunk, count)
        # A stream keeps its draws, so each chunk has its own streams.
        rng = Rng([seed], device=device, path=f"samples/{first}")
        (s,), (a,) = guide.sample(cast(Diffusion, weights), stop - first, dims, rng)
        obs[first:stop] = (s * normaliser.obs_std + normaliser.obs_mean).cpu()
        act[first:stop] = normaliser.restore_act(a).cpu()
        seconds = time.monotonic() - begun
        yield Progress("samples", stop, count, {}, seconds, stop / seconds)
    return obs, act
