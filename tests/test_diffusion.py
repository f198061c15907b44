from typing import Any

import pytest
import torch
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from diffclone import DiffusionGuide, Training
from diffclone.diffusion import Diffusion, sigmoid_betas
from diffclone.guides.diffusion import T_SAMPLERS
from diffclone.model import Dims
from diffclone.nn import Denoiser
from diffclone.rng import Rng
from diffclone.training.loop import Session, train_part
from diffclone.training.members import Stack
from diffclone.training.step import Pairs


def make_diffusion(size: int, steps: int, members: int = 1) -> Diffusion:
    rng = Rng(range(members), dtype=torch.float64)
    return Diffusion(Denoiser(size, steps, 8, 2, "table", rng), sigmoid_betas(steps))


@pytest.fixture(scope="module")
def scheduler() -> Any:
    return DDPMScheduler(
        num_train_timesteps=1000,
        beta_schedule="sigmoid",
        beta_start=1e-4,
        beta_end=0.02,
        variance_type="fixed_large",
        clip_sample=False,
        prediction_type="epsilon",
    )


def test_the_schedule_has_the_known_values() -> None:
    beta = sigmoid_betas(1000)
    alpha_bar = torch.cumprod(1 - beta, 0)
    assert (beta[0].item(), beta[-1].item()) == pytest.approx((1.492e-4, 1.9951e-2), rel=1e-4)
    known = [0.99985, 0.9028, 0.2989, 0.00562, 3.97e-5]
    assert alpha_bar[[0, 250, 500, 750, 999]].tolist() == pytest.approx(known, rel=1e-3)


def test_the_schedule_is_that_of_diffusers(scheduler: Any) -> None:
    diffusion = make_diffusion(2, 1000)
    assert torch.allclose(diffusion.beta, scheduler.betas.double(), rtol=1e-5)
    alpha_bar = scheduler.alphas_cumprod.double()
    assert torch.allclose(diffusion.signal.square(), alpha_bar, rtol=1e-4, atol=1e-8)
    assert torch.allclose(diffusion.noise.square(), 1 - alpha_bar, rtol=1e-4)


def test_noising_is_that_of_diffusers(scheduler: Any) -> None:
    diffusion, t = make_diffusion(3, 1000), torch.tensor([0, 1, 250, 999])
    x, eps = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theirs = scheduler.add_noise(x, eps, t)
    assert torch.allclose(diffusion.noised(x, t, eps), theirs, atol=1e-5)


@pytest.mark.parametrize("t", [0, 1, 250, 999])
def test_the_ancestral_step_is_that_of_diffusers(scheduler: Any, t: int) -> None:
    diffusion, seed = make_diffusion(3, 1000), torch.Generator().manual_seed(0)
    x, eps_hat = torch.randn(2, 4, 3, dtype=torch.float64, generator=seed)
    theirs = scheduler.step(eps_hat, t, x, generator=torch.Generator().manual_seed(1)).prev_sample
    z = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(diffusion.ancestral_step(x, t, eps_hat, z), theirs, rtol=1e-4, atol=1e-5)


def test_the_denoising_error_by_hand() -> None:
    diffusion = make_diffusion(2, 10)
    with torch.no_grad():
        for parameter in diffusion.denoiser.parameters():
            parameter.zero_()
        diffusion.denoiser.out.bias.copy_(torch.tensor([1.0, -1.0]))
    # The network answers (1, −1) whatever it sees: ((3 − 1)² + (0 + 1)²) / 2 and ((1 − 1)² + (−1 + 1)²) / 2.
    eps = torch.tensor([[[3.0, 0.0], [1.0, -1.0]]], dtype=torch.float64)
    error = diffusion.error(torch.zeros_like(eps), torch.tensor([[4, 9]]), eps)
    assert error.tolist() == [[2.5, 0.0]]


def test_the_network_sees_the_noised_pair_and_its_step() -> None:
    diffusion = make_diffusion(2, 10)
    x, eps, t = torch.ones(1, 1, 2).double(), -torch.ones(1, 1, 2).double(), torch.tensor([[7]])
    seen = diffusion.signal[7] * x + diffusion.noise[7] * eps
    by_hand = (eps - diffusion.denoiser(seen, t)).square().mean(-1)
    assert torch.equal(diffusion.error(x, t, eps), by_hand)
    assert not torch.equal(diffusion.denoiser(seen, t), diffusion.denoiser(seen, t - 1))


ranges = st.tuples(st.integers(0, 1500), st.integers(1, 1500)).map(lambda r: (r[0], r[0] + r[1]))


@pytest.mark.parametrize("sampler", T_SAMPLERS)
@given(st.integers(1, 300), ranges, st.integers(0, 5))
@settings(deadline=None)
def test_steps_stay_in_their_range(sampler: str, rows: int, span: tuple[int, int], seed: int) -> None:
    t = T_SAMPLERS[sampler](Rng([seed, seed + 1])["t"], rows, *span)
    assert t.shape == (2, rows)
    assert t.min() >= span[0]
    assert t.max() < span[1]


@given(st.integers(1, 300), ranges)
@settings(deadline=None)
def test_antithetic_halves_mirror(rows: int, span: tuple[int, int]) -> None:
    t = T_SAMPLERS["antithetic"](Rng([0])["t"], rows, *span)
    half = rows // 2
    assert torch.all(t[:, :half] + t[:, rows - half :] == span[0] + span[1] - 1)


@given(st.integers(1, 300), st.integers(1, 5), st.integers(0, 100), st.integers(0, 5))
@settings(deadline=None)
def test_stratified_has_one_step_in_each_part(rows: int, width: int, low: int, seed: int) -> None:
    t = T_SAMPLERS["stratified"](Rng([seed])["t"], rows, low, low + rows * width)
    assert ((t - low) // width).tolist() == [list(range(rows))]


@pytest.mark.parametrize("sampler", T_SAMPLERS)
def test_every_step_is_equally_likely(sampler: str) -> None:
    t = T_SAMPLERS[sampler](Rng([0])["t"], 40_000, 3, 13)
    counts = torch.bincount(t[0], minlength=13)[3:]
    assert counts.float().sub(4000).abs().max() < 250


def test_a_cost_of_many_draws_is_the_mean_of_single_draws() -> None:
    many = DiffusionGuide(width=8, steps=20, draws=3)
    dims, rng, batch = Dims(2, 1), Rng([0, 1], dtype=torch.float64), 5
    weights = many.init(dims, rng["init"])
    obs, act = rng["obs"].normal(batch, 2), rng["act"].normal(batch, 1)
    t, eps = many.draw(batch, dims, rng["guide"])
    assert (t.shape, eps.shape) == ((2, 15), (2, 15, 3))
    single = DiffusionGuide(width=8, steps=20)
    costs = [single.cost(weights, obs, act, (t[:, k : k + batch], eps[:, k : k + batch])) for k in range(0, 15, batch)]
    assert torch.allclose(many.cost(weights, obs, act, (t, eps)), torch.stack(costs).mean(0), rtol=1e-12)


def test_sampling_recovers_what_was_learned() -> None:
    x = Rng([7])["x"].normal(4000, 1)[0]
    obs, act = 0.5 + 0.5 * x, -1 + 0.25 * x
    guide = DiffusionGuide(training=Training(updates=1000, lr=3e-3), width=32, conditioning="sinusoidal")
    stack, session = Stack((0,), {}), Session(Pairs(obs, act), Dims(1, 1), {})
    run = train_part("guide", guide, stack, session)
    try:
        while True:
            next(run)
    except StopIteration as end:
        weights = end.value
    seen, done = guide.sample(weights, 500, Dims(1, 1), Rng([0])["sample"])
    assert seen.mean().item() == pytest.approx(0.5, abs=0.1)
    assert seen.std().item() == pytest.approx(0.5, abs=0.1)
    assert done.mean().item() == pytest.approx(-1, abs=0.1)
    assert done.std().item() == pytest.approx(0.25, abs=0.08)
    assert torch.corrcoef(torch.stack([seen.flatten(), done.flatten()]))[0, 1] > 0.9
