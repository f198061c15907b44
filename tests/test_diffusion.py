import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from diffclone import DiffusionGuide, Training
from diffclone.errors import DiffcloneWarning
from diffclone.experiments.record_index import complete_settings
from diffclone.guides import GUIDES
from diffclone.guides.diffusion import T_SAMPLERS
from diffclone.model import Dims
from diffclone.nn import Denoiser
from diffclone.nn.diffusion import Box, Diffusion, Sampler, sigmoid_betas, spaced_steps
from diffclone.rng import Rng
from diffclone.settings import from_dict, to_dict
from diffclone.training.loop import train_part
from diffclone.training.session import Session
from diffclone.training.step import Dataset


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


def test_the_schedule_is_as_in_diffusers(scheduler: Any) -> None:
    diffusion = make_diffusion(2, 1000)
    assert torch.allclose(diffusion.beta, scheduler.betas.double(), rtol=1e-5)
    alpha_bar = scheduler.alphas_cumprod.double()
    assert torch.allclose(diffusion.signal.square(), alpha_bar, rtol=1e-4, atol=1e-8)
    assert torch.allclose(diffusion.noise.square(), 1 - alpha_bar, rtol=1e-4)


def test_adding_noise_is_as_in_diffusers(scheduler: Any) -> None:
    diffusion, t = make_diffusion(3, 1000), torch.tensor([0, 1, 250, 999])
    x, eps = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theirs = scheduler.add_noise(x, eps, t)
    assert torch.allclose(diffusion.add_noise(x, t, eps), theirs, atol=1e-5)


@pytest.mark.parametrize("t", [0, 1, 250, 999])
def test_the_ancestral_step_is_as_in_diffusers(scheduler: Any, t: int) -> None:
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
    # The network always returns (1, −1): ((3 − 1)² + (0 + 1)²) / 2 and ((1 − 1)² + (−1 + 1)²) / 2.
    eps = torch.tensor([[[3.0, 0.0], [1.0, -1.0]]], dtype=torch.float64)
    error = diffusion.denoising_error(torch.zeros_like(eps), torch.tensor([[4, 9]]), eps)
    assert error.tolist() == [[2.5, 0.0]]


def test_the_network_receives_the_noisy_pair_and_its_step() -> None:
    diffusion = make_diffusion(2, 10)
    x, eps, t = torch.ones(1, 1, 2).double(), -torch.ones(1, 1, 2).double(), torch.tensor([[7]])
    seen = diffusion.signal[7] * x + diffusion.noise[7] * eps
    by_hand = (eps - diffusion.denoiser(seen, t)).square().mean(-1)
    assert torch.equal(diffusion.denoising_error(x, t, eps), by_hand)
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
def test_stratified_has_one_step_per_interval(rows: int, width: int, low: int, seed: int) -> None:
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


def test_samples_have_the_learned_distribution() -> None:
    x = Rng([7])["x"].normal(4000, 1)[0]
    obs, act = 0.5 + 0.5 * x, -1 + 0.25 * x
    guide = DiffusionGuide(training=Training(updates=1000, lr=3e-3), width=32, conditioning="sinusoidal")
    session = Session(Dataset(obs, act), Dims(1, 1), {})
    run = train_part("guide", guide, (0,), session, {})
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


# Samplers, on a denoiser that is known.

SIGNAL = torch.cumprod(1 - sigmoid_betas(1000), 0).sqrt()
NOISE = (1 - SIGNAL.square()).sqrt()
MEAN, SPREAD = 0.5, 0.2


def gaussian(x: Tensor, t: Tensor) -> Tensor:
    """Return E[ε | x_t] for samples that are N(0.5, 0.2²) in each dimension."""
    signal, noise = SIGNAL[t][..., None], NOISE[t][..., None]
    return noise * (x - signal * MEAN) / ((signal * SPREAD) ** 2 + noise**2)


def crooked(x: Tensor, t: Tensor) -> Tensor:
    """Return a slightly different function, for which no equation is exact."""
    return gaussian(x, t) + 0.1 * SIGNAL[t][..., None] * (3 * x.roll(1, -1) + t[..., None] / 100).sin()


def wild(x: Tensor, t: Tensor) -> Tensor:
    """Return values far from the true noise."""
    return 2 * (5 * x).cos() + 0 * t[..., None]


class Known(nn.Module):
    """A denoiser that is a function and records its inputs."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function
        self.seen: list[Tensor] = []
        self.steps: list[int] = []

    def embed(self, t: Tensor) -> list[Tensor]:
        return [t[..., None]]

    def denoise(self, x: Tensor, embedded: Sequence[Tensor]) -> Tensor:
        (t,) = embedded
        self.seen.append(x)
        self.steps.append(int(t))
        return self.function(x, t[..., 0])


def known(function: Any, size: int = 3, box: Box | None = None) -> tuple[Diffusion, Known]:
    denoiser = Denoiser(size, 1000, 2, 1, "table", Rng([0], dtype=torch.float64))
    diffusion, asked = Diffusion(denoiser, sigmoid_betas(1000), box), Known(function)
    diffusion.add_module("denoiser", asked)
    return diffusion, asked


def random() -> Rng:
    return Rng([0, 1], dtype=torch.float64)["sample"]


SETTINGS: dict[str, Any] = {"trained_betas": sigmoid_betas(1000).numpy(), "timestep_spacing": "trailing"}


def their_scheduler(sampler: Sampler) -> Any:
    scheduler: Any
    if sampler == "ddim":
        scheduler = DDIMScheduler(**SETTINGS, clip_sample=False)
    else:
        solver: dict[str, Any] = {"algorithm_type": "dpmsolver++", "solver_order": 2, "lower_order_final": True}
        scheduler = DPMSolverMultistepScheduler(**SETTINGS, **solver, final_sigmas_type="zero")
    assert torch.allclose(scheduler.alphas_cumprod.double(), SIGNAL.square(), rtol=1e-4)
    scheduler.alphas_cumprod = SIGNAL.square()  # in double precision
    return scheduler


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("calls", [5, 10, 20, 50])
@pytest.mark.parametrize(("sampler", "tolerance"), [("ddim", 1e-12), ("dpm-solver++", 1e-5)])
def test_whole_sampling_runs_are_as_in_diffusers(sampler: Sampler, tolerance: float, calls: int) -> None:
    scheduler = their_scheduler(sampler)
    scheduler.set_timesteps(calls)
    diffusion, asked = known(crooked)
    end = diffusion.sample(4, 3, random(), sampler=sampler, calls=calls)
    assert asked.steps == scheduler.timesteps.tolist()
    theirs = asked.seen[0]
    assert torch.equal(theirs, random()["start"].normal(4, 3))
    for t, ours in zip(scheduler.timesteps, [*asked.seen[1:], end], strict=True):
        theirs = scheduler.step(crooked(theirs, t[None, None]), t, theirs).prev_sample
        assert torch.allclose(ours, theirs, rtol=0, atol=tolerance)
    assert (end - MEAN).abs().mean() < 0.4  # and it has come somewhere


@pytest.mark.parametrize("sampler", ["ddim", "dpm-solver++"])
def test_many_calls_converge_to_the_end_of_the_flow(sampler: Sampler) -> None:
    diffusion, asked = known(gaussian)
    start = random()["start"].normal(100, 3)
    # A Gaussian is carried to a Gaussian: what lay z standard deviations from the mean still does.
    z = (start - SIGNAL[-1] * MEAN) / ((SIGNAL[-1] * SPREAD) ** 2 + NOISE[-1] ** 2).sqrt()
    ends = [diffusion.sample(100, 3, random(), sampler=sampler, calls=calls) for calls in (5, 10, 20, 50, 1000)]
    gaps = torch.stack([(end - (MEAN + SPREAD * z)).abs().mean() for end in ends])
    assert torch.all(gaps.diff() < 0)
    assert gaps[-1] < 2e-3
    assert len(asked.steps) == 1085


def test_the_solver_needs_fewer_calls_than_ddim() -> None:
    def sample(sampler: Sampler, calls: int) -> Tensor:
        return known(gaussian)[0].sample(100, 3, random(), sampler=sampler, calls=calls)

    goal = sample("ddim", 1000)
    ddim, solver = ((sample(sampler, 50) - goal).abs().mean() for sampler in ("ddim", "dpm-solver++"))
    assert solver < 0.6 * ddim


def test_the_ancestral_sampler_takes_every_step_with_the_right_variance() -> None:
    diffusion, asked = known(gaussian)
    x = diffusion.sample(500, 3, random())
    assert asked.steps == list(range(999, -1, -1))
    assert x.mean().item() == pytest.approx(MEAN, abs=0.02)
    assert x.std().item() == pytest.approx(SPREAD, abs=0.02)


@given(st.integers(1, 1500).flatmap(lambda steps: st.tuples(st.just(steps), st.integers(1, steps))))
def test_spaced_steps_decrease_from_the_last_one(steps_calls: tuple[int, int]) -> None:
    steps, calls = steps_calls
    places = torch.tensor(spaced_steps(steps, calls))
    assert (len(places), places[0]) == (calls, steps - 1)
    assert torch.all(places.diff() < 0)
    assert places[-1] >= 0


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm-solver++"])
def test_extra_steps_repeat_the_last_one_without_noise(sampler: Sampler) -> None:
    calls = 1000 if sampler == "ancestral" else 7
    plain = known(crooked)[0].sample(4, 3, random(), sampler=sampler, calls=calls)
    diffusion, asked = known(crooked)
    end = diffusion.sample(4, 3, random(), sampler=sampler, calls=calls, extra=2)
    assert asked.steps[calls:] == [0, 0]
    by_hand, beta = plain, sigmoid_betas(1000)[0]
    for _ in range(2):
        # At t = 0 the noise is √β₀.
        by_hand = (by_hand - beta.sqrt() * crooked(by_hand, torch.zeros(1, 1, dtype=torch.int64))) / (1 - beta).sqrt()
    assert torch.allclose(end, by_hand, rtol=1e-9)
    assert not torch.allclose(end, plain, rtol=1e-5)


def test_the_condition_is_a_further_input_without_noise() -> None:
    given = torch.arange(16.0).double().reshape(2, 4, 2)

    def denoise(x: Tensor, t: Tensor) -> Tensor:
        return gaussian(x[..., :3], t)

    diffusion, asked = known(denoise)
    diffusion.sample(4, 3, random(), sampler="ddim", calls=3, condition=given)
    assert len(asked.seen) == 3
    for x in asked.seen:
        assert x.shape == (2, 4, 5)
        assert torch.equal(x[..., 3:], given)


BOX = ((-1.0, 0.0, -0.5), (1.0, 0.125, 0.5))


@pytest.mark.parametrize("t", [0, 1, 300, 999])
def test_noise_agrees_with_a_clipped_prediction(t: int) -> None:
    diffusion, asked = known(wild, box=BOX)
    x_t, embedded = random()["x"].normal(50, 3), asked.embed(torch.tensor([[t]]))
    free, free_noise = diffusion.predict(x_t, t, embedded, None, within_box=False)
    clean, eps_hat = diffusion.predict(x_t, t, embedded, None, within_box=True)
    assert torch.equal(free_noise, wild(x_t, torch.tensor([[t]])))
    assert torch.allclose(SIGNAL[t] * free + NOISE[t] * free_noise, x_t, rtol=1e-9)
    low, high = torch.tensor(BOX, dtype=torch.float64)
    assert torch.equal(clean, free.clamp(low, high))
    assert torch.allclose(SIGNAL[t] * clean + NOISE[t] * eps_hat, x_t, rtol=1e-9)
    within = (free >= low) & (free <= high)
    assert not within.all()
    assert torch.allclose(eps_hat[within], free_noise[within], rtol=1e-9)


def crooked_velocity(x: Tensor, t: Tensor) -> Tensor:
    """Return the velocity that agrees with the noise of `crooked`."""
    eps_hat, signal, noise = crooked(x, t), SIGNAL[t][..., None], NOISE[t][..., None]
    return signal * eps_hat - noise * (x - noise * eps_hat) / signal


def test_the_target_of_the_velocity_is_as_in_diffusers(scheduler: Any) -> None:
    x, eps = random()["x"].normal(50, 3)[0], random()["eps"].normal(50, 3)[0]
    t = torch.arange(0, 1000, 20)
    target = known_velocity()[0].target(x, t, eps)
    assert torch.allclose(target, scheduler.get_velocity(x, eps, t), rtol=1e-4, atol=1e-4)


def known_velocity() -> tuple[Diffusion, Known]:
    diffusion, asked = known(crooked_velocity, box=BOX)
    diffusion.predicts = "velocity"
    return diffusion, asked


@pytest.mark.parametrize("within_box", [False, True])
@pytest.mark.parametrize("sampler", get_args(Sampler))
def test_samples_do_not_depend_on_what_a_perfect_network_predicts(sampler: Sampler, *, within_box: bool) -> None:
    calls = 1000 if sampler == "ancestral" else 10
    noise, velocity = (
        diffusion.sample(20, 3, random(), sampler=sampler, calls=calls, within_box=within_box)
        for diffusion, _ in (known(crooked, box=BOX), known_velocity())
    )
    assert torch.allclose(noise, velocity, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "dpm-solver++"])
def test_samples_are_clipped_to_the_box(sampler: Sampler) -> None:
    calls = 1000 if sampler == "ancestral" else 10
    low, high = torch.tensor(BOX, dtype=torch.float64)
    for within in (True, False):
        x = known(wild, box=BOX)[0].sample(20, 3, random(), sampler=sampler, calls=calls, within_box=within)
        assert torch.all((x >= low - 1e-9) & (x <= high + 1e-9)) == within


# How t is drawn, and what of the gradient is kept.


def test_settings_with_importance_sampling_are_read_with_a_warning() -> None:
    values = {**to_dict(DiffusionGuide(draws=3)), "t_shares": None}
    assert from_dict(GUIDES, values) == DiffusionGuide(draws=3)
    values |= {"t_sampling": "importance", "t_shares": [0.5, 0.5]}
    with pytest.warns(DiffcloneWarning, match="no longer has.*weights are not affected"):
        assert from_dict(GUIDES, values) == DiffusionGuide(draws=3, t_sampling="stratified")
    assert (
        complete_settings("guide", json.dumps(values)) is None
    )  # its Records are not taken for those of stratified draws


def test_the_score_distillation_error_has_a_gradient_without_the_jacobian() -> None:
    diffusion, rng = make_diffusion(3, 10, members=2), random()
    x, eps = rng["x"].normal(4, 3).requires_grad_(), rng["eps"].normal(4, 3)
    t = torch.tensor([[0, 3, 6, 9], [9, 2, 1, 0]])
    score = diffusion.score_distillation_error(x, t, eps)
    assert torch.allclose(score, diffusion.denoising_error(x, t, eps), rtol=1e-12)
    (gradient,) = torch.autograd.grad(score.sum(), x)
    signal = diffusion.signal[t][..., None]
    eps_hat = diffusion.denoiser(diffusion.add_noise(x, t, eps), t)
    assert torch.allclose(gradient, signal * (eps_hat - eps) * 2 / 3, rtol=1e-10)
    (whole,) = torch.autograd.grad(diffusion.denoising_error(x, t, eps).sum(), x)
    assert not torch.allclose(gradient, whole, rtol=0.01)


def test_a_guide_without_jacobian_has_the_same_cost_and_another_gradient() -> None:
    with_it, without = DiffusionGuide(width=8, steps=20), DiffusionGuide(width=8, steps=20, jacobian=False)
    dims, rng = Dims(2, 1), random()
    weights = with_it.init(dims, rng["init"])
    obs, act = rng["obs"].normal(5, 2), rng["act"].normal(5, 1).requires_grad_()
    draw = with_it.draw(5, dims, rng["guide"])
    costs = [guide.cost(weights, obs, act, draw) for guide in (with_it, without)]
    assert torch.allclose(*costs, rtol=1e-12)
    pulls = [torch.autograd.grad(cost.sum(), act)[0] for cost in costs]
    assert not torch.allclose(*pulls, rtol=0.01)
