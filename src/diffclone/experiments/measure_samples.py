"""Actions that a diffusion model generates at the expert's states, and their errors.

sampled action    x_T ~ N(0, I), then ancestral steps to x_0; before each step the state part of x_t is replaced by
at state s        √ᾱ_t s + √(1 − ᾱ_t) ε, so that the action part is sampled given the state
reconstruction    x_t = √ᾱ_t (s, a) + √(1 − ᾱ_t) ε, then ancestral steps to x_0: its action depends on t. At a small t
from step t       it is nearly a, at the last t it has nothing to do with a.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from diffclone.experiments.measurement import MeasureInput, MeasureOutput, round_values
from diffclone.nn.diffusion import Diffusion
from diffclone.rng import Rng

STATES, QUICK_STATES = 400, 20
"""Expert states at which actions are sampled."""
RECONSTRUCTION_SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
"""t of the curve, as shares of all steps."""


@torch.no_grad()
def sample_actions(model: Diffusion, states: Tensor, act_size: int, rng: Rng) -> Tensor:
    """Sample actions at normalised states of shape (1, rows, size)."""
    rows, size = states.shape[-2:]
    x = rng["start"].normal(rows, size + act_size)
    return denoise(model, x, len(model.beta), rng, states)[..., size:]


@torch.no_grad()
def denoise(model: Diffusion, x: Tensor, count: int, rng: Rng, states: Tensor | None = None) -> Tensor:
    """Take the last `count` ancestral steps, from x_t with t = count − 1; `states` are held fixed if they are given."""
    rows, size = x.shape[-2:]
    steps = list(reversed(range(count)))
    embedded = model.denoiser.embed(torch.tensor(steps, device=x.device)[None])
    for k, t in enumerate(steps):
        if states is not None:
            noise = rng[f"state {t}"].normal(rows, states.shape[-1])
            x = torch.cat([model.signal[t] * states + model.noise[t] * noise, x[..., states.shape[-1] :]], -1)
        _, eps_hat = model.predict(x, t, [e[..., k : k + 1, :] for e in embedded], None, within_box=False)
        z = rng[f"noise {t}"].normal(rows, size) if t else None
        x = model.ancestral_step(x, t, eps_hat, z)
    return x


def expert_rows(given: MeasureInput) -> npt.NDArray[np.int64]:
    """Return evenly spaced rows of the demonstrations."""
    count = QUICK_STATES if given.quick else STATES
    return np.unique(np.linspace(0, given.demos.num_steps - 1, count).astype(np.int64))


def sample_at_expert_states(given: MeasureInput, member: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return evenly spaced rows of the demonstrations, and the actions sampled there in raw units."""
    policy, rows = given.policy, expert_rows(given)
    device, dtype = policy.device, policy.normaliser.obs_mean.dtype
    states = policy.normaliser.normalise_obs(torch.tensor(given.demos.obs[rows], device=device).to(dtype))
    rng = Rng([int(policy.members[member]["seed"])], device=device, dtype=dtype, path="measure")
    act = sample_actions(given.diffusion_model(member), states[None], policy.dims.act, rng)
    return rows, policy.normaliser.restore_act(act[0]).double().cpu().numpy()


def measure_samples(given: MeasureInput) -> MeasureOutput:
    """Store actions that the first member's diffusion model samples at expert states."""
    rows, act = sample_at_expert_states(given, 0)
    results = {
        "states": round_values(given.demos.obs[rows, :2]),
        "expert": round_values(given.demos.act[rows]),
        "sampled": round_values(act),
    }
    return MeasureOutput(results, {"states": len(rows), "sampler": "ancestral, held to the state"})


def measure_reconstruction(given: MeasureInput) -> MeasureOutput:
    """Measure the mean squared error of sampled actions to clean expert actions, one value per member."""
    errors: list[float] = []
    for member in range(len(given.policy)):
        rows, act = sample_at_expert_states(given, member)
        errors.append(float(np.square(act - given.clean_demos.act[rows]).mean()))
        given.progress(member + 1, len(given.policy))
    noise = given.demos.meta.get("action_noise") or [{"level": 0.0}]
    results = {"action_noise": noise[-1]["level"], "mse": round_values(errors, 6)}
    return MeasureOutput(results, {"sampler": "ancestral, held to the state"})


def measure_reconstruction_curve(given: MeasureInput) -> MeasureOutput:
    """Measure the error of actions that are noised up to step t and denoised again, by t, one value per member."""
    policy, rows = given.policy, expert_rows(given)
    normaliser, device, dtype = policy.normaliser, policy.device, policy.normaliser.obs_mean.dtype
    obs, act = (torch.tensor(values[rows], device=device).to(dtype) for values in (given.demos.obs, given.demos.act))
    pairs = torch.cat([normaliser.normalise_obs(obs), normaliser.normalise_act(act)], -1)[None]
    clean = given.clean_demos.act[rows]
    steps = [round(share * len(given.diffusion_model(0).beta)) for share in RECONSTRUCTION_SHARES]
    errors: list[list[float]] = []
    for count in steps:
        own: list[float] = []
        for member in range(len(policy)):
            model = given.diffusion_model(member)
            seed = int(policy.members[member]["seed"])
            rng = Rng([seed], device=device, dtype=dtype, path=f"reconstruction {count}")
            t = torch.full(pairs.shape[:2], count - 1, device=device)
            noisy = model.add_noise(pairs, t, rng["start"].normal(*pairs.shape[1:]))
            found = denoise(model, noisy, count, rng)[0, :, policy.dims.obs :]
            gap = normaliser.restore_act(found).double().cpu().numpy() - clean
            own.append(float(np.square(gap).mean()))
        errors.append(own)
        given.progress(len(errors), len(steps))
    results = {"steps": steps, "curve": [round_values(own, 6) for own in errors]}
    return MeasureOutput(results, {"sampler": "ancestral, from the noised pair; the state is not held"})
