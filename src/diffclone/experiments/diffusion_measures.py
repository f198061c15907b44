"""What a trained diffusion model says: the actions it samples at an expert's states, and where it moves positions.

sampled at s    x_T ~ N(0, I), then ancestral steps to x_0, where before each step the state's part of x_t is
                √ᾱ_t s + √(1 − ᾱ_t) ε:  the walk is held to the state, and the action follows
arrow at p      E (x̂ − x)_position = −(√(1 − ᾱ_t) / √ᾱ_t) E ε̂(√ᾱ_t x, t)_position       x: p, the rest an expert's
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.experiments.subject import Measured, Subject, rounded
from diffclone.model import Dims
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng

STATES, QUICK_STATES = 400, 20
"""Of the expert, at which actions are sampled."""
FIELD_PAIRS, FIELD_PER_CELL = 32, 5
"""Expert pairs that an arrow is the mean over, and arrows along the side of a cell."""


def weights(subject: Subject, member: int) -> Diffusion:
    """Of a member's guide."""
    run, policy = subject.trained()
    dims = Dims(policy.dims.obs, policy.dims.act)
    net = run.part("guide", subject.guide(), dims, member=member)
    return net.to(policy.device).requires_grad_(requires_grad=False)


@torch.no_grad()
def sampled_at(model: Diffusion, states: Tensor, act_size: int, rng: Rng) -> Tensor:
    """Actions that the model gives at normalised states (1, rows, size)."""
    rows, size = states.shape[-2:]
    x = rng["start"].normal(rows, size + act_size)
    steps = list(reversed(range(len(model.beta))))
    embedded = model.denoiser.embed(torch.tensor(steps, device=x.device)[None])
    for k, t in enumerate(steps):
        held = model.signal[t] * states + model.noise[t] * rng[f"state {t}"].normal(rows, size)
        x = torch.cat([held, x[..., size:]], -1)
        _, eps_hat = model.estimate(x, t, [e[..., k : k + 1, :] for e in embedded], None, within_box=False)
        z = rng[f"noise {t}"].normal(rows, size + act_size) if t else None
        x = model.ancestral_step(x, t, eps_hat, z)
    return x[..., size:]


def sampled(subject: Subject, member: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Rows of the demonstrations, evenly spaced, and the actions sampled there, in their own unit."""
    _, policy = subject.trained()
    count = QUICK_STATES if subject.quick else STATES
    rows = np.unique(np.linspace(0, subject.demos.num_steps - 1, count).astype(np.int64))
    device, dtype = policy.device, policy.normaliser.obs_mean.dtype
    states = policy.normaliser.normalise_obs(torch.tensor(subject.demos.obs[rows], device=device).to(dtype))
    rng = Rng([int(policy.members[member]["seed"])], device=device, dtype=dtype, path="measure")
    act = sampled_at(weights(subject, member), states[None], policy.dims.act, rng)
    return rows, policy.normaliser.restore_act(act[0]).double().cpu().numpy()


def samples(subject: Subject) -> Measured:
    """Of the first member."""
    rows, act = sampled(subject, subject.members[0])
    results = {
        "states": rounded(subject.demos.obs[rows, :2]),
        "expert": rounded(subject.demos.act[rows]),
        "sampled": rounded(act),
    }
    return Measured(results, {"states": len(rows), "sampler": "ancestral, held to the state"})


def reconstruction(subject: Subject) -> Measured:
    """The mean square of sampled less clean expert actions, a number a member."""
    errors: list[float] = []
    for done, member in enumerate(subject.members):
        rows, act = sampled(subject, member)
        errors.append(float(np.square(act - subject.clean.act[rows]).mean()))
        subject.progress(done + 1, len(subject.members))
    noise = subject.demos.meta.get("action_noise") or [{"level": 0.0}]
    results = {"action_noise": noise[-1]["level"], "mse": rounded(errors, 6)}
    return Measured(results, {"sampler": "ancestral, held to the state"})


@torch.no_grad()
def field(subject: Subject) -> Measured:
    """Arrows over the free cells of the maze, by the first member's model."""
    from diffclone.tasks.maze import CELLS, SHIFT, WALLS

    _, policy = subject.trained()
    guide, model = subject.guide(), weights(subject, subject.members[0])
    within = (np.arange(FIELD_PER_CELL) + 0.5) / FIELD_PER_CELL - 0.5
    # A cell (i, j) has its middle at (i + 1, j + 1) of the world.
    spots = np.array([(i + 1 - SHIFT + dx, j + 1 - SHIFT + dy) for i, j in CELLS for dx in within for dy in within])
    device, dtype = policy.device, policy.normaliser.obs_mean.dtype
    chosen = np.random.default_rng(0).choice(subject.demos.num_steps, FIELD_PAIRS, replace=False)
    obs = torch.tensor(subject.demos.obs[chosen], device=device).to(dtype).repeat(len(spots), 1)
    obs[:, :2] = torch.tensor(spots, device=device).to(dtype).repeat_interleave(FIELD_PAIRS, 0)
    act = torch.tensor(subject.demos.act[chosen], device=device).to(dtype).repeat(len(spots), 1)
    normaliser = policy.normaliser
    x = torch.cat([normaliser.normalise_obs(obs), normaliser.normalise_act(act)], -1)[None]
    step = guide.steps // 10
    t = torch.full(x.shape[:2], step, device=device)
    moved = -(model.noise[step] / model.signal[step]) * model.denoiser(model.signal[step] * x, t)[0, :, :2]
    arrows = (moved * normaliser.obs_std[:2]).unflatten(0, (len(spots), FIELD_PAIRS)).mean(1)
    shown = np.linspace(0, subject.demos.num_steps - 1, min(2000, subject.demos.num_steps)).astype(np.int64)
    results = {
        "positions": rounded(spots, 3),
        "directions": rounded(arrows.cpu().numpy()),
        "expert": rounded(subject.demos.obs[shown, :2], 3),
        "walls": [list(wall) for wall in WALLS],
    }
    return Measured(results, {"step": step, "expert_pairs": FIELD_PAIRS, "rest": "expert pairs drawn at random"})
